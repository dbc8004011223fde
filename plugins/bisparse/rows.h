// Shared by both codecs of Bi-Sparse: the number of rows that a round sends, and their layout in the
// parts of an encoded shard. kernels/selector.h chooses the rows.
#pragma once

#include <cstdint>

#include "core/natives.h"
#include "kernels/selector.h"

namespace geomx::bisparse {

// The number of rows of a shard that are sent in a round, and their format: values, and indices of
// ceil(log2 elements) bits.
class Density {
 public:
  // `times` multiplies the number of rows that option `ratio` gives.
  Density(const Options& options, std::uint64_t times);

  // Returns the share of the elements that is sent in `round`, not multiplied by `times`. It falls from
  // 25 % to the ratio in equal factors over the first `warmup_rounds`, as in DGC.
  double Share(Round round) const;
  // Returns the number of rows in `round`, 1 to `elements`.
  std::uint64_t Rows(std::uint64_t elements, Round round) const;

  // Changes the parts of a dense float32 shard to those of its selected rows. Returns false, and changes
  // nothing, in rounds that send all values: the last one with option `flush`, and those in which rows
  // with indices would take more bytes.
  bool Layout(Parts& parts) const;
  bool flush() const { return flush_; }

 private:
  double ratio_;
  Round warmup_rounds_;
  bool flush_;
  std::uint64_t times_;
};

// Returns whether `parts` are a dense shard of float32. Only such parts can be made sparse.
bool IsDense(const Parts& parts);

// Unpacks the indices to 32 bits, which sums need.
void Expand(Parts& parts);

// Fills the parts that Density::Layout added.
void Store(Parts& parts, const kernels::Entries& rows);

// Returns the seed for the sample from which a round's threshold is estimated.
std::uint64_t Seed(const ShardInfo& shard, Round round);

}  // namespace geomx::bisparse
