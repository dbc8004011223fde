#include "rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/bits.h"

namespace geomx::bisparse {
namespace {

constexpr double kFirstShare = 0.25;  // share of the elements that is sent when a warm-up begins

std::uint32_t IndexBits(std::uint64_t elements) {
  return std::max(1, static_cast<int>(std::bit_width(elements - 1)));
}

}  // namespace

Density::Density(const Options& options, std::uint64_t times)
    : ratio_(Require(options, "ratio")),
      warmup_rounds_(static_cast<Round>(Require(options, "warmup_rounds"))),
      flush_(Require(options, "flush") != 0),
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
  if (flush_ && parts.last) return false;
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

std::uint64_t Seed(const ShardInfo& shard, Round round) {
  return (std::uint64_t{shard.key} << 32) ^ shard.index ^ (std::uint64_t{round} << 20);
}

}  // namespace geomx::bisparse
