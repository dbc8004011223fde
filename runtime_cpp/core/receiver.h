// The receive path: slices of transfers go into their flow's inbox, and complete rounds go to the
// node's role.
//
// A round is complete when all its slices are in, or when the reliable ones are and the link's grace
// has passed (CloseDue). An overlay sees a completed round first: it adds contributions that others
// send through this member, and keeps the messages of values that it will forward.
//
// Where an overlay plans ahead, a contribution may arrive before the initial value of its shard, which takes
// another way; and what was made after the optimizer was set may arrive before that instruction. Such
// messages are kept as they are, so that they take no more memory than was sent, and are judged later.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/flow.h"
#include "core/linear_sums.h"
#include "core/message.h"
#include "core/node_state.h"
#include "core/overlay.h"
#include "core/role.h"
#include "core/types.h"

namespace geomx {

class Receiver {
 public:
  // All of them outlive this.
  Receiver(NodeState& state, FlowTable& flows, LinearSums& sums, std::optional<Overlay>& overlay,
           std::unique_ptr<RoleLogic>& role)
      : state_(state), flows_(flows), sums_(sums), overlay_(overlay), role_(role) {}

  // Handles one slice of a transfer. REQUIRES: `from` is a peer and may send it (see Node).
  void Accept(NodeId from, const Message& message, Time now);

  // See Node::Room.
  std::shared_ptr<std::byte> Room(NodeId from, const Header& header);

  // Returns true if some round has all its reliable slices and waits for others.
  bool waiting() const { return !closing_.empty(); }
  Time NextTimeout() const { return waiting() ? closing_.begin()->first.first : kNever; }
  // Completes the rounds whose grace has passed.
  void CloseDue(Time now);
  // Completes the rounds of `peer` that wait for best-effort slices only.
  void CloseWaiting(NodeId peer, Time now);
  // `peer` begins again: drops what was kept of it.
  void Forget(NodeId peer);
  // An instruction has come: handles what was kept for it.
  void ResumeAll(Time now);
  void Exchange(Archive& archive) { archive(closing_, closing_sequence_, early_, early_bytes_); }

 private:
  using ShardId = std::pair<Key, std::uint32_t>;
  static constexpr std::size_t kMostEarly = 1u << 18;  // shards

  // Keeps a message that the role cannot use yet. If all that are kept take more than
  // NodeConfig::most_early_bytes, forgets those of the peer that has sent the most, and refuses it.
  void Keep(const FlowId& id, const Message& message);
  // Handles the messages that were kept for this shard.
  void Resume(ShardId shard, Time now);
  void Close(const FlowId& id, Flow& flow, Time now);
  // Returns a completed value as the role needs it, dense where its codecs are linear; nothing, or
  // throws Refusal, if the peer violated the protocol.
  std::optional<Buffer> Value(const Pipeline& pipeline, const Header& header, Buffer value);

  NodeState& state_;
  FlowTable& flows_;
  LinearSums& sums_;
  std::optional<Overlay>& overlay_;
  std::unique_ptr<RoleLogic>& role_;
  std::map<std::pair<Time, std::uint64_t>, FlowId> closing_;  // by when their grace has passed
  std::uint64_t closing_sequence_ = 0;
  std::map<ShardId, std::map<FlowId, std::vector<Message>>> early_;  // kept, by shard
  std::map<NodeId, std::uint64_t> early_bytes_;  // of them, by sender
};

}  // namespace geomx
