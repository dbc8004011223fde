// A coordinator for tests, which orders each contribution to be sent to a random other member.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "tests/random_coordinator.h"

namespace geomx::check {

class RandomPairs final : public RandomCoordinator {
 public:
  void Exchange(Archive& archive) override {
    archive(items_);
    RandomCoordinator::Exchange(archive);
  }

 private:
  struct Item {
    Round round = 0;
    std::set<NodeId> holders, missing;

    void Exchange(Archive& archive) { archive(round, holders, missing); }
  };

  std::vector<Reply> Answer(NodeId from, const OverlayReport& report) override {
    const OverlayItem id = OverlayItem::Of(report);
    Item& item = items_[id];
    if (report.round > item.round) {
      item = {.round = report.round, .holders = {report.root}, .missing = {}};
      item.missing.insert(report.members.begin(), report.members.end());
    }
    if (id.up() || report.what == OverlayReport::What::kHas) item.holders.insert(from);
    if (!id.up() && report.from) item.holders.insert(*report.from);
    std::vector<Reply> replies;
    for (;;) {
      std::vector<NodeId> senders(item.holders.begin(), item.holders.end()), receivers;
      if (id.up()) std::erase(senders, report.root);
      if (senders.empty()) return replies;
      const NodeId sender = senders[random_() % senders.size()];
      const auto& choice = id.up() ? item.holders : item.missing;
      receivers.assign(choice.begin(), choice.end());
      std::erase(receivers, sender);
      if (receivers.empty()) return replies;
      const NodeId receiver = receivers[random_() % receivers.size()];
      item.holders.erase(sender);
      item.holders.erase(receiver);
      item.missing.erase(receiver);
      const OverlayOrder order{id.direction, id.root, id.key, id.shard, item.round, receiver};
      replies.push_back({sender, order.Pack()});
    }
  }

  std::map<OverlayItem, Item> items_;
};

}  // namespace geomx::check
