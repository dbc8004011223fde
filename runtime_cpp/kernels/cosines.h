// Orthonormal cosine transforms of small matrices: DCT-II along both dimensions, and its inverse.
//
//   X(k, l) = s(k) s(l) sum of x(i, j) cos(pi (i + 1/2) k / height) cos(pi (j + 1/2) l / width),
//   s(0) = sqrt(1 / size), all other s = sqrt(2 / size)
//
// B. G. Lee, "A new algorithm to compute the discrete cosine transform", IEEE Transactions on Acoustics,
// Speech, and Signal Processing, 1984: a transform of n values is two of n / 2, so that a value of 64 x 64
// takes about 30 operations. The order of the operations is fixed.
#pragma once

#include <cstddef>

namespace geomx::kernels {

inline constexpr unsigned kLongestSide = 64;

// Both sides are powers of two, 1 to kLongestSide.
struct Tile {
  unsigned height = 1, width = 1;

  std::size_t size() const { return std::size_t{height} * width; }
};

// In place. x is in row-major order, X in column-major order: X(k, l) at l height + k, which saves one of
// two transpositions. Any thread.
void CosineTransform(const Tile& tile, float* values);
void InverseCosineTransform(const Tile& tile, float* values);

}  // namespace geomx::kernels
