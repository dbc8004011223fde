// The receive path: slices of transfers go into their flow's inbox, and a round that is complete goes
// to the node's role.
//
// A round is complete when all its slices are in, or when the reliable ones are and the link's grace
// has passed (CloseDue). An overlay sees a completed round first: it adds what others send through this
// member, and keeps the messages of values that it will hand on.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>

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

  // One slice of a transfer. REQUIRES: `from` is a peer and may send it (see Node).
  void Accept(NodeId from, const Message& message, Time now);

  // Rounds that have reliable slices only, and wait for the others.
  bool waiting() const { return !closing_.empty(); }
  Time NextTimeout() const { return waiting() ? closing_.begin()->first.first : kNever; }
  // Completes those whose grace has passed.
  void CloseDue(Time now);

 private:
  void Close(const FlowId& id, Flow& flow, Time now);
  // A completed value as the role takes it, dense where its codecs are linear. Nothing if the peer
  // broke the protocol. Throws Refusal likewise.
  std::optional<Buffer> Value(const Pipeline& pipeline, const Header& header, Buffer value);

  NodeState& state_;
  FlowTable& flows_;
  LinearSums& sums_;
  std::optional<Overlay>& overlay_;
  std::unique_ptr<RoleLogic>& role_;
  std::map<std::pair<Time, std::uint64_t>, FlowId> closing_;  // by when their grace has passed
  std::uint64_t closing_sequence_ = 0;
};

}  // namespace geomx
