// A handler of a replay that ignores everything, for tests of what the records themselves say.
#pragma once

#include <string>

#include "core/replay.h"

namespace geomx::check {

struct IgnoredReplay : Replay::Handler {
  void OnTaken(NodeId, const Message&) override {}
  void OnLinked(NodeId, Message) override {}
  void OnArrived(NodeId) override {}
  void OnReceived(NodeId, std::uint32_t) override {}
  void OnRenewed(NodeId, const Renewal&) override {}
  void OnLinkMade(NodeId) override {}
  void OnLinkDown(NodeId, const std::string&) override {}
  void OnReady() override {}
  void OnSnapshot(Archive&) override {}
  void OnEvent(Event, Time) override {}
};

}  // namespace geomx::check
