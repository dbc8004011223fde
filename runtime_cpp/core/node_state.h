// The state that the parts of one node share: its configuration, its peers, and its output to the
// driver.
//
// The parts (sender, receiver, membership, ...) hold a reference to it; it is constructed before
// them and outlives them. It contains no logic of the protocol.
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
  // Tells the driver to close the connection to `peer`, which has violated the protocol as `reason`
  // says.
  void Fail(NodeId peer, std::string reason) {
    Emit({.kind = Event::Kind::kPeerError, .peer = peer, .reason = std::move(reason)});
  }
  // `from` has sent an invalid message. A best-effort one is dropped and counted, and the
  // connection stays open; any other closes it.
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
