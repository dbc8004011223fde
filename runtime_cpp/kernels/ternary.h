// Values of three levels, -s, 0 and s, as codes of two bits: 11 is s, 10 is -s, 00 (and 01) is 0;
// the first value is in the two top bits of its byte. The difference to the exact value is kept as
// a residual, if it is finite.
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
  float threshold;  // magnitudes below it give code 00, and so does NaN, unless the scale is NaN
};

// residual <- residual + added (if not null), encodes it, and subtracts the codes' values. Writes
// (n + 3) / 4 bytes, the last one filled up with 00.
void Quantise(const Ternary& ternary, const float* added, float* residual, std::byte* codes,
              std::uint64_t n);

// The level s with the least error for values of these norms, if they are Laplace distributed: 0 if
// all are zero, NaN if any is.
GEOMX_ANYWHERE inline float LevelFor(const Norms& norms) {
  return norms.magnitudes == 0 ? 0.0f : static_cast<float>(norms.squares / norms.magnitudes);
}

// Quantise to the level for residual + added, with half of it as the threshold. Returns the level.
float QuantiseToLevel(const float* added, float* residual, std::byte* codes, std::uint64_t n);

// Stores the values of `n` codes into `out`, or adds them to it.
void Worth(float scale, const std::byte* codes, float* out, std::uint64_t n);
void WorthAdd(float scale, const std::byte* codes, float* out, std::uint64_t n);

}  // namespace geomx::kernels
