// The law of an overlay's coordinator, for any order of reports: in each round of a shard, the root's sum
// contains each contribution exactly once, and each member receives the value exactly once. Plans are
// followed like orders, and arrive late.
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
    sums_.clear(), has_.clear(), own_.clear(), arrived_.clear(), waiting_.clear();
    for (const auto& [member, id] : late) {
      if (Between(random_, 0, 1) == 0) Advance();
      sums_[{member, id}] += 1;
      own_.insert({member, id});
      rounds_[id] = round;
      if (!Climb(member, id)) Tell(member, id, round, {.what = What::kReady});
    }
    while (!transfers_.empty() || !arriving_.empty()) {
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
    bool reports = true, planned = true;
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

  // Sends what a plan lets go; returns false if there is no plan.
  bool Climb(NodeId node, const Id& id) {
    const auto* way = plans_[node].Find({Direction::kPush, id.first, 0, id.second}, rounds_[id]);
    if (way == nullptr || way->targets.empty()) return false;
    if (!own_.contains({node, id}) || arrived_[{node, id}] < way->awaited) return true;
    own_.erase({node, id});
    std::size_t sum = 0;
    std::swap(sum, sums_[{node, id}]);
    Leave({node, way->targets.front(), id, rounds_[id], true, sum, way->reports});
    return true;
  }
  bool Descend(NodeId node, const Id& id) {
    const auto* way = plans_[node].Find({Direction::kPull, id.first, 0, id.second}, rounds_[id]);
    if (way == nullptr) return false;
    for (const NodeId target : way->targets) Leave({node, target, id, rounds_[id], false, 0, way->reports});
    return true;
  }
  void Leave(const Transfer& transfer) {
    ++sent[{transfer.from, transfer.to}];
    transfers_.emplace(now_ + static_cast<Time>(Between(random_, 1, 1000)) * kMillisecond, transfer);
  }
  void Follow() {
    now_ = std::max(now_, arriving_.begin()->first);
    const auto [node, plan] = arriving_.begin()->second;
    arriving_.erase(arriving_.begin());
    plans_[node].Add(plan);
    for (const auto& [id, round] : std::map(rounds_)) {
      if (id.first != plan.root) continue;
      if (plan.direction == Direction::kPush) {
        Climb(node, id);
      } else if (waiting_.contains({node, id}) && Descend(node, id)) {
        waiting_.erase({node, id});
      }
    }
  }
  void Value(NodeId node, const Id& id, OverlayReport report) {
    const auto* way = plans_[node].Find({Direction::kPull, id.first, 0, id.second}, rounds_[id]);
    if (way == nullptr) waiting_.insert({node, id});
    if (way != nullptr) Descend(node, id);
    if (way == nullptr || (report.from && way->reports)) Tell(node, id, rounds_[id], report);
  }

  void Advance() {
    if (!arriving_.empty() && (transfers_.empty() || arriving_.begin()->first <= transfers_.begin()->first)) {
      return Follow();
    }
    if (transfers_.empty()) return;
    const auto next = transfers_.begin();
    now_ = next->first;
    const Transfer done = next->second;
    transfers_.erase(next);
    OverlayReport report{.what = What::kHas, .from = done.from, .bytes = 1000};
    if (done.up) {
      const bool arrived = done.to == done.id.first;
      report.what = arrived ? What::kMerged : What::kReady;
      CHECK(arrived || done.planned || (sums_[{done.to, done.id}]) > 0);  // something to be added to
      sums_[{done.to, done.id}] += done.sum;
      ++arrived_[{done.to, done.id}];
      if (done.reports) Tell(done.to, done.id, done.round, report);
      if (!arrived && done.planned) Climb(done.to, done.id);
    } else {
      CHECK(has_[done.id].insert(done.to).second);
      Value(done.to, done.id, report);
    }
    if (report.what == What::kMerged && (sums_[{done.to, done.id}]) == members_.size()) {
      Value(done.to, done.id, {.what = What::kOrigin, .members = members_});
    }
  }

  void Tell(NodeId from, const Id& id, Round round, OverlayReport report) {
    report.root = id.first;
    report.shard = id.second;
    report.round = round;
    if (!report.from) report.bytes = 4000;
    for (const auto& reply : coordinator_->OnReport(from, report.Pack(), now_)) {
      if (const auto plan = OverlayPlan::Unpack(reply.values)) {
        const Time takes = static_cast<Time>(Between(random_, 0, 300)) * kMillisecond;
        arriving_.emplace(now_ + takes, std::pair{reply.to, *plan});
        continue;
      }
      const auto order = OverlayOrder::Unpack(reply.values);
      CHECK(order.has_value());
      if (!order) continue;
      const bool up = order->direction == Direction::kPush;
      const Id of{order->root, order->shard};
      std::size_t sum = 0;
      if (up) std::swap(sum, sums_[{reply.to, of}]);
      CHECK(up ? sum > 0 : reply.to == of.first || has_[of].contains(reply.to));  // only what exists is sent
      if (up) own_.erase({reply.to, of});
      Leave({reply.to, order->target, of, order->round, up, sum, true, false});
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
  std::multimap<Time, std::pair<NodeId, OverlayPlan>> arriving_;  // plans
  std::map<NodeId, OverlayPlans> plans_;
  std::map<Id, Round> rounds_;
  std::map<std::pair<NodeId, Id>, std::size_t> arrived_;
  std::set<std::pair<NodeId, Id>> own_, waiting_;  // contributions and values that are not yet sent
  Time now_ = 0;
};

}  // namespace geomx::check
