// What both directions of Bi-Sparse share: how many rows a round sends, and how they lie in the parts
// of an encoded shard. Which rows those are is chosen by kernels/selector.h.
#pragma once

#include <cstdint>

#include "core/natives.h"
#include "kernels/selector.h"

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

// Indices back to 32 bits, for adding the rows up.
void Expand(Parts& parts);

// Fill the parts that Density::Layout made.
void Store(Parts& parts, const kernels::Entries& rows);

// What a round's sample is drawn by.
std::uint64_t Seed(const ShardInfo& shard, Round round);

}  // namespace geomx::bisparse
