#include "rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/bits.h"

namespace geomx::bisparse {
namespace {

constexpr double kFirstShare = 0.25;  // of a warm-up

std::uint32_t IndexBits(std::uint64_t elements) {
  return std::max(1, static_cast<int>(std::bit_width(elements - 1)));
}

}  // namespace

Density::Density(const Options& options, std::uint64_t times)
    : ratio_(Require(options, "ratio")),
      warmup_rounds_(static_cast<Round>(Require(options, "warmup_rounds"))),
      times_(times) {
  if (!(ratio_ > 0 && ratio_ <= 1)) throw std::invalid_argument("ratio must be above 0, up to 1");
}

double Density::Share(Round round) const {
  if (round > warmup_rounds_ || warmup_rounds_ == 0 || ratio_ >= kFirstShare) return ratio_;
  const double done = (std::max(1.0, static_cast<double>(round)) - 1) / warmup_rounds_;
  return kFirstShare * std::pow(ratio_ / kFirstShare, done);
}

std::uint64_t Density::Rows(std::uint64_t elements, Round round) const {
  const auto rows = static_cast<std::uint64_t>(static_cast<double>(elements) * Share(round));
  return std::min(elements, std::max<std::uint64_t>(1, rows) * times_);
}

bool Density::Layout(Parts& parts) const {
  const std::uint32_t bits = IndexBits(parts.elements);
  const std::uint64_t rows = Rows(parts.elements, parts.round);
  if (rows * (32 + bits) >= parts.elements * 32) return false;
  parts.rows = rows;
  parts.parts.push_back({.name = "indices", .bits = bits});
  return true;
}

bool IsDense(const Parts& parts) {
  const Part* values = parts.Find("values");
  return values != nullptr && values->bits == 32 && !values->whole &&
         parts.Find("indices") == nullptr && parts.rows == parts.elements;
}

void Expand(Parts& parts) {
  Part* indices = parts.Find("indices");
  if (indices == nullptr || indices->bits == 32) return;
  std::byte* wide = parts.Allocate(parts.rows * sizeof(std::uint32_t));
  UnpackBits(indices->data, parts.rows, indices->bits, reinterpret_cast<std::uint32_t*>(wide));
  indices->data = wide;
  indices->bits = 32;
}

void Store(Parts& parts, const kernels::Entries& rows) {
  std::byte* kept = parts.Allocate(parts.rows * sizeof(float));
  std::memcpy(kept, rows.values.data(), parts.rows * sizeof(float));
  Part* where = parts.Find("indices");
  std::byte* packed = parts.Allocate(where->BytesFor(parts.rows));
  PackBits(rows.indices.data(), parts.rows, where->bits, packed);
  where->data = packed;
  parts.Find("values")->data = kept;
}

std::uint32_t Selector::Threshold(double rank) {
  const auto at = static_cast<std::size_t>(rank + 2 * std::sqrt(rank));
  if (at >= sample_.size()) return 1;
  return std::max(1u, kernels::MagnitudeOfRank(sample_.data(), sample_.size(), at, numbers_));
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

}  // namespace geomx::bisparse
