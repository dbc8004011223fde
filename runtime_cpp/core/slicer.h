// How it is sent: slicers cut a shard's encoded rows into messages with a priority and a channel.
//
// Slicers chain: each takes the list of slices and returns another that covers the same rows.
// Channel 0 is reliable and ordered; channels 1 and up are best effort, 1 the most urgent: they get
// what channel 0 leaves, may lose messages, and nothing is sent again. A slice that does not arrive
// in its round counts as zero there; if it arrives later it is added once, to the next round.
#pragma once

#include <cmath>
#include <memory>
#include <vector>

#include "core/codec.h"
#include "core/types.h"

namespace geomx {

struct Slice {
  std::uint32_t first_row = 0;
  std::uint32_t rows = 0;
  std::int32_t priority = 0;
  std::uint8_t channel = 0;
};

struct SliceContext {
  const ShardInfo& shard;
  Round round;
  const Parts& encoded;  // data is null when sizes alone are simulated
  bool survives_holes;   // false: everything must stay on channel 0
  double loss_ratio;     // the party's last training loss over its first; NaN where unknown
};

class Slicer {
 public:
  virtual ~Slicer() = default;
  // Replace `slices`, in the order in which they should leave.
  virtual void Cut(const SliceContext& context, std::vector<Slice>& slices) = 0;
  // Whether it cuts every round alike, whatever its number.
  virtual bool Constant() const { return false; }
};

class SlicerFactory {
 public:
  virtual ~SlicerFactory() = default;
  virtual std::unique_ptr<Slicer> Make(const ShardInfo& shard) const = 0;
};

}  // namespace geomx
