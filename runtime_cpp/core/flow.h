// A node's flows: one shard's traffic with one peer in one direction.
//
// A flow has an inbox, which reassembles arriving slices, and a pipeline: the codecs and slicers
// that its values go through, with the state that these keep from round to round. Both are created
// when the flow is first used and have a stable address for the node's lifetime. Traffic without
// codecs and slicers shares one pipeline, which has no state.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <span>
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
  void Exchange(Archive& archive) { archive(peer, direction, plain, key, shard); }
};

// The flow that a transfer from or to `peer` belongs to.
inline FlowId FlowOf(NodeId peer, const Header& header) {
  return {peer, DirectionOf(header), (header.flags & kPlain) != 0, header.key, header.shard};
}

// The codecs and slicers of a flow, with their state.
struct Pipeline {
  const LinkPlan* link;
  ShardInfo shard = {};
  CodecChain chain = {};
  bool sums = false;  // values are sums of pushes, still encoded by linear codecs
  bool keep = false;  // values stay encoded
  std::vector<std::unique_ptr<Slicer>> slicers = {};
  Time close_at = kNever;              // when to stop waiting for best-effort slices
  std::uint64_t bytes = 0;             // of the round, as they crossed the wire
  Time began = 0;                      // when the round's first message arrived, in a group with an overlay
  std::vector<Message> messages = {};  // of the round, if they will be handed on
};

struct Flow {
  std::unique_ptr<Pipeline> pipeline;  // null: the shared one, without state
  Inbox inbox;
};

class FlowTable {
 public:
  // Both outlive this.
  FlowTable(const NodeConfig& config, const Peers& peers);

  Flow& Get(const FlowId& id, const ShardInfo& shard);
  Flow* Find(const FlowId& id) { return flows_.Find(id); }  // null if it was never used
  // A message of the flow will arrive soon; see FlatMap.
  void PrefetchSlot(const FlowId& id) const { flows_.PrefetchSlot(id); }
  void PrefetchEntry(const FlowId& id) const { flows_.PrefetchEntry(id); }
  Pipeline& PipelineOf(Flow& flow) { return flow.pipeline ? *flow.pipeline : shared_; }
  // The pipeline of outgoing values. Creates no flow where the shared pipeline serves.
  Pipeline& Outgoing(const FlowId& id, const ShardInfo& shard);
  // Returns true if any flow's codecs are linear.
  bool linear() const { return linear_; }

  // From the next round on, values of a shard from `peer` stay encoded, if a device can decode
  // them.
  void KeepEncoded(NodeId peer, const ShardInfo& shard);
  // The codecs of such values.
  const CodecChain& Decoder(NodeId peer, const ShardInfo& shard);

  // What the codecs of pushes to `peer` have not sent yet of a shard; see Codec::Kept. `all`: only if they
  // will have sent all of it in the end.
  std::span<const float> Kept(NodeId peer, const Header& header, bool all);

  // See Node::ResidualNorm.
  double ResidualNorm(Direction direction) const;

  // Drops incomplete rounds from `peer`, which is lost: they will never be complete.
  void Forget(NodeId peer);
  // The same for a peer that has lost its children and begins again: Inbox::BeginAnew.
  void BeginAnew(NodeId peer);
  // Resets codecs and slicers of all values from and to `peer`, whose new process has no state of
  // theirs. Rounds that have begun to arrive go on.
  void Renew(NodeId peer);

  void Describe(Digest& digest) const;
  void Exchange(Archive& archive);
  // Adds the inboxes' counts to `stats`.
  void Count(NodeStats& stats) const;

 private:
  // Eight consecutive keys have neighbouring slots, as they are sent together.
  struct Hash {
    std::size_t operator()(const FlowId& id) const {
      constexpr std::uint64_t kRow = 7;
      const std::uint64_t within = id.key & kRow;
      std::uint64_t hash = (std::uint64_t{id.key / (kRow + 1)} << 32) ^ id.shard;
      hash ^= (std::uint64_t{id.peer} << 2 | std::uint64_t{id.direction == Direction::kPull} << 1 |
               std::uint64_t{id.plain}) *
              0x9e3779b97f4a7c15u;
      hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9u;
      hash ^= hash >> 31;
      return ((hash & ~kRow) | within) ^ (within << 32);  // both halves distinguish keys
    }
  };

  // Returns null where the shared pipeline serves.
  std::unique_ptr<Pipeline> Make(const FlowId& id, const ShardInfo& shard);
  // Returns true where updates happen at the parties: global servers then answer with sums.
  bool AnswersAreSums(NodeId peer, Direction direction) const;

  const NodeConfig& config_;
  const Peers& peers_;
  Pipeline shared_;
  FlatMap<FlowId, Flow, Hash> flows_;
  bool linear_ = false;
};

}  // namespace geomx
