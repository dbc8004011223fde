// The law of when members that come back take part (docs/faults.md): from the next round on that begins after their
// request for the current values. It is checked from what is delivered to servers, without asking these who takes
// part in a round.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>

#include "core/message.h"
#include "faults/experiment.h"

namespace geomx::faults {

class Admissions {
 public:
  explicit Admissions(const Experiment& experiment);

  // A new process of a server begins.
  void OnBegin(NodeId server);
  // A server hears that a child is back.
  void OnBack(NodeId server, NodeId child);
  // A child's request for a value, or for the round from which on it may take part, is about to be handled.
  void OnRequest(NodeId server, NodeId child, const Header& request);
  // A local server is given the current value of a global server, which is that after `round`. It was requested if
  // the party did not take part.
  void OnValue(NodeId server, Round round);
  // The last slice of a push is about to be handled. Returns the law that is broken; empty: none.
  std::string OnPush(NodeId server, NodeId child, const Header& push);

 private:
  struct Return {
    bool asked = false;
    std::set<std::pair<Key, std::uint32_t>> pushed;  // shards that the child has pushed since
    // Where parties have rounds of their own: the last round of each shard that may be its first.
    std::map<std::pair<Key, std::uint32_t>, Round> first;
  };

  // The latest round of any shard to which a child of the server has contributed. Global servers share one,
  // because a party takes part from the same round on at all of them.
  Round& LatestOf(NodeId server) { return latest_[server < servers_ ? 0 : server]; }

  const bool alone_;       // parties have rounds of their own, and join those of each shard when they request it
  const bool applies_;     // where rounds close early, members take part at once; a policy numbers parties' own
  const NodeId servers_;   // the first local server; global servers have smaller ids
  std::map<NodeId, Round> latest_;
  std::map<NodeId, std::map<NodeId, Return>> returns_;  // by server and child
  std::map<NodeId, Round> first_;  // by child: the last round that may be its first
};

}  // namespace geomx::faults
