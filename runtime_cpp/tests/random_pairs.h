// A coordinator for tests, which orders each contribution to be sent to a random other member. With
// `standing`, some members are ordered to send theirs to the root until further notice.
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <tuple>
#include <vector>

#include "core/overlay.h"
#include "tests/check.h"
#include "tests/cluster.h"

namespace geomx::check {

class RandomPairs final : public Coordinator {
 public:
  explicit RandomPairs(bool standing = false) : standing_(standing) {}

  std::vector<Reply> OnReport(NodeId from, std::span<const double> values, Time) override {
    using What = OverlayReport::What;
    const auto report = OverlayReport::Unpack(values);
    CHECK(report.has_value());
    if (!report) return {};
    const bool up = report->what == What::kReady || report->what == What::kMerged;
    const auto id = std::tuple{up, report->root, report->key, report->shard};
    Item& item = items_[id];
    if (report->round > item.round) {
      item = {.round = report->round, .holders = {report->root}, .missing = {}, .standing = item.standing};
      item.missing.insert(report->members.begin(), report->members.end());
    }
    if (up || report->what == What::kHas) item.holders.insert(from);
    if (!up && report->from) item.holders.insert(*report->from);
    std::vector<Reply> replies;
    OverlayOrder always{Direction::kPush, report->root, report->key, report->shard, item.round, report->root};
    if (standing_ && report->what == What::kReady && random_() % 3 == 0) {
      always.term = OverlayOrder::Term::kStanding;
      item.holders.erase(from);
      item.standing.insert(from);
      replies.push_back({from, always.Pack()});
    } else if (!item.standing.empty() && random_() % 4 == 0) {
      always.term = OverlayOrder::Term::kAsk;
      replies.push_back({*item.standing.begin(), always.Pack()});
      item.standing.erase(item.standing.begin());
    }
    for (;;) {
      std::vector<NodeId> senders(item.holders.begin(), item.holders.end()), receivers;
      if (up) std::erase(senders, report->root);
      if (senders.empty()) return replies;
      const NodeId sender = senders[random_() % senders.size()];
      const auto& choice = up ? item.holders : item.missing;
      receivers.assign(choice.begin(), choice.end());
      std::erase(receivers, sender);
      if (receivers.empty()) return replies;
      const NodeId receiver = receivers[random_() % receivers.size()];
      item.holders.erase(sender);
      item.holders.erase(receiver);
      item.missing.erase(receiver);
      const Direction direction = up ? Direction::kPush : Direction::kPull;
      const OverlayOrder order{direction,     report->root, report->key,
                               report->shard, item.round,   receiver};
      replies.push_back({sender, order.Pack()});
    }
  }

  void Exchange(Archive& archive) override {
    std::ostringstream text;
    text << random_;
    std::string random = text.str();
    archive(items_, random);
    std::istringstream(random) >> random_;
  }

 private:
  struct Item {
    Round round = 0;
    std::set<NodeId> holders, missing;
    std::set<NodeId> standing = {};  // send to the root without asking

    void Exchange(Archive& archive) { archive(round, holders, missing, standing); }
  };
  std::map<std::tuple<bool, NodeId, Key, std::uint32_t>, Item> items_;
  Random random_{7};
  bool standing_;
};

}  // namespace geomx::check
