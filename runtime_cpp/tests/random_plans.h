// A coordinator for tests, which plans some rounds ahead, each along a random tree. Others go along the star,
// order by order.
#pragma once

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include "tests/random_coordinator.h"

namespace geomx::check {

class RandomPlans final : public RandomCoordinator {
 public:
  RandomPlans(bool push, bool pull) : push_(push), pull_(pull) {}

  void Exchange(Archive& archive) override {
    archive(planned_);
    RandomCoordinator::Exchange(archive);
  }

 private:
  std::vector<Reply> Answer(NodeId from, const OverlayReport& report) override {
    if (report.from) return {};
    const OverlayItem item = OverlayItem::Of(report);
    Round& planned = planned_[{item.root, item.key, item.shard}];
    if (report.round <= planned) return {};  // it came before the plan had arrived
    OverlayOrder order{item.direction, item.root, item.key, item.shard, report.round, item.root};
    if (item.up()) return {{from, order.Pack()}};
    std::vector<Reply> replies;
    for (const NodeId member : report.members) {
      order.target = member;
      replies.push_back({from, order.Pack()});
    }
    if (random_() % 3 == 0) return replies;
    const Round first = report.round + 1, last = report.round + 1 + static_cast<Round>(random_() % 3);
    for (const Direction direction : {Direction::kPush, Direction::kPull}) {
      if (direction == Direction::kPush ? push_ : pull_) {
        Plan({direction, item.root, item.key, item.shard}, report.members, {item.key, item.shard, first, last},
             replies);
      }
    }
    planned = last;
    return replies;
  }

  void Plan(const OverlayItem& item, std::vector<NodeId> members, OverlayPlan::Rounds rounds,
            std::vector<Reply>& replies) {
    std::shuffle(members.begin(), members.end(), random_);
    std::map<NodeId, OverlayPlan> plans;
    std::vector<NodeId> joined = {item.root};
    for (const NodeId member : members) {
      const NodeId neighbour = joined[random_() % joined.size()];
      joined.push_back(member);
      if (item.up()) {
        plans[member].targets = {neighbour};
        if (neighbour != item.root) ++plans[neighbour].awaited;
      } else {
        plans[neighbour].targets.push_back(member);
        plans[member];
      }
    }
    std::shuffle(joined.begin(), joined.end(), random_);
    for (const NodeId node : joined) {
      OverlayPlan& plan = plans[node];
      plan.direction = item.direction;
      plan.root = item.root;
      plan.reports = random_() % 2 == 0;
      plan.shards = {rounds};
      replies.push_back({node, plan.Pack()});
    }
  }

  bool push_, pull_;
  std::map<std::tuple<NodeId, Key, std::uint32_t>, Round> planned_;
};

}  // namespace geomx::check
