// The trees of a round: one towards the root, one from it, for all shards of the round.
//
// Shards follow each other along the same trees, so that all links are in use at the same time. A round then
// takes as long as the most loaded link needs for all its shards, and for one more shard as long as its way up
// and down. Members are joined one after the other where that is shortest; then each is moved to another
// neighbour as long as that helps.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "links.h"

namespace geomx::tsengine {

// What a round sends to or from each member.
struct Load {
  double bytes = 0;    // of all shards
  double largest = 0;  // of a typical shard, weighted by bytes
};

struct Trees {
  std::map<NodeId, NodeId> up, down;  // each member's neighbour on the way to the root
  double seconds = 0;                 // predicted, of a round
};

class Planner {
 public:
  // `busy`: bytes that cross links in a round besides. `push`, `pull`: where false, that direction is a star.
  Planner(const Links& links, std::vector<NodeId> members, NodeId root, Load load, bool push, bool pull,
          const std::map<LinkId, double>& busy)
      : links_(links), members_(std::move(members)), root_(root), load_(load), push_(push), pull_(pull) {
    nodes_ = members_;
    nodes_.push_back(root);
    for (const auto& [id, bytes] : busy) base_[id] = bytes;
    for (const NodeId a : nodes_) {
      for (const NodeId b : nodes_) {
        if (a != b) routes_[{a, b}] = links.Route({a, b});
      }
    }
  }

  Trees Star() const {
    Trees star;
    for (const NodeId member : members_) star.up[member] = star.down[member] = root_;
    star.seconds = Predict(star);
    return star;
  }

  Trees Grow() const {
    Trees trees = Star();
    Loads loads = base_;
    const auto add = [&](const std::set<LinkId>& links) {
      for (const LinkId id : links) loads[id] += load_.bytes;
    };
    std::map<NodeId, std::set<LinkId>> out, in;
    for (const NodeId member : members_) {
      add(out[member] = Always(member, true));
      add(in[member] = Always(member, false));
    }
    if (push_) trees.up = Join(true, loads, out);
    if (pull_) trees.down = Join(false, loads, in);
    trees.seconds = Predict(trees);
    if (members_.size() <= kMoved) Move(trees);
    return trees;
  }

  // Seconds of the most loaded link if all exchange data with the root, and if along trees: of whole rounds.
  double Predict(const Trees& trees) const {
    Loads loads = base_;
    for (const auto& [member, neighbour] : trees.up) Add(loads, {member, neighbour});
    for (const auto& [member, neighbour] : trees.down) Add(loads, {neighbour, member});
    double most = 0;
    for (const auto& [id, bytes] : loads) most = std::max(most, bytes / links_.Rate(id));
    const double first = load_.bytes > 0 ? std::min(1.0, load_.largest / load_.bytes) : 1;
    return (1 - first) * most + Longest(trees.up, true, loads, first) + Longest(trees.down, false, loads, first);
  }

  // Bytes that cross the links in a round along these trees.
  std::map<LinkId, double> LoadsOf(const Trees& trees) const {
    Loads loads;
    for (const auto& [member, neighbour] : trees.up) Add(loads, {member, neighbour});
    for (const auto& [member, neighbour] : trees.down) Add(loads, {neighbour, member});
    return loads;
  }

 private:
  using Loads = std::map<LinkId, double>;
  static constexpr std::size_t kMoved = 16;  // members: more are not moved, as each move is compared with all others

  void Add(Loads& loads, const Pair& pair) const {
    for (const LinkId id : routes_.at(pair)) loads[id] += load_.bytes;
  }

  // The links that all routes from a member have, or to it.
  std::set<LinkId> Always(NodeId member, bool out) const {
    std::set<LinkId> always;
    bool first = true;
    for (const NodeId other : nodes_) {
      if (other == member) continue;
      const std::vector<LinkId>& route = routes_.at(out ? Pair{member, other} : Pair{other, member});
      std::set<LinkId> both;
      for (const LinkId id : route) {
        if (first || always.contains(id)) both.insert(id);
      }
      always = std::move(both);
      first = false;
    }
    return always;
  }

