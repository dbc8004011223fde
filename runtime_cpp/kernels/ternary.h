// Values of three levels, -s, 0 and s, as codes of two bits: 11 is s, 10 is -s, 00 (and 01) is
// nothing, the first value in the two top bits of its byte. What is not said is kept.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/sums.h"

#ifdef __CUDACC__
#define GEOMX_ANYWHERE __host__ __device__
#else
#define GEOMX_ANYWHERE
#endif

namespace geomx::kernels {

struct Ternary {
  float scale;      // s
  float threshold;  // magnitudes below it say nothing; NaN is below nothing, and speaks
};

// residual <- residual + added (nothing if null), then its codes, whose worth is taken off. Writes
// (n + 3) / 4 bytes; what is left over of the last says nothing.
void Quantise(const Ternary& ternary, const float* added, float* residual, std::byte* codes,
              std::uint64_t n);

// The level whose -s, 0 and s lie nearest to values of these norms, if they are Laplace distributed: 0
// where all is zero, NaN where anything is.
GEOMX_ANYWHERE inline float LevelFor(const Norms& norms) {
  return norms.magnitudes == 0 ? 0.0f : static_cast<float>(norms.squares / norms.magnitudes);
}

// Quantise to the level for residual + added, with half of it as the threshold. Returns the level.
float QuantiseToLevel(const float* added, float* residual, std::byte* codes, std::uint64_t n);

// What `n` codes are worth, stored into `out` or added to it.
void Worth(float scale, const std::byte* codes, float* out, std::uint64_t n);
void WorthAdd(float scale, const std::byte* codes, float* out, std::uint64_t n);

}  // namespace geomx::kernels
