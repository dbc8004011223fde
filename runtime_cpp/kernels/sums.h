// Sums of arrays, and sums over the elements of one.
//
// Sums of arrays are computed term by term, in the order of the terms. Sums over elements are
// computed in 16 lanes per run of at most kRun elements and then, in float64, run by run: a fixed
// order, the same for every instruction set and number of threads.
#pragma once

#include <cstddef>
#include <cstdint>

namespace geomx::kernels {

inline constexpr std::uint64_t kRun = 1024;

// sum[i] = ((sum[i] + terms[0][i]) + terms[1][i]) + ...: every array is read once.
void Add(float* sum, const float* const* terms, std::size_t count, std::uint64_t n);

// out[i] += the float32 at in + 4 i, which need not be aligned.
void AddBytes(const std::byte* in, float* out, std::uint64_t n);

double SumOfSquares(const float* values, std::uint64_t n);
double SumOfMagnitudes(const float* values, std::uint64_t n);

// Returns true if no value is NaN or infinite.
bool AllFinite(const float* values, std::uint64_t n);

struct Norms {
  double magnitudes = 0, squares = 0;

  Norms& operator+=(const Norms& more) {
    magnitudes += more.magnitudes;
    squares += more.squares;
    return *this;
  }
};
// Of a + b; `b` may be null.
Norms NormsOf(const float* a, const float* b, std::uint64_t n);

// Entries [first, first + count) of an array.
struct Range {
  std::uint64_t first, count;
};

// The contribution of each of several ranges, averaged over time: average <- alpha average + (1 -
// alpha) (mean magnitude of the range, 0 if empty).
void Contribute(const float* values, const Range* ranges, std::uint64_t count, double alpha,
                double* averages);

}  // namespace geomx::kernels
