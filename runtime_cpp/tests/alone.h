// One node by itself, to which a test says what its peers would say, message by message.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/cluster.h"

namespace geomx::check {

struct Alone {
  explicit Alone(const NodeConfig& config) : node(config) { node.AssumeStarted(); }

  void Hear(NodeId from, Message message, Time now = 1) {
    message.header.source = from;
    node.HandleMessage(from, message, now);
    TakeErrors();
  }
  void Pass(Time now) {
    node.HandleTimeout(now);
    TakeErrors();
  }
  // What it says to a peer, in order; with a kind, only of that.
  std::vector<Header> Says(NodeId to, std::optional<Kind> kind = {}) {
    std::vector<Header> said;
    while (const auto message = node.PollTransmit(to, Lane::kReliable)) {
      if (!kind || message->header.kind == *kind) said.push_back(message->header);
    }
    return said;
  }
  // The scheduler says that a member is lost, or that another process is in its place.
  void Lose(NodeId member) { Change(member, false); }
  void Return(NodeId member) { Change(member, true); }

  Node node;
  std::vector<std::string> errors;

 private:
  void Change(NodeId member, bool back) {
    Hear(*node.config().scheduler, Pack({.epoch = ++epoch_, .who = member, .back = back,
                                         .incarnation = 1 + epoch_ / 2, .name = Layout::Name(member)}));
  }
  void TakeErrors() {
    while (const auto event = node.PollEvent()) {
      if (event->kind == Event::Kind::kPeerError) errors.push_back(event->reason);
    }
  }

  std::uint32_t epoch_ = 0;
};

// A plan with `faults.on_loss=continue`.
inline Plan Lasting(std::vector<std::uint32_t> parties, std::uint32_t global_servers) {
  Plan plan;
  plan.continues = true;
  plan.parties = std::move(parties);
  plan.global_servers = global_servers;
  return plan;
}

// A worker's or a party's request for a value, with the mark of a party's return.
inline Message Ask(std::uint32_t shard, std::uint32_t elements, std::uint32_t mark) {
  Message message = ControlMessage(Kind::kPullRequest);
  message.header.shard = shard;
  message.header.shard_elements = elements;
  message.header.merge_count = mark;
  return message;
}

// A party says how many of its workers take part.
inline Message Members(std::uint32_t workers) {
  Message message = ControlMessage(Kind::kMembers);
  message.header.merge_count = workers;
  return message;
}

}  // namespace geomx::check
