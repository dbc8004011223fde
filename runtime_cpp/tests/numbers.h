// Random numbers for tests of kernels, and comparison of results by bits.
#pragma once

#include <bit>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

#include "tests/seeds.h"

namespace geomx::check {

using Values = std::vector<float>;

// Returns numbers of very different magnitudes, sometimes with any bits.
inline float AnyNumber(Random& random) {
  if (Chance(random, 0.05)) {
    const float odd[] = {0.0f, -0.0f, HUGE_VALF, -HUGE_VALF, std::nanf(""), 0x1p-149f, -0x1p-127f,
                         65504.0f, 65520.0f, 0x1p-24f, 0x1p-25f, 3.4e38f};
    return odd[Between(random, 0, std::size(odd) - 1)];
  }
  return std::ldexp(Uniform(random, -1, 1), static_cast<int>(Between(random, 0, 40)) - 30);
}

inline Values Draw(Random& random, std::uint64_t n, bool any = false) {
  Values values(n);
  for (float& value : values) value = any ? AnyNumber(random) : Uniform(random, -1, 1);
  return values;
}

// Appends the bits of values. All NaN are equal, as the result of adding two NaN is not specified.
inline void Collect(std::vector<std::uint32_t>& bits, std::span<const float> values) {
  for (const float value : values) {
    bits.push_back(std::isnan(value) ? 0x7fc00000u : std::bit_cast<std::uint32_t>(value));
  }
}

inline void Collect(std::vector<std::uint32_t>& bits, double value) {
  const auto whole = std::bit_cast<std::uint64_t>(std::isnan(value) ? std::nan("") : value);
  bits.push_back(static_cast<std::uint32_t>(whole));
  bits.push_back(static_cast<std::uint32_t>(whole >> 32));
}

inline void Collect(std::vector<std::uint32_t>& bits, const std::vector<double>& values) {
  for (const double value : values) Collect(bits, value);
}

template <class Whole>
  requires(!std::floating_point<Whole>)
void Collect(std::vector<std::uint32_t>& bits, const std::vector<Whole>& values) {
  for (const Whole value : values) bits.push_back(static_cast<std::uint32_t>(value));
}

}  // namespace geomx::check
