// Reports to coordinators and their replies, at both ends.
//
// A coordinator (coordinator.h) lives on one node. Members send it numbers (Report), and it answers
// with numbers; both are control messages. On the node where it lives this part hands reports to it
// and queues its replies. A reply is an order for this node's overlay, or an event for the application.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/coordinator.h"
#include "core/message.h"
#include "core/node_state.h"
#include "core/overlay.h"
#include "core/types.h"

namespace geomx {

class CoordinatorHost {
 public:
  // Both outlive this.
  CoordinatorHost(NodeState& state, std::optional<Overlay>& overlay)
      : state_(state), overlay_(overlay) {}

  // Queues a report to coordinator `number` on `host`, which is a peer.
  void Report(NodeId host, std::uint32_t number, std::span<const double> values,
              std::int32_t priority);
  // Reports at once, also where the coordinator lives here.
  void Consult(NodeId host, std::uint32_t number, std::span<const double> values, Time now);

  void HandleReport(NodeId from, const Message& message, Time now);
  // False if the message holds no numbers.
  bool HandleReply(NodeId from, const Message& message, Time now);

  // Tells the coordinators that live here of a worker.
  void HandleMember(NodeId member, bool back, Time now);

  Time NextTimeout() const;
  void HandleTimeout(Time now);

 private:
  // False if a node that this one does not know should have had a reply.
  bool SendReplies(std::uint32_t number, std::span<const Coordinator::Reply> replies, Time now);
  void TakeReply(NodeId from, std::uint32_t number, std::vector<double> values, Time now);
  std::string Stranger(NodeId id) const;

  NodeState& state_;
  std::optional<Overlay>& overlay_;
};

}  // namespace geomx
