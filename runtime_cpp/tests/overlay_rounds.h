// The law of an overlay's coordinator, for any order of reports: in each round of a shard, the root's sum
// contains each contribution exactly once, and each member receives the value exactly once.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/natives.h"
#include "core/overlay.h"
#include "tests/check.h"
#include "tests/seeds.h"

namespace geomx::check {

// Members and roots without a network: an order is carried out in a drawn time. Members contribute late,
// and the coordinator goes on in another process at any time.
class OverlayRounds {
 public:
  OverlayRounds(std::string name, Options options, std::vector<NodeId> members, std::vector<NodeId> roots,
                Random& random)
      : name_(std::move(name)),
        options_(std::move(options)),
        members_(std::move(members)),
        roots_(std::move(roots)),
        random_(random),
        coordinator_(NativeCoordinators::Instance().Create(name_, options_)) {}

  void Run(std::uint32_t shards, Round round) {
    std::vector<Id> ids;
    for (const NodeId root : roots_) {
      for (std::uint32_t shard = 0; shard < shards; ++shard) ids.push_back({root, shard});
    }
    std::vector<std::pair<NodeId, Id>> late;
    for (const Id& id : ids) {
      for (const NodeId member : members_) late.push_back({member, id});
    }
    std::shuffle(late.begin(), late.end(), random_);
    sums_.clear(), has_.clear();
    for (const auto& [member, id] : late) {
      if (Between(random_, 0, 1) == 0) Advance();
      sums_[{member, id}] = 1;
      Tell(member, id, round, {.what = What::kReady});
    }
    while (!transfers_.empty()) {
      Advance();
      if (Between(random_, 0, 9) == 0) Restart();
    }
    for (const Id& id : ids) {
      CHECK_EQ((sums_[{id.first, id}]), members_.size());
      CHECK_EQ(has_[id].size(), members_.size());
    }
  }

  // (sender, receiver) of all transfers.
  std::map<std::pair<NodeId, NodeId>, int> sent;

 private:
  using What = OverlayReport::What;
  using Id = std::pair<NodeId, std::uint32_t>;  // root and shard
  struct Transfer {
    NodeId from, to;
    Id id;
    Round round;
    bool up;
    std::size_t sum;
  };

  void Restart() {
    std::vector<std::byte> saved;
    Archive out([&saved](Bytes bytes) { saved.insert(saved.end(), bytes.begin(), bytes.end()); });
    coordinator_->Exchange(out);
    coordinator_ = NativeCoordinators::Instance().Create(name_, options_);
    Archive in{Bytes(saved)};
    coordinator_->Exchange(in);
    in.End();
  }

  void Advance() {
    if (transfers_.empty()) return;
    const auto next = transfers_.begin();
    now_ = next->first;
    const Transfer done = next->second;
    transfers_.erase(next);
    OverlayReport report{.what = What::kHas, .from = done.from, .bytes = 1000};
    if (done.up) {
      const bool arrived = done.to == done.id.first;
      report.what = arrived ? What::kMerged : What::kReady;
      CHECK(arrived || (sums_[{done.to, done.id}]) > 0);  // something to be added to
      sums_[{done.to, done.id}] += done.sum;
    } else {
      CHECK(has_[done.id].insert(done.to).second);
    }
    Tell(done.to, done.id, done.round, report);
    if (report.what == What::kMerged && (sums_[{done.to, done.id}]) == members_.size()) {
      Tell(done.to, done.id, done.round, {.what = What::kOrigin, .members = members_});
    }
  }

  void Tell(NodeId from, const Id& id, Round round, OverlayReport report) {
    report.root = id.first;
    report.shard = id.second;
    report.round = round;
    if (!report.from) report.bytes = 4000;
    for (const auto& reply : coordinator_->OnReport(from, report.Pack(), now_)) {
      const auto order = OverlayOrder::Unpack(reply.values);
      CHECK(order.has_value());
      if (!order) continue;
      const bool up = order->direction == Direction::kPush;
      const Id of{order->root, order->shard};
      std::size_t sum = 0;
      if (up) std::swap(sum, sums_[{reply.to, of}]);
      CHECK(up ? sum > 0 : reply.to == of.first || has_[of].contains(reply.to));  // only what exists is sent
      ++sent[{reply.to, order->target}];
      const Time takes = static_cast<Time>(Between(random_, 1, 1000)) * kMillisecond;
      transfers_.emplace(now_ + takes, Transfer{reply.to, order->target, of, order->round, up, sum});
    }
  }

  std::string name_;
  Options options_;
  std::vector<NodeId> members_, roots_;
  Random& random_;
  std::shared_ptr<Coordinator> coordinator_;
  std::multimap<Time, Transfer> transfers_;
  std::map<std::pair<NodeId, Id>, std::size_t> sums_;
  std::map<Id, std::set<NodeId>> has_;
  Time now_ = 0;
};

}  // namespace geomx::check
