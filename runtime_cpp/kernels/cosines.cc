#include "kernels/cosines.h"

#include <cmath>
#include <numbers>

#include "kernels/loops.h"

namespace geomx::kernels {
namespace {

CosineFactors Compute() {
  CosineFactors factors{};
  for (unsigned half = 1; half < kLongestSide; half *= 2) {
    for (unsigned i = 0; i < half; ++i) {
      const double angle = std::numbers::pi * (i + 0.5) / (2 * half);
      factors.halves[half + i] = static_cast<float>(0.5 / std::cos(angle));
    }
  }
  for (unsigned size = 1; size <= kLongestSide; size *= 2) {
    factors.first[size] = static_cast<float>(std::sqrt(1.0 / size));
    factors.others[size] = static_cast<float>(std::sqrt(2.0 / size));
  }
  return factors;
}

const CosineFactors& Factors() {
  static const CosineFactors factors = Compute();
  return factors;
}

}  // namespace

void CosineTransform(const Tile& tile, float* values) {
  TheLoops().cosines(Factors(), tile, values);
}

void InverseCosineTransform(const Tile& tile, float* values) {
  TheLoops().cosines_back(Factors(), tile, values);
}

}  // namespace geomx::kernels
