// What the parts of one node share: its configuration, its peers, and what it tells the driver.
//
// The parts (sender, receiver, membership, ...) hold a reference to it; it is made before them and
// outlives them. It holds no decisions.
#pragma once

#include <string>
#include <utility>

#include "core/device_work.h"
#include "core/event.h"
#include "core/loss_average.h"
#include "core/node_config.h"
#include "core/peers.h"

namespace geomx {

struct NodeState {
  // Throws std::invalid_argument if the configuration contradicts itself.
  explicit NodeState(NodeConfig its_config);
  NodeState(const NodeState&) = delete;
  NodeState& operator=(const NodeState&) = delete;

  void Emit(Event&& event) { events.Add(std::move(event)); }
  // The driver is to close the connection to `peer`, which did what `reason` says.
  void Fail(NodeId peer, std::string reason) {
    Emit({.kind = Event::Kind::kPeerError, .peer = peer, .reason = std::move(reason)});
  }
  // `from` sent what a correct peer would not. Best-effort messages are dropped and counted, and the
  // connection stays: it carries messages that a peer vouches for one by one.
  void Refuse(NodeId from, const Header& header, std::string reason) {
    if (header.channel == 0) return Fail(from, std::move(reason));
    ++stats.refused_slices;
  }

  const NodeConfig config;  // children ascending
  Peers peers;
  EventQueue events;
  Work work;
  NodeStats stats;
  LossAverage losses;
  DeviceWork device;
};

}  // namespace geomx
