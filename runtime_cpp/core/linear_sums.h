// Sums of pushes that linear codecs encoded: they stay encoded until the sum is complete.
//
// Where all codecs of a link are linear, encoded pushes are added as they arrive, and the sum is
// decoded once (Decoded). Where updates happen at the parties, a global server's answer is such a
// sum, and a local server decodes it with the codecs that encoded its own push (Settled).
#pragma once

#include <cstdint>
#include <optional>

#include "core/flow.h"
#include "core/inbox.h"
#include "core/message.h"
#include "core/node_state.h"

namespace geomx {

class LinearSums {
 public:
  // Both outlive this.
  LinearSums(NodeState& state, FlowTable& flows) : state_(state), flows_(flows) {}

  // A push from `header.source`, or a sum of such pushes, as a dense vector; empty if phantom.
  Buffer Decoded(const Header& header, Buffer value);
  // Bytes of the vector that is added for such a push.
  std::uint64_t AddedBytes(const Header& header);
  // Decodes the sum that includes this local server's push, and passes it to the codecs' Settle.
  // Returns nothing if there was no such push.
  std::optional<Buffer> Settled(const Header& header, const Buffer& sum);

 private:
  // Returns the codecs of a flow; null if it was never used.
  CodecChain* Chain(const FlowId& id);

  NodeState& state_;
  FlowTable& flows_;
};

}  // namespace geomx
