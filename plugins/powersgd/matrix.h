// A shard as a matrix, and its products with thin matrices, whose columns are stored one after the other.
//
// Sums have a fixed order: the same bits with any number of threads.
#pragma once

#include <cstdint>
#include <vector>

namespace geomx::powersgd {

// The matrix M of a shard: its values in row-major order, ended with zeros.
struct Shape {
  std::uint64_t rows = 1, columns = 1, rank = 1;  // rank: columns of the thin matrices

  std::uint64_t longer() const { return rows > columns ? rows : columns; }
};

// Returns the shape for a shard of `elements` values, and for `rank` columns at most.
//
// The matrix is about square, as thin matrices are then shortest: no side is longer than twice the root of
// the size. The shape of the tensor is unknown, but its sides often have powers of two as factors. Of the
// divisors of the size that are possible, the number of columns is therefore one with many factors of two,
// so that a row of the matrix is a part of a row of the tensor, or consists of such parts: then a tensor of
// low rank is a matrix of low rank, which it would not be with rows of any length. Sizes without such
// divisors are ended with zeros.
Shape ShapeOf(std::uint64_t elements, std::uint64_t rank);

// u = M v, for v of `columns` and u of `rows` entries in each of `rank` columns.
void TimesColumns(const Shape& shape, const float* matrix, std::uint64_t elements, const float* v,
                  float* u);
// v = M' u.
void TimesRows(const Shape& shape, const float* matrix, std::uint64_t elements, const float* u,
               float* v);

enum class Into { kStore, kAdd, kSubtract };

// Stores u v' in `out`, adds it, or subtracts it; what is not finite after a subtraction becomes 0.
void Product(const Shape& shape, const float* u, const float* v, std::uint64_t elements, Into into,
             float* out);

// Replaces `rank` columns of `length` by an orthonormal basis of their span. Directions drawn by `seed`
// take the place of columns that depend on the earlier ones, or are not finite. By Gram-Schmidt in float64.
// REQUIRES: rank <= length.
void Orthonormalise(std::vector<float>& columns, std::uint64_t length, std::uint64_t rank,
                    std::uint64_t seed);

}  // namespace geomx::powersgd
