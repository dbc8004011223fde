#include "kernels/selector.h"

#include <algorithm>

#include "kernels/sums.h"

namespace geomx::kernels {

std::uint32_t Selector::Threshold(double rank) {
  const std::uint64_t at = Sampling::Rank(rank);
  if (at >= sample_.size()) return 1;
  return std::max(1u, MagnitudeOfRank(sample_.data(), sample_.size(), at, numbers_));
}

void Selector::FillUp(const float* values, std::uint64_t elements, std::uint64_t rows) {
  std::vector<std::uint32_t>& indices = chosen_.indices;
  const std::size_t before = indices.size();
  indices.reserve(rows);
  next_fill_ %= elements;
  std::size_t ahead = static_cast<std::size_t>(
      std::lower_bound(indices.begin(), indices.end(), next_fill_) - indices.begin());
  while (indices.size() < rows) {
    if (ahead < before && indices[ahead] == next_fill_) {
      ++ahead;
    } else {
      indices.push_back(static_cast<std::uint32_t>(next_fill_));
    }
    if (++next_fill_ == elements) next_fill_ = ahead = 0;
  }
  const auto added = indices.begin() + static_cast<std::ptrdiff_t>(before);
  std::sort(added, indices.end());
  std::inplace_merge(indices.begin(), added, indices.end());
  chosen_.values.resize(rows);
  for (std::uint64_t row = 0; row < rows; ++row) chosen_.values[row] = values[indices[row]];
}

float ClipScale(double clip, const float* term, std::uint64_t n) {
  if (!(clip > 0)) return 1;
  const double norm = std::sqrt(SumOfSquares(term, n));
  return norm > clip ? static_cast<float>(clip / norm) : 1.0f;
}

const Entries& Sparsify(const Sparsification& how, const float* term, float* velocity, float* sum,
                        std::uint64_t n, std::uint64_t rows, Selector& selector) {
  const Accumulation step{.scale = ClipScale(how.clip, term, n), .momentum = how.momentum};
  const auto peek = [=](std::uint64_t i) {
    return sum[i] + (velocity != nullptr ? step.Step(term[i], velocity[i]) : step.Step(term[i]));
  };
  const auto pass = [&](std::uint32_t threshold, FindScratch& scratch, Entries& found) {
    Accumulate(step, term, velocity, sum, n, threshold, scratch, found);
  };
  const Entries& chosen = selector.Select(sum, n, rows, how.seed, how.exact, peek, pass);
  for (const std::uint32_t row : chosen.indices) sum[row] = 0;
  if (velocity != nullptr && how.masking) {
    for (const std::uint32_t row : chosen.indices) velocity[row] = 0;
  }
  return chosen;
}

}  // namespace geomx::kernels
