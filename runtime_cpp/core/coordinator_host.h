// Reports to coordinators and their replies, at both ends.
//
// A coordinator (coordinator.h) runs on one node. Members send it numbers (Report), and it answers
// with numbers; both are control messages. On the coordinator's node this part passes reports to it
// and queues its replies; on a member it passes a reply to the node's overlay, or to the
// application as an event.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/coordinator.h"
#include "core/message.h"
#include "core/node_state.h"
#include "core/orders_due.h"
#include "core/overlay.h"
#include "core/types.h"
#include "core/wait.h"

namespace geomx {

class CoordinatorHost {
 public:
  // Both outlive this.
  CoordinatorHost(NodeState& state, std::optional<Overlay>& overlay)
      : state_(state),
        overlay_(overlay),
        hosts_(!state.config.coordinators.empty()),
        orders_(state.config.coordinated) {}

  // Queues a report to coordinator `number` on `host`, which is a peer.
  void Report(NodeId host, std::uint32_t number, std::span<const double> values,
              std::int32_t priority);
  // Reports at once, also to a coordinator on this node.
  void Consult(NodeId host, std::uint32_t number, std::span<const double> values, Time now);

  void HandleReport(NodeId from, const Message& message, Time now);
  // Returns false if the payload is not a list of numbers.
  bool HandleReply(NodeId from, const Message& message, Time now);

  // Tells the coordinators on this node that a worker is lost or has come back.
  void HandleMember(NodeId member, bool back, Time now);

  // Called after every message, so it does not look where most nodes have nothing.
  Time NextTimeout() const { return hosts_ ? Earliest() : kNever; }
  void HandleTimeout(Time now);

  // Adds the coordinators on this node without whose orders an overlay can do nothing.
  void ListWaits(Waits& waits) const { orders_.ListWaits(waits); }
  void Exchange(Archive& archive);

 private:
  Time Earliest() const;
  // Returns false if a reply is addressed to a node that is no peer of this one.
  bool SendReplies(std::uint32_t number, std::span<const Coordinator::Reply> replies, Time now);
  void TakeReply(NodeId from, std::uint32_t number, std::vector<double> values, Time now);
  std::string Stranger(NodeId id) const;

  NodeState& state_;
  std::optional<Overlay>& overlay_;
  const bool hosts_;  // any coordinator
  OrdersDue orders_;
};

}  // namespace geomx