  double Occupies(const Pair& pair, const Loads& loads, double first) const {
    double longest = 0;
    for (const LinkId id : routes_.at(pair)) {
      const auto found = loads.find(id);
      const double bytes = found == loads.end() ? load_.bytes : found->second;
      longest = std::max(longest, bytes / links_.Rate(id));
    }
    return first * longest + links_.Delay(pair);
  }

  double Longest(const std::map<NodeId, NodeId>& tree, bool up, const Loads& loads, double first) const {
    std::map<NodeId, double> away = {{root_, 0}};
    double longest = 0;
    for (const auto& [member, neighbour] : tree) {
      longest = std::max(longest, Away(tree, member, up, loads, first, away));
    }
    return longest;
  }

  double Away(const std::map<NodeId, NodeId>& tree, NodeId node, bool up, const Loads& loads, double first,
              std::map<NodeId, double>& away) const {
    if (const auto found = away.find(node); found != away.end()) return found->second;
    const NodeId neighbour = tree.at(node);
    const Pair pair = up ? Pair{node, neighbour} : Pair{neighbour, node};
    const double seconds = Away(tree, neighbour, up, loads, first, away) + Occupies(pair, loads, first);
    return away[node] = seconds;
  }

  // Joins each member to the node with which the round ends first. `loads` has what members send or receive
  // anyway over `always`.
  std::map<NodeId, NodeId> Join(bool up, Loads& loads, const std::map<NodeId, std::set<LinkId>>& always) const {
    const double first = load_.bytes > 0 ? std::min(1.0, load_.largest / load_.bytes) : 1;
    std::map<NodeId, NodeId> tree;
    std::map<NodeId, double> away = {{root_, 0}};
    while (tree.size() < members_.size()) {
      double least = -1, reached = 0;
      Pair best;
      for (const NodeId member : members_) {
        if (away.contains(member)) continue;
        for (const auto& [node, seconds] : away) {
          const Pair pair = up ? Pair{member, node} : Pair{node, member};
          double most = 0, longest = 0;
          for (const LinkId id : routes_.at(pair)) {
            const bool own = always.at(member).contains(id);
            const double needs = (loads[id] + (own ? 0 : load_.bytes)) / links_.Rate(id);
            longest = std::max(longest, needs);
            if (!own) most = std::max(most, needs);
          }
          const double occupied = first * longest + links_.Delay(pair);
          const double cost = (1 - first) * most + seconds + occupied;
          if (least >= 0 && cost >= least) continue;
          least = cost;
          reached = seconds + occupied;
          best = {member, node};
        }
      }
      const auto [member, node] = best;
      tree[member] = node;
      away[member] = reached;
      for (const LinkId id : routes_.at(up ? Pair{member, node} : Pair{node, member})) {
        if (!always.at(member).contains(id)) loads[id] += load_.bytes;
      }
    }
    return tree;
  }

  // Moves members, with what is behind them, to other neighbours as long as that helps.
  void Move(Trees& trees) const {
    for (bool better = true; better;) {
      better = false;
      for (const bool up : {true, false}) {
        if (up ? !push_ : !pull_) continue;
        std::map<NodeId, NodeId>& tree = up ? trees.up : trees.down;
        for (const NodeId member : members_) {
          const NodeId was = tree.at(member);
          NodeId best = was;
          for (const NodeId node : nodes_) {
            if (node == was || Behind(tree, node, member)) continue;
            tree[member] = node;
            const double seconds = Predict(trees);
            if (seconds >= trees.seconds * (1 - 1e-6)) continue;
            trees.seconds = seconds;
            best = node;
            better = true;
          }
          tree[member] = best;
        }
      }
    }
  }

  // Whether the way of `node` to the root leads through `member`.
  bool Behind(const std::map<NodeId, NodeId>& tree, NodeId node, NodeId member) const {
    for (; node != root_; node = tree.at(node)) {
      if (node == member) return true;
    }
    return false;
  }

  const Links& links_;
  std::vector<NodeId> members_, nodes_;
  NodeId root_;
  Load load_;
  bool push_, pull_;
  Loads base_;
  std::map<Pair, std::vector<LinkId>> routes_;
};

}  // namespace geomx::tsengine
