// A node's flows: one shard's traffic with one peer in one direction.
//
// A flow has an inbox, which puts arriving slices together, and a pipeline: the codecs and slicers
// that its values go through, with all that these remember from round to round. Both are made when the
// flow is first used and stay where they are for the node's lifetime. Traffic that nothing encodes or
// slices shares one pipeline, which has no state.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/codec.h"
#include "core/event.h"
#include "core/flat_map.h"
#include "core/inbox.h"
#include "core/message.h"
#include "core/node_config.h"
#include "core/peers.h"
#include "core/slicer.h"
#include "core/types.h"

namespace geomx {

struct FlowId {
  NodeId peer;
  Direction direction;
  bool plain;  // not encoded: initial values, and requested ones
  Key key;
  std::uint32_t shard;
  auto operator<=>(const FlowId&) const = default;
};

// The flow that a transfer from or to `peer` belongs to.
inline FlowId FlowOf(NodeId peer, const Header& header) {
  return {peer, DirectionOf(header), (header.flags & kPlain) != 0, header.key, header.shard};
}

// What is done to a flow's values on their way.
struct Pipeline {
  const LinkPlan* link;
  ShardInfo shard = {};
  CodecChain chain = {};
  bool sums = false;  // values: sums of pushes that linear codecs made, still in that form
  bool keep = false;  // values: stay encoded
  std::vector<std::unique_ptr<Slicer>> slicers = {};
  Time close_at = kNever;              // when to stop waiting for best-effort slices
  std::uint64_t bytes = 0;             // of the round, as they crossed the wire
  std::vector<Message> messages = {};  // of the round, if they will be handed on
};

struct Flow {
  Inbox inbox;
  std::unique_ptr<Pipeline> pipeline;  // null: the shared one, without state
};

class FlowTable {
 public:
  // Both outlive this.
  FlowTable(const NodeConfig& config, const Peers& peers);

  Flow& Get(const FlowId& id, const ShardInfo& shard);
  Flow* Find(const FlowId& id) { return flows_.Find(id); }  // null if it was never used
  Pipeline& PipelineOf(Flow& flow) { return flow.pipeline ? *flow.pipeline : shared_; }
  // The pipeline of values that leave. Makes no flow where the shared one will do.
  Pipeline& Outgoing(const FlowId& id, const ShardInfo& shard);
  // Whether any flow's codecs are linear.
  bool linear() const { return linear_; }

  // Values of a shard that come from `peer` stay encoded from the next round on, if a device can
  // decode them.
  void KeepEncoded(NodeId peer, const ShardInfo& shard);
  // The codecs of such values.
  const CodecChain& Decoder(NodeId peer, const ShardInfo& shard);

  // What has arrived of a round from `peer`, which is lost, will never be complete.
  void Forget(NodeId peer);
  // Codecs and slicers of all values from and to `peer` begin anew: it remembers nothing of theirs.
  void Renew(NodeId peer);

  void Describe(Digest& digest) const;
  // Adds what the inboxes have counted.
  void Count(NodeStats& stats) const;

 private:
  struct Hash {
    std::size_t operator()(const FlowId& id) const;
  };

  // Null where the shared pipeline will do.
  std::unique_ptr<Pipeline> Make(const FlowId& id, const ShardInfo& shard);
  // Where updates happen at the parties, global servers answer with sums.
  bool AnswersAreSums(NodeId peer, Direction direction) const;

  const NodeConfig& config_;
  const Peers& peers_;
  Pipeline shared_;
  FlatMap<FlowId, Flow, Hash> flows_;
  bool linear_ = false;
};

}  // namespace geomx
