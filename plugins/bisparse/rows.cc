#include "rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "core/bits.h"

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

void Store(Parts& parts, const float* values, const std::vector<std::uint32_t>& indices) {
  std::byte* kept = parts.Allocate(parts.rows * sizeof(float));
  auto* out = reinterpret_cast<float*>(kept);
  for (std::size_t row = 0; row < indices.size(); ++row) out[row] = values[indices[row]];
  Part* where = parts.Find("indices");
  std::byte* packed = parts.Allocate(where->BytesFor(parts.rows));
  PackBits(indices.data(), parts.rows, where->bits, packed);
  where->data = packed;
  parts.Find("values")->data = kept;
}

void Selector::Collect(std::uint64_t first, std::uint64_t count) {
  // Few entries pass: a byte for each, by vector instructions, then eight of them at a glance.
  alignas(8) std::uint8_t passes[kBlock];
  std::uint32_t found[kBlock];
  std::size_t hits = 0;
  const auto threshold = static_cast<std::int32_t>(threshold_);  // both sides have 31 bits
  for (std::uint64_t i = 0; i < count; ++i) {
    passes[i] = static_cast<std::int32_t>(magnitudes_[i]) >= threshold;
  }
  std::fill(passes + count, passes + (count + 7) / 8 * 8, std::uint8_t{0});
  for (std::uint64_t at = 0; at < count; at += 8) {
    std::uint64_t eight;
    std::memcpy(&eight, passes + at, sizeof eight);
    for (; eight != 0; eight &= eight - 1) {
      found[hits++] = static_cast<std::uint32_t>(
          first + at + static_cast<std::uint64_t>(std::countr_zero(eight)) / 8);
    }
  }
  chosen_.insert(chosen_.end(), found, found + hits);
}

std::uint32_t Selector::RankedMagnitude(double rank) {
  const double cautious = rank + 2 * std::sqrt(rank);
  const auto at = std::min(static_cast<std::size_t>(cautious), sample_.size() - 1);
  std::nth_element(sample_.begin(), sample_.begin() + static_cast<std::ptrdiff_t>(at),
                   sample_.end(), std::greater<>());
  return std::max(1u, sample_[at]);
}

void Selector::LookAgain(const float* values) {
  threshold_ = 1;
  chosen_.clear();
  for (std::uint64_t first = 0; first < elements_; first += kBlock) {
    const std::uint64_t count = std::min<std::uint64_t>(kBlock, elements_ - first);
    for (std::uint64_t i = 0; i < count; ++i) magnitudes_[i] = Magnitude(values[first + i]);
    Collect(first, count);
  }
}

void Selector::KeepLargest(const float* values, std::uint64_t rows) {
  sample_.resize(chosen_.size());
  for (std::size_t i = 0; i < chosen_.size(); ++i) sample_[i] = Magnitude(values[chosen_[i]]);
  const auto last = sample_.begin() + static_cast<std::ptrdiff_t>(rows - 1);
  std::nth_element(sample_.begin(), last, sample_.end(), std::greater<>());
  const std::uint32_t least = *last;
  const auto above = std::count_if(sample_.begin(), last,
                                   [least](std::uint32_t magnitude) { return magnitude > least; });
  std::uint64_t equal = rows - static_cast<std::uint64_t>(above);  // of those, the first
  std::size_t kept = 0;
  for (const std::uint32_t index : chosen_) {
    const std::uint32_t magnitude = Magnitude(values[index]);
    if (magnitude < least || (magnitude == least && equal == 0)) continue;
    if (magnitude == least) --equal;
    chosen_[kept++] = index;
  }
  chosen_.resize(kept);
}

void Selector::FillUp(std::uint64_t rows) {
  const std::size_t before = chosen_.size();
  chosen_.reserve(rows);
  next_fill_ %= elements_;
  std::size_t ahead = static_cast<std::size_t>(
      std::lower_bound(chosen_.begin(), chosen_.end(), next_fill_) - chosen_.begin());
  while (chosen_.size() < rows) {
    if (ahead < before && chosen_[ahead] == next_fill_) {
      ++ahead;
    } else {
      chosen_.push_back(static_cast<std::uint32_t>(next_fill_));
    }
    if (++next_fill_ == elements_) next_fill_ = ahead = 0;
  }
  std::sort(chosen_.begin() + static_cast<std::ptrdiff_t>(before), chosen_.end());
  std::inplace_merge(chosen_.begin(), chosen_.begin() + static_cast<std::ptrdiff_t>(before),
                     chosen_.end());
}

}  // namespace geomx::bisparse
