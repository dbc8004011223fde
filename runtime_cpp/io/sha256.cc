#include "io/sha256.h"

#include <bit>
#include <string>

namespace geomx::io {
namespace {

constexpr std::size_t kBlock = 64;

constexpr bool IsPrime(std::uint32_t number) {
  for (std::uint32_t factor = 2; factor * factor <= number; ++factor) {
    if (number % factor == 0) return false;
  }
  return true;
}

// The first 32 bits of the fractional part of the square or cube root of `number`: the largest
// integer whose power does not exceed number * 2^(32 * power), modulo 2^32.
constexpr std::uint32_t RootBits(std::uint32_t number, int power) {
  unsigned __int128 low = 0, high = std::uint64_t{1} << 40;
  while (high - low > 1) {
    const unsigned __int128 middle = (low + high) / 2;
    // For cube roots, 40 bits cubed are 120.
    const unsigned __int128 raised = power == 2 ? middle * middle : middle * middle * middle;
    (raised <= static_cast<unsigned __int128>(number) << (32 * power) ? low : high) = middle;
  }
  return static_cast<std::uint32_t>(low);
}

template <std::size_t count>
constexpr std::array<std::uint32_t, count> Roots(int power) {
  std::array<std::uint32_t, count> roots{};
  std::uint32_t number = 2;
  for (std::uint32_t& root : roots) {
    while (!IsPrime(number)) ++number;
    root = RootBits(number++, power);
  }
  return roots;
}

constexpr auto kFirst = Roots<8>(2);     // FIPS 180-4, 5.3.3
constexpr auto kConstants = Roots<64>(3);  // FIPS 180-4, 4.2.2

void Compress(std::array<std::uint32_t, 8>& state, std::string_view block) {
  std::array<std::uint32_t, 64> words;
  for (std::size_t i = 0; i < 16; ++i) {
    words[i] = 0;
    for (std::size_t j = 0; j < 4; ++j) {
      words[i] = words[i] << 8 | static_cast<unsigned char>(block[4 * i + j]);
    }
  }
  for (std::size_t i = 16; i < 64; ++i) {
    const std::uint32_t two = words[i - 2], fifteen = words[i - 15];
    words[i] = words[i - 16] + words[i - 7] +
               (std::rotr(fifteen, 7) ^ std::rotr(fifteen, 18) ^ fifteen >> 3) +
               (std::rotr(two, 17) ^ std::rotr(two, 19) ^ two >> 10);
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (std::size_t i = 0; i < 64; ++i) {
    const std::uint32_t one = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
                              ((e & f) ^ (~e & g)) + kConstants[i] + words[i];
    const std::uint32_t two =
        (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + one;
    d = c, c = b, b = a, a = one + two;
  }
  const std::uint32_t worked[] = {a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < 8; ++i) state[i] += worked[i];
}

std::string_view View(const Hash& hash) {
  return {reinterpret_cast<const char*>(hash.data()), hash.size()};
}

}  // namespace

Hash Sha256(std::string_view bytes) {
  std::string padded(bytes);
  padded += '\x80';
  padded.resize((padded.size() + 8 + kBlock - 1) / kBlock * kBlock);
  const std::uint64_t bits = std::uint64_t{bytes.size()} * 8;
  for (std::size_t i = 0; i < 8; ++i) {
    padded[padded.size() - 1 - i] = static_cast<char>(bits >> (8 * i));
  }
  std::array<std::uint32_t, 8> state = kFirst;
  for (std::size_t at = 0; at < padded.size(); at += kBlock) {
    Compress(state, std::string_view(padded).substr(at, kBlock));
  }
  Hash hash;
  for (std::size_t i = 0; i < hash.size(); ++i) {
    hash[i] = static_cast<std::byte>(state[i / 4] >> (24 - 8 * (i % 4)));
  }
  return hash;
}

Hash HmacSha256(std::string_view key, std::string_view bytes) {
  std::string inner(key.size() > kBlock ? View(Sha256(key)) : key);
  inner.resize(kBlock);
  std::string outer = inner;
  for (char& each : inner) each ^= 0x36;
  for (char& each : outer) each ^= 0x5c;
  const Hash within = Sha256(inner.append(bytes));
  return Sha256(outer.append(View(within)));
}

}  // namespace geomx::io
