// The tree of one shard: every member is joined to the root, or to a member that already is, one after
// the other, by the pair of nodes with the least cost in seconds: the time until the most loaded link of
// the pair is free, the time for which the transfer occupies its links, which others cannot use then, and
// the times of all transfers between the member and the root. So a transfer over several links gives way
// to transfers over each of them, between which contributions are added, unless delays are longer than
// the transfer; and trees branch where a chain would be long.
//
// The loads of a tree count for the next one, so that the shards of a round divide the links of the
// network among them in proportion to their rates. Links may be shared by several pairs: the access link
// of a site by all its pairs, a link of a mesh by all routes across it.
#pragma once

#include <cstdint>
#include <map>
#include <queue>
#include <set>
#include <tuple>
#include <vector>

#include "links.h"

namespace geomx::multiroot {

// Returns each member's neighbour on the way to the root, and plans the transfers.
//
// `up`: transfers go towards the root. A member without a route to or from the others is left out.
inline std::map<NodeId, NodeId> GrowTree(Links& links, const std::vector<NodeId>& members, NodeId root, bool up,
                                         double bytes, Round round) {
  // Seconds, links, member, neighbour.
  using Candidate = std::tuple<double, std::size_t, NodeId, NodeId>;
  std::map<NodeId, NodeId> neighbours;
  std::map<NodeId, double> away = {{root, 0}};  // seconds of the transfers between a node of the tree and the root
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> open;
  const auto pair_of = [up](NodeId member, NodeId neighbour) {
    return up ? Pair{member, neighbour} : Pair{neighbour, member};
  };
  const auto seconds = [&](const Pair& pair, NodeId neighbour) {
    const double occupied = links.Occupies(pair, bytes, round);
    return links.Finish(pair, bytes, round) + occupied + away.at(neighbour) + occupied + links.Delay(pair);
  };
  const auto offer = [&](NodeId member, NodeId neighbour) {
    const Pair pair = pair_of(member, neighbour);
    if (!links.Knows(pair)) return;
    open.push({seconds(pair, neighbour), links.Length(pair), member, neighbour});
  };
  for (const NodeId member : members) offer(member, root);
  while (!open.empty()) {
    const auto [expected, length, member, neighbour] = open.top();
    open.pop();
    if (away.contains(member)) continue;
    const Pair pair = pair_of(member, neighbour);
    if (seconds(pair, neighbour) != expected) {  // the tree has loaded its links since
      offer(member, neighbour);
      continue;
    }
    links.Plan(pair, bytes);
    neighbours[member] = neighbour;
    away[member] = away.at(neighbour) + links.Occupies(pair, bytes, round) + links.Delay(pair);
    for (const NodeId other : members) {
      if (!away.contains(other)) offer(other, member);
    }
  }
  return neighbours;
}

}  // namespace geomx::multiroot
