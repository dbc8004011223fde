// How a value leaves a node: encoded once where one encoding serves several targets, cut, and queued
// for each target.
//
// A value on a device is encoded there as far as its codecs have kernels, and its messages are
// queued as their rows arrive on the host. Where an overlay serves the direction, it decides when
// and to whom a value goes, and asks for its messages (Pack).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/encoder.h"
#include "core/flow.h"
#include "core/inbox.h"
#include "core/message.h"
#include "core/node_state.h"
#include "core/overlay.h"
#include "core/types.h"

namespace geomx {

class Sender {
 public:
  // All of them outlive this.
  Sender(NodeState& state, FlowTable& flows, Encoder& encoder, std::optional<Overlay>& overlay)
      : state_(state), flows_(flows), encoder_(encoder), overlay_(overlay) {}

  // Queues a shard's value for `targets`; later, if it is on a device or an overlay takes it.
  void Send(std::span<const NodeId> targets, const ShardValue& value, Time now);

  // Calls `then` with the messages of a value, encoded and cut as for `peer`: before this returns,
  // or when the node's device has encoded it. Adds `relayed`, the contributions of other members in
  // the form in which they arrived.
  using Packed = std::function<void(std::vector<Message> messages, Time now)>;
  void Pack(NodeId peer, ShardValue value, Buffer relayed, Time now, Packed then);

 private:
  // A value on its way from a device.
  struct Departure;

  void Leave(Peers::Neighbour& target, Pipeline& pipeline, const Header& header, bool phantom,
             const std::shared_ptr<Parts>& encoded, Time now);
  void Fetch(NodeId target, const ShardValue& value);
  void Arrive(Departure& departure, const std::shared_ptr<Parts>& parts, std::uint64_t rows,
              Time now);
  void DropStale(Peers::Neighbour& target, const Header& header);

  NodeState& state_;
  FlowTable& flows_;
  Encoder& encoder_;
  std::optional<Overlay>& overlay_;
};

}  // namespace geomx
