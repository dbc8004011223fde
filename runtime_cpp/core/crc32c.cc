#include "core/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace geomx {
namespace {

constexpr std::uint32_t kPolynomial = 0x82f63b78u;  // reflected
using Table = std::array<std::array<std::uint32_t, 256>, 8>;

// The CRCs of all byte values, each followed by `zeros` zero bytes.
constexpr Table MakeTable() {
  Table table{};
  for (std::uint32_t value = 0; value < 256; ++value) {
    std::uint32_t crc = value;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? kPolynomial : 0);
    table[0][value] = crc;
  }
  for (std::size_t zeros = 1; zeros < table.size(); ++zeros) {
    for (std::size_t value = 0; value < 256; ++value) {
      const std::uint32_t crc = table[zeros - 1][value];
      table[zeros][value] = crc >> 8 ^ table[0][crc & 255];
    }
  }
  return table;
}

constexpr Table kTable = MakeTable();

std::uint32_t Portable(std::uint32_t crc, const std::byte* at, std::size_t count) {
  for (; count >= 8; count -= 8, at += 8) {
    std::uint64_t word;
    std::memcpy(&word, at, sizeof word);
    word ^= crc;
    crc = 0;
    for (std::size_t i = 0; i < 8; ++i) crc ^= kTable[7 - i][word >> (8 * i) & 255];
  }
  for (; count > 0; --count, ++at) {
    crc = crc >> 8 ^ kTable[0][(crc ^ std::to_integer<std::uint32_t>(*at)) & 255];
  }
  return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) std::uint32_t Instructions(std::uint32_t crc, const std::byte* at,
                                                             std::size_t count) {
  std::uint64_t wide = crc;
  for (; count >= 8; count -= 8, at += 8) {
    std::uint64_t word;
    std::memcpy(&word, at, sizeof word);
    wide = _mm_crc32_u64(wide, word);
  }
  crc = static_cast<std::uint32_t>(wide);
  for (; count > 0; --count, ++at) crc = _mm_crc32_u8(crc, std::to_integer<std::uint8_t>(*at));
  return crc;
}

const bool kHasInstructions = __builtin_cpu_supports("sse4.2") != 0;
#endif

}  // namespace

std::uint32_t Crc32c(Bytes bytes, std::uint32_t before) {
#if defined(__x86_64__)
  if (kHasInstructions) return ~Instructions(~before, bytes.data(), bytes.size());
#endif
  return ~Portable(~before, bytes.data(), bytes.size());
}

}  // namespace geomx
