// What both directions of Bi-Sparse share: how many rows a round sends, which, and how they lie in
// the parts of an encoded shard.
#pragma once

#include <cstdint>
#include <vector>

#include "core/natives.h"
#include "kernels/sparse.h"

namespace geomx::bisparse {

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

// Fill the parts that Density::Layout made.
void Store(Parts& parts, const kernels::Entries& rows);

// Chooses the entries of largest magnitude in one pass: a threshold from a sample, everything above
// it as the pass goes by, and the largest of those. If the threshold let too few pass, an exact
// choice looks again, another takes some more entries, every time others.
class Selector {
 public:
  explicit Selector(const ShardInfo& shard)
      : salt_((std::uint64_t{shard.key} << 32) ^ shard.index) {}

  // Exactly `rows` of the `elements` entries of `values`; valid until the next call.
  //   peek(i): what entry i is going to be.
  //   pass(threshold, scratch, found): computes the entries, and finds those of that magnitude.
  template <class Peek, class Pass>
  const kernels::Entries& Select(const float* values, std::uint64_t elements, std::uint64_t rows,
                                 Round round, bool exact, Peek peek, Pass pass) {
    const double share = static_cast<double>(rows) / static_cast<double>(elements);
    const double size = kSampleRank / share;
    sample_.resize(size > static_cast<double>(elements) / 4 ? 0 : static_cast<std::size_t>(size));
    std::uint64_t state = salt_ ^ (std::uint64_t{round} << 20);
    for (float& value : sample_) {
      std::uint64_t hash = state += 0x9e3779b97f4a7c15u;
      hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9u;
      hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebu;
      value = peek((hash >> 32) * elements >> 32);
    }
    double rank = size * share;
    threshold_ = Threshold(rank);
    pass(threshold_, scratch_, chosen_);
    while (chosen_.size() < rows && exact && threshold_ > 1) {
      threshold_ = Threshold(rank *= 4);
      kernels::Find(values, elements, threshold_, scratch_, chosen_);
    }
    complete_ = threshold_ == 1 && chosen_.size() <= rows;
    if (chosen_.size() > rows) kernels::KeepLargest(chosen_, rows, numbers_);
    if (chosen_.size() < rows) FillUp(values, elements, rows);
    return chosen_;
  }

  // Whether the last choice is known to hold everything that is not zero.
  bool complete() const { return complete_; }

 private:
  static constexpr double kSampleRank = 32;  // of the threshold in the sample; more: finer, slower

  // A magnitude that rather more than fewer entries reach than `rank` of the sample do: two standard
  // deviations down. At least 1: zeros are never worth a row. 1 if the sample does not go so far.
  std::uint32_t Threshold(double rank);
  void FillUp(const float* values, std::uint64_t elements, std::uint64_t rows);

  std::uint64_t salt_;
  std::uint32_t threshold_ = 1;
  bool complete_ = false;
  std::uint64_t next_fill_ = 0;  // where filling up goes on
  std::vector<float> sample_;
  kernels::Entries chosen_;
  kernels::FindScratch scratch_;
  std::vector<std::uint32_t> numbers_;
};

}  // namespace geomx::bisparse
