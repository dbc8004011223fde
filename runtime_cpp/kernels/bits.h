// Integers of 1 to 32 bits, packed consecutively from the lowest bit of the first byte up: the
// layout of rows of odd width, or narrower than a byte, in a part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace geomx {

// REQUIRES: every number fits; `out` holds (count * bits + 7) / 8 bytes.
inline void PackBits(const std::uint32_t* numbers, std::uint64_t count, std::uint32_t bits,
                     std::byte* out) {
  std::uint64_t pending = 0;  // not written yet; fewer than 8 bits between two numbers
  std::uint32_t filled = 0;
  std::byte* const end = out + (count * bits + 7) / 8;
  std::uint64_t i = 0;
  for (; i < count && end - out >= 8; ++i) {  // whole words, most of which the next overwrites
    pending |= std::uint64_t{numbers[i]} << filled;
    filled += bits;
    std::memcpy(out, &pending, sizeof pending);
    out += filled / 8;
    pending >>= filled / 8 * 8;
    filled %= 8;
  }
  for (; i < count; ++i) {
    pending |= std::uint64_t{numbers[i]} << filled;
    filled += bits;
    for (; filled >= 8; filled -= 8, pending >>= 8) *out++ = static_cast<std::byte>(pending);
  }
  if (filled > 0) *out = static_cast<std::byte>(pending);
}

// REQUIRES: `in` holds (count * bits + 7) / 8 bytes; it need not be aligned.
inline void UnpackBits(const std::byte* in, std::uint64_t count, std::uint32_t bits,
                       std::uint32_t* out) {
  const std::uint64_t bytes = (count * bits + 7) / 8;
  const auto mask = static_cast<std::uint32_t>((std::uint64_t{1} << bits) - 1);
  std::uint64_t i = 0;
  std::uint64_t bit = 0;
  std::uint64_t window;
  for (; i < count && bit / 8 + sizeof window <= bytes; ++i, bit += bits) {
    std::memcpy(&window, in + bit / 8, sizeof window);
    out[i] = static_cast<std::uint32_t>(window >> bit % 8) & mask;
  }
  for (; i < count; ++i, bit += bits) {
    window = 0;
    std::memcpy(&window, in + bit / 8, bytes - bit / 8);
    out[i] = static_cast<std::uint32_t>(window >> bit % 8) & mask;
  }
}

}  // namespace geomx
