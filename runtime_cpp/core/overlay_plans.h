// The plans that a node has for the shards of its groups (OverlayPlan).
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "core/archive.h"
#include "core/overlay_group.h"
#include "core/types.h"

namespace geomx {

class OverlayPlans {
 public:
  // What the node does with a shard in one round.
  struct Way {
    Round first = 1, last = OverlayPlan::kForever;
    std::vector<NodeId> targets = {};
    std::uint32_t awaited = 0;
    bool reports = true;

    void Exchange(Archive& archive) { archive(first, last, targets, awaited, reports); }
  };

  void Add(const OverlayPlan& plan) {
    Way way{.targets = plan.targets, .awaited = plan.awaited, .reports = plan.reports};
    if (plan.shards.empty()) all_[{plan.direction, plan.root}] = std::move(way);
    for (const OverlayPlan::Rounds& each : plan.shards) {
      way.first = each.first, way.last = each.last;
      ways_[{plan.direction, plan.root, each.key, each.shard}].push_back(way);
    }
  }

  // Null if the round has no plan. Valid until the next call of a function that is not const.
  const Way* Find(const OverlayItem& item, Round round) const {
    if (const auto found = ways_.find(item); found != ways_.end()) {
      for (const Way& way : found->second) {
        if (way.first <= round && round <= way.last) return &way;
      }
    }
    const auto found = all_.find({item.direction, item.root});
    return found == all_.end() ? nullptr : &found->second;
  }

  // Forgets plans for rounds before `round`, which has begun.
  void Forget(const OverlayItem& item, Round round) {
    const auto found = ways_.find(item);
    if (found == ways_.end()) return;
    std::erase_if(found->second, [round](const Way& way) { return way.last < round; });
  }

  void Exchange(Archive& archive) { archive(ways_, all_); }

 private:
  std::map<OverlayItem, std::vector<Way>> ways_;
  std::map<std::pair<Direction, NodeId>, Way> all_;
};

}  // namespace geomx
