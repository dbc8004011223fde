// Slicers cut a shard's encoded rows into messages with a priority and a channel.
//
// Slicers chain: each takes the list of slices and returns another that covers the same rows.
// Channel 0 is reliable and ordered. Channels 1 and up are best effort, 1 the most urgent: they use
// the bandwidth that channel 0 leaves, may lose messages, and never retransmit. A slice that does
// not arrive in its round counts as zero there; if it arrives later it is added once, to the next
// round.
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
  bool survives_holes;   // false: all slices must stay on channel 0
  double loss_ratio;     // the party's last training loss over its first; NaN where unknown
};

class Slicer {
 public:
  virtual ~Slicer() = default;
  // Replaces `slices`, in the order in which they should leave.
  virtual void Cut(const SliceContext& context, std::vector<Slice>& slices) = 0;
  // Returns true if all rounds are cut alike.
  virtual bool Constant() const { return false; }
  // As Codec::Exchange.
  virtual void Exchange(Archive& archive) {
    (void)archive;
    if (!Constant()) Archive::CannotTell("a slicer");
  }
};

class SlicerFactory {
 public:
  virtual ~SlicerFactory() = default;
  virtual std::unique_ptr<Slicer> Make(const ShardInfo& shard) const = 0;
};

}  // namespace geomx
