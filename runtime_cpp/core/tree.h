// The connections between the nodes of a run, which form a tree, as the scheduler knows them.
#pragma once

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "core/types.h"

namespace geomx {

class Tree {
 public:
  using Edges = std::vector<std::pair<NodeId, NodeId>>;

  // `edges`: (parent, child), ascending; outlives this.
  explicit Tree(const Edges& edges) : edges_(edges) {}

  bool IsParent(NodeId parent, NodeId child) const {
    return std::binary_search(edges_.begin(), edges_.end(), std::pair{parent, child});
  }

  // Returns true for a parent and its child, and for two children of one parent, which may be
  // members of one overlay.
  bool AreConnected(NodeId one, NodeId other) const {
    if (IsParent(one, other) || IsParent(other, one)) return true;
    return std::any_of(edges_.begin(), edges_.end(), [&](const auto& edge) {
      return edge.second == one && IsParent(edge.first, other);
    });
  }

  // Returns true if a parent of `child` is such a node.
  template <class Is>
  bool AnyParent(NodeId child, Is is) const {
    return std::any_of(edges_.begin(), edges_.end(),
                       [&](const auto& edge) { return edge.second == child && is(edge.first); });
  }

  // Returns true if all children of `parent` are in `set`.
  bool AllChildrenIn(NodeId parent, const std::set<NodeId>& set) const {
    return std::all_of(edges_.begin(), edges_.end(), [&](const auto& edge) {
      return edge.first != parent || set.contains(edge.second);
    });
  }

 private:
  const Edges& edges_;
};

}  // namespace geomx
