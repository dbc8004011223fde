#include "matrix.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "kernels/thread_pool.h"

namespace geomx::powersgd {
namespace {

constexpr std::uint64_t kLanes = 16;
constexpr std::uint64_t kBand = 256;  // columns that one task works on

std::uint64_t RootOf(std::uint64_t n) {
  auto root = static_cast<std::uint64_t>(std::sqrt(static_cast<double>(n)));
  while (root * root < n) ++root;
  return root;
}

float Dot(const float* a, const float* b, std::uint64_t n) {
  std::array<float, kLanes> sums{};
  std::uint64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (std::uint64_t lane = 0; lane < kLanes; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  }
  for (; i < n; ++i) sums[i % kLanes] += a[i] * b[i];
  float total = 0;
  for (const float sum : sums) total += sum;
  return total;
}

double Dot(const std::vector<double>& a, const std::vector<double>& b) {
  double total = 0;
  for (std::size_t i = 0; i < a.size(); ++i) total += a[i] * b[i];
  return total;
}

// Draws from [-1, 1): splitmix64 (Steele, Lea and Flood, 2014).
class Drawn {
 public:
  explicit Drawn(std::uint64_t seed) : state_(seed) {}

  double Next() {
    std::uint64_t x = state_ += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return static_cast<double>((x ^ (x >> 31)) >> 11) * 0x1p-52 - 1;
  }

 private:
  std::uint64_t state_;
};

// The elements of the row `row`: fewer in the last one.
std::uint64_t InRow(const Shape& shape, std::uint64_t row, std::uint64_t elements) {
  const std::uint64_t first = row * shape.columns;
  return first >= elements ? 0 : std::min(shape.columns, elements - first);
}

}  // namespace

Shape ShapeOf(std::uint64_t elements, std::uint64_t rank) {
  const std::uint64_t root = RootOf(std::max<std::uint64_t>(1, elements));
  const int enough = std::bit_width(root) - 1;  // twos: more would only make it less square
  std::uint64_t columns = root;
  int best = -1;
  // A divisor and its partner lie on both sides of the root.
  for (std::uint64_t low = root; low >= 1 && 2 * low >= root; --low) {
    if (elements % low != 0) continue;
    for (const std::uint64_t each : {low, elements / low}) {
      if (each > 2 * root) continue;
      const int twos = std::min(enough, std::countr_zero(each));
      if (twos > best) {
        best = twos;
        columns = each;
      }
    }
  }
  Shape shape;
  shape.columns = columns;
  shape.rows = std::max<std::uint64_t>(1, (elements + columns - 1) / columns);
  shape.rank = std::min({rank, shape.rows, shape.columns});
  return shape;
}

void TimesColumns(const Shape& shape, const float* matrix, std::uint64_t elements, const float* v,
                  float* u) {
  kernels::ForItems(shape.rows, shape.columns, [&](std::uint64_t row) {
    const std::uint64_t count = InRow(shape, row, elements);
    for (std::uint64_t k = 0; k < shape.rank; ++k) {
      u[k * shape.rows + row] = Dot(matrix + row * shape.columns, v + k * shape.columns, count);
    }
  });
}

void TimesRows(const Shape& shape, const float* matrix, std::uint64_t elements, const float* u,
               float* v) {
  const std::uint64_t bands = (shape.columns + kBand - 1) / kBand;
  kernels::ForItems(bands, kBand * shape.rows, [&](std::uint64_t band) {
    const std::uint64_t first = band * kBand, end = std::min(shape.columns, first + kBand);
    for (std::uint64_t k = 0; k < shape.rank; ++k) {
      std::fill(v + k * shape.columns + first, v + k * shape.columns + end, 0.0f);
    }
    for (std::uint64_t row = 0; row < shape.rows; ++row) {
      const float* values = matrix + row * shape.columns;
      const std::uint64_t last = std::min(end, InRow(shape, row, elements));
      for (std::uint64_t k = 0; k < shape.rank; ++k) {
        const float factor = u[k * shape.rows + row];
        float* out = v + k * shape.columns;
        for (std::uint64_t i = first; i < last; ++i) out[i] += factor * values[i];
      }
    }
  });
}

void Product(const Shape& shape, const float* u, const float* v, std::uint64_t elements, Into into,
             float* out) {
  kernels::ForItems(shape.rows, shape.columns, [&](std::uint64_t row) {
    const std::uint64_t count = InRow(shape, row, elements);
    for (std::uint64_t first = 0; first < count; first += kBand) {
      const std::uint64_t few = std::min(kBand, count - first);
      std::array<float, kBand> sums{};
      for (std::uint64_t k = 0; k < shape.rank; ++k) {
        const float factor = u[k * shape.rows + row];
        const float* column = v + k * shape.columns + first;
        for (std::uint64_t i = 0; i < few; ++i) sums[i] += factor * column[i];
      }
      float* target = out + row * shape.columns + first;
      switch (into) {
        case Into::kStore: std::copy_n(sums.begin(), few, target); break;
        case Into::kAdd:
          for (std::uint64_t i = 0; i < few; ++i) target[i] += sums[i];
          break;
        case Into::kSubtract:
          for (std::uint64_t i = 0; i < few; ++i) {
            const float left = target[i] - sums[i];
            target[i] = std::isfinite(left) ? left : 0;
          }
          break;
      }
    }
  });
}

void Orthonormalise(std::vector<float>& columns, std::uint64_t length, std::uint64_t rank,
                    std::uint64_t seed) {
  constexpr int kTries = 8;             // a drawn direction is dependent with probability 0
  constexpr double kDependent = 1e-4;   // what is left of a column: more than rounding errors of float32
  Drawn drawn(seed);
  std::vector<std::vector<double>> basis;
  for (std::uint64_t k = 0; k < rank; ++k) {
    float* values = columns.data() + k * length;
    std::vector<double> column(values, values + length);
    double left = 0;
    for (int i = 0; i < kTries; ++i) {
      const double size = std::sqrt(Dot(column, column));
      for (int twice = 0; twice < 2; ++twice) {  // again, to remove rounding errors
        for (const auto& earlier : basis) {
          const double along = Dot(earlier, column);
          for (std::uint64_t j = 0; j < length; ++j) column[j] -= along * earlier[j];
        }
      }
      left = std::sqrt(Dot(column, column));
      if (std::isfinite(left) && left > kDependent * size && left > 0) break;
      for (double& value : column) value = drawn.Next();
    }
    for (std::uint64_t j = 0; j < length; ++j) {
      column[j] /= left;
      values[j] = static_cast<float>(column[j]);
    }
    basis.push_back(std::move(column));
  }
}

}  // namespace geomx::powersgd
