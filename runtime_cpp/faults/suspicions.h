// The law that a node suspects a peer, and the scheduler declares a member lost, only after a fault that explains
// it. Each fault is recorded with the time at which its effect ends.
#pragma once

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "core/node_config.h"
#include "core/types.h"

namespace geomx::faults {

class Suspicions {
 public:
  // `slack`: how long a fault may have effects after its end.
  explicit Suspicions(NodeId scheduler, Time slack) : scheduler_(scheduler), slack_(slack) {}

  // Until a time, a node may be silent to all others, or two nodes to each other.
  void Disturb(NodeId node, Time until) { Raise(nodes_[node], until); }
  void Disturb(NodeId one, NodeId other, Time until) { Raise(links_[std::minmax(one, other)], until); }

  // Returns true if nothing explains that a node suspects another. A node that the scheduler reaches late
  // starts late, and is silent until then.
  bool AreBaseless(NodeId node, NodeId other, Time now) const {
    const Time last = std::max({Between(node, other), Between(node, scheduler_), Between(other, scheduler_)});
    return last == kNothing || now > last + slack_;
  }

  // Returns true if nothing has happened to a node, its links and its peers after `since`.
  bool Spare(NodeId node, const std::vector<Peer>& peers, Time since) const {
    return std::all_of(peers.begin(), peers.end(),
                       [&](const Peer& peer) { return Between(node, peer.id) <= since; });
  }

 private:
  static constexpr Time kNothing = -1;

  static void Raise(Time& last, Time until) { last = std::max(last, until); }
  // Returns when the last fault of two nodes or of the link between them ends.
  Time Between(NodeId one, NodeId other) const {
    Time last = kNothing;
    for (const NodeId node : {one, other}) {
      if (const auto found = nodes_.find(node); found != nodes_.end()) Raise(last, found->second);
    }
    if (const auto found = links_.find(std::minmax(one, other)); found != links_.end()) Raise(last, found->second);
    return last;
  }

  const NodeId scheduler_;
  const Time slack_;
  std::map<NodeId, Time> nodes_;
  std::map<std::pair<NodeId, NodeId>, Time> links_;
};

}  // namespace geomx::faults
