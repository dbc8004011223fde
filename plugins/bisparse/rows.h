// What both directions of Bi-Sparse share: how many rows a round sends, which, and how they lie in
// the parts of an encoded shard.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "core/natives.h"

namespace geomx::bisparse {

// Orders values as their absolute values do, and NaN above all, so that it travels and is noticed.
inline std::uint32_t Magnitude(float value) {
  return std::bit_cast<std::uint32_t>(value) & 0x7fffffffu;
}

// How many rows a shard sends in a round, and the form they have: values, and indices of
// ceil(log2 elements) bits.
class Density {
 public:
  // `times` as many rows as `ratio` asks for.
  Density(const Options& options, std::uint64_t times);

  // The share of the elements in `round`, before `times`: from 25 % down to the ratio in equal
  // factors over the first `warmup_rounds`, as in DGC.
  double Share(Round round) const;
  std::uint64_t Rows(std::uint64_t elements, Round round) const;

  // Turn the parts of a dense float32 shard into those of its chosen rows. False, and nothing
  // changes, where rows with indices would take more bytes than all values.
  bool Layout(Parts& parts) const;

 private:
  double ratio_;
  Round warmup_rounds_;
  std::uint64_t times_;
};

// Whether `parts` are a dense shard of float32: what can be made sparse.
bool IsDense(const Parts& parts);

// Indices back to 32 bits, for whoever adds the rows up.
void Expand(Parts& parts);

// Fill the parts that Density::Layout made with the entries of `values` at `indices`.
void Store(Parts& parts, const float* values, const std::vector<std::uint32_t>& indices);

// Chooses the entries of largest magnitude in one pass: a threshold from a sample, everything above
// it as the pass goes by, and the largest of those. If the threshold let too few pass, an exact
// choice looks again, another takes some more entries, every time others.
class Selector {
 public:
  explicit Selector(const ShardInfo& shard)
      : salt_((std::uint64_t{shard.key} << 32) ^ shard.index) {}

  // Exactly `rows` indices below `elements`, ascending; valid until the next call.
  //   peek(i): the magnitude that entry i is going to have.
  //   pass(first, count, magnitudes): compute entries [first, first + count) of `values`, and their
  //     magnitudes. Called once for every entry, at most kBlock at a time.
  template <class Peek, class Pass>
  const std::vector<std::uint32_t>& Select(const float* values, std::uint64_t elements,
                                           std::uint64_t rows, Round round, bool exact, Peek peek,
                                           Pass pass) {
    elements_ = elements;
    threshold_ = Threshold(rows, round, peek);
    chosen_.clear();
    for (std::uint64_t first = 0; first < elements; first += kBlock) {
      const std::uint64_t count = std::min<std::uint64_t>(kBlock, elements - first);
      pass(first, count, magnitudes_);
      Collect(first, count);
    }
    if (chosen_.size() < rows && exact && threshold_ > 1) LookAgain(values);
    complete_ = threshold_ == 1 && chosen_.size() <= rows;
    if (chosen_.size() > rows) KeepLargest(values, rows);
    if (chosen_.size() < rows) FillUp(rows);
    return chosen_;
  }

  // Whether the last choice is known to hold everything that is not zero.
  bool complete() const { return complete_; }

  static constexpr std::uint64_t kBlock = 1024;

 private:
  // Magnitude that about `rows` entries reach, rather more than fewer: that of the sample's entry of
  // the same rank, two standard deviations down. At least 1: zeros are never worth a row.
  template <class Peek>
  std::uint32_t Threshold(std::uint64_t rows, Round round, Peek peek) {
    const double share = static_cast<double>(rows) / static_cast<double>(elements_);
    const double size = kSampleRank / share;
    if (size > static_cast<double>(elements_) / 4) return 1;
    sample_.resize(static_cast<std::size_t>(size));
    std::uint64_t state = salt_ ^ (std::uint64_t{round} << 20);
    for (std::uint32_t& magnitude : sample_) {
      std::uint64_t hash = state += 0x9e3779b97f4a7c15u;
      hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9u;
      hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebu;
      magnitude = peek((hash >> 32) * elements_ >> 32);
    }
    return RankedMagnitude(size * share);
  }

  static constexpr double kSampleRank = 32;  // of the threshold in the sample; more: finer, slower

  void Collect(std::uint64_t first, std::uint64_t count);
  std::uint32_t RankedMagnitude(double rank);
  void LookAgain(const float* values);
  void KeepLargest(const float* values, std::uint64_t rows);
  void FillUp(std::uint64_t rows);

  std::uint64_t salt_;
  std::uint64_t elements_ = 0;
  std::uint32_t threshold_ = 1;
  bool complete_ = false;
  std::uint64_t next_fill_ = 0;  // where filling up goes on
  std::uint32_t magnitudes_[kBlock];
  std::vector<std::uint32_t> chosen_, sample_;
};

}  // namespace geomx::bisparse
