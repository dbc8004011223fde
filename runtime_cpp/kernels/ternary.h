// Values of three levels, -s, 0 and s, as codes of two bits: 11 is s, 10 is -s, 00 (and 01) is
// nothing, the first value in the two top bits of its byte. What is not said is kept.
#pragma once

#include <cstddef>
#include <cstdint>

namespace geomx::kernels {

struct Ternary {
  float scale;      // s
  float threshold;  // magnitudes below it say nothing; NaN is below nothing, and speaks
};

// residual <- residual + added (nothing if null), then its codes, whose worth is taken off. Writes
// (n + 3) / 4 bytes; what is left over of the last says nothing.
void Quantise(const Ternary& ternary, const float* added, float* residual, std::byte* codes,
              std::uint64_t n);

// What `n` codes are worth, stored into `out` or added to it.
void Worth(float scale, const std::byte* codes, float* out, std::uint64_t n);
void WorthAdd(float scale, const std::byte* codes, float* out, std::uint64_t n);

}  // namespace geomx::kernels
