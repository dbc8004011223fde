// TSEngine's scheduler: minimal depth of trees, rate of exploration, expiry of samples, limits on
// transfers, unique orders, and plans: rates of links, trees, and the star. Clusters are tested in Python.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/natives.h"
#include "core/overlay.h"
#include "tests/check.h"
#include "tests/overlay_rounds.h"
#include "tests/seeds.h"
#include "trees.h"

namespace geomx {
namespace {

using What = OverlayReport::What;

constexpr NodeId kRoot = 100;

Options Defaults() {
  return {{"greed", 0.9}, {"expiry_rounds", 5}, {"in_flight", 4}, {"seed", 1}};
}

std::shared_ptr<Coordinator> Make(const Options& options) {
  return NativeCoordinators::Instance().Create("tsengine", options);
}

// A group with simulated transfers, of a time per pair; by default, one second.
class Group {
 public:
  Group(std::uint32_t members, const Options& options) : coordinator_(Make(options)) {
    for (NodeId id = 1; id <= members; ++id) members_.push_back(id);
  }

  // Runs one round of each key, up or down; returns its duration.
  Time Run(std::uint32_t keys, Round round, bool up) {
    const Time began = now_;
    sums_.clear();
    served_.clear();
    for (Key key = 0; key < keys; ++key) {
      if (!up) {
        served_[key] = {kRoot};
        Tell(kRoot, Report(What::kOrigin, key, round));
        continue;
      }
      for (const NodeId member : members_) {
        sums_[{member, key}] = 1;
        Tell(member, Report(What::kReady, key, round));
      }
    }
    while (!transfers_.empty()) {
      const auto next = transfers_.begin();
      now_ = next->first;
      const Transfer transfer = next->second;
      transfers_.erase(next);
      --sending[transfer.from];
      --receiving[transfer.to];
      const Key key = transfer.order.key;
      OverlayReport report = Report(transfer.to == kRoot ? What::kMerged : What::kReady, key, round);
      if (up) {
        sums_[{transfer.to, key}] += transfer.sum;
      } else {
        report.what = What::kHas;
        CHECK(served_[key].insert(transfer.to).second);  // each node receives the value once
      }
      report.from = transfer.from;
      report.bytes = 1000;
      report.spread = now_ - transfer.began;  // at a constant rate, without a delay
      Tell(transfer.to, report);
    }
    for (Key key = 0; key < keys; ++key) {
      if (up) {
        CHECK_EQ((sums_[{kRoot, key}]), members_.size());
      } else {
        CHECK_EQ(served_[key].size(), members_.size() + 1);
      }
    }
    return now_ - began;
  }

  std::map<std::pair<NodeId, NodeId>, Time> takes;
  std::map<std::pair<NodeId, NodeId>, int> meetings;
  std::map<NodeId, int> sending, receiving;
  int most = 0;  // largest number of concurrent transfers of a node in one direction

 private:
  struct Transfer {
    NodeId from, to;
    OverlayOrder order;
    std::size_t sum;
    Time began;
  };

  OverlayReport Report(What what, Key key, Round round) const {
    OverlayReport report{.what = what, .root = kRoot, .key = key, .round = round};
    if (what == What::kOrigin) report.members = members_;
    return report;
  }

  void Tell(NodeId from, const OverlayReport& report) {
    for (const auto& reply : coordinator_->OnReport(from, report.Pack(), now_)) {
      const auto order = OverlayOrder::Unpack(reply.values);
      CHECK(order.has_value());
      if (!order) continue;
      const bool up = order->direction == Direction::kPush;
      const NodeId to = order->target;
      const std::size_t sum = up ? std::exchange(sums_[{reply.to, order->key}], 0) : 0;
      // Orders concern existing data and members only.
      CHECK(up ? sum > 0 && (to == kRoot || (sums_[{to, order->key}]) > 0)
               : served_[order->key].contains(reply.to));
      const auto found = takes.find({reply.to, to});
      const Time time = found == takes.end() ? kSecond : found->second;
      transfers_.emplace(now_ + time, Transfer{reply.to, to, *order, sum, now_});
      ++meetings[{reply.to, to}];
      most = std::max({most, ++sending[reply.to], ++receiving[to]});
    }
  }

  std::shared_ptr<Coordinator> coordinator_;
  std::vector<NodeId> members_;
  std::multimap<Time, Transfer> transfers_;
  std::map<std::pair<NodeId, Key>, std::size_t> sums_;
  std::map<Key, std::set<NodeId>> served_;
  Time now_ = 0;
};

TEST(TsengineTreesOfEqualLinksHaveMinimalDepth) {
  for (std::uint32_t members = 2; members <= 40; ++members) {
    Group group(members, Defaults());
    const auto depth = static_cast<Time>(std::ceil(std::log2(members + 1.0))) * kSecond;
    for (Round round = 1; round <= 4; ++round) {
      CHECK_EQ(group.Run(1, round, false), depth);
      CHECK_EQ(group.Run(1, round, true), depth);
    }
  }
}

TEST(TsengineLimitsTransfersOfManyKeys) {
  check::ForSeeds(20, [](std::uint64_t seed) {
    check::Random random(seed);
    Options options = Defaults();
    options["in_flight"] = static_cast<double>(check::Between(random, 1, 5));
    options["seed"] = static_cast<double>(seed);
    const auto members = static_cast<std::uint32_t>(check::Between(random, 2, 12));
    Group group(members, options);
    for (NodeId from = 1; from <= members; ++from) {
      for (NodeId to = 1; to <= members; ++to) {
        group.takes[{from, to}] = static_cast<Time>(check::Between(random, 1, 9)) * kMillisecond;
      }
    }
    const auto keys = static_cast<std::uint32_t>(check::Between(random, 1, 30));
    for (Round round = 1; round <= 3; ++round) {
      group.Run(keys, round, true);
      group.Run(keys, round, false);
    }
    CHECK(group.most <= static_cast<int>(options["in_flight"]));
  });
}

// The root has the value and two members lack it, so the first pair of a round has two candidates.
TEST(TsengineExploresWithTheConfiguredProbability) {
  for (const double greed : {0.0, 0.5, 0.9, 1.0}) {
    Options options = Defaults();
    options["greed"] = greed;
    options["expiry_rounds"] = 1e6;
    auto coordinator = Make(options);
    const Round rounds = check::Draws(20'000);
    int slow_first = 0;
    Time now = 0;
    for (Round round = 1; round <= rounds; ++round) {
      const auto tell = [&](NodeId from, What what, std::optional<NodeId> sender, Time took = 0) {
        OverlayReport report{.what = what, .root = kRoot, .round = round, .from = sender};
        if (what == What::kOrigin) report.members = {1, 2};
        if (sender) report.bytes = 1000;
        report.spread = took;
        return coordinator->OnReport(from, report.Pack(), now);
      };
      auto replies = tell(kRoot, What::kOrigin, std::nullopt);
      CHECK_EQ(replies.size(), 1u);
      const NodeId first = OverlayOrder::Unpack(replies.at(0).values)->target;
      slow_first += round > 10 && first == 2;
      // Transfers to member 2 are slow.
      Time takes = first == 1 ? kMillisecond : kSecond;
      now += takes;
      replies = tell(first, What::kHas, kRoot, takes);
      CHECK_EQ(replies.size(), 1u);
      takes = first == 1 ? kSecond : kMillisecond;
      now += takes;
      CHECK(tell(3 - first, What::kHas, replies.at(0).to, takes).empty());
    }
    // All pairs are known, so exploration selects either with equal probability.
    const double expected = (1 - greed) / 2;
    const double seen = static_cast<double>(slow_first) / static_cast<double>(rounds);
    CHECK(std::abs(seen - expected) <= 2.8 / std::sqrt(rounds));  // at least 5.6 standard deviations
  }
}

TEST(TsengineExpiresSamplesAndAdaptsToLinks) {
  Options options = Defaults();
  options["greed"] = 1;
  Group group(2, options);
  const auto slow_is = [&](NodeId slow) {
    for (const NodeId from : {kRoot, NodeId{1}, NodeId{2}}) {
      for (const NodeId to : {NodeId{1}, NodeId{2}}) {
        group.takes[{from, to}] = to == slow ? kSecond : kMillisecond;
      }
    }
  };
  slow_is(2);
  Round round = 1;
  for (; round <= 20; ++round) group.Run(1, round, false);
  slow_is(1);
  for (; round <= 40; ++round) group.Run(1, round, false);
  // A link that becomes slow is measured at once; one that becomes fast is tried after expiry.
  group.meetings.clear();
  for (; round <= 140; ++round) group.Run(1, round, false);
  CHECK((group.meetings[{kRoot, 2}]) > 70);
}

// Where an order takes longer than a transfer, members soon send to the root without asking; where the
// root's link takes the time, they go on to meet in pairs.
TEST(TsengineSendsAlongTheStarWhereOrdersTakeLonger) {
  for (const bool far : {true, false}) {
    Options options = Defaults();
    for (NodeId member = 1; member <= 4; ++member) options["member " + std::to_string(member)] = 1;
    auto coordinator = Make(options);
    const Time delay = far ? kSecond : kMillisecond, spread = far ? kMillisecond : kSecond;
    std::map<NodeId, OverlayPlans> plans;
    std::size_t reported = 0;
    Time now = 0;
    for (Round round = 1; round <= 6; ++round) {
      std::deque<std::pair<NodeId, OverlayOrder>> orders;
      const auto tell = [&](NodeId from, OverlayReport report) {
        report.root = kRoot;
        report.round = round;
        report.bytes = 1'000'000;
        for (const auto& reply : coordinator->OnReport(from, report.Pack(), now)) {
          if (const auto plan = OverlayPlan::Unpack(reply.values)) {
            plans[reply.to].Add(*plan);
            continue;
          }
          const auto order = OverlayOrder::Unpack(reply.values);
          CHECK(order.has_value());
          if (order) orders.push_back({reply.to, *order});
        }
      };
      const OverlayItem item{.root = kRoot};
      std::vector<NodeId> direct;
      for (NodeId member = 1; member <= 4; ++member) {
        const auto* way = plans[member].Find(item, round);
        if (way == nullptr) continue;
        CHECK(way->targets == std::vector<NodeId>{kRoot} && way->awaited == 0);
        direct.push_back(member);
      }
      reported = 4 - direct.size();
      for (NodeId member = 1; member <= 4 && direct.empty(); ++member) tell(member, {.what = What::kReady});
      for (const NodeId member : direct) {
        now += spread;
        tell(kRoot, {.what = What::kMerged, .from = member, .spread = spread});
      }
      while (!orders.empty()) {
        now += delay + spread;
        for (const auto& [sender, order] : std::exchange(orders, {})) {
          tell(order.target, {.what = order.target == kRoot ? What::kMerged : What::kReady,
                              .from = sender,
                              .spread = spread});
        }
      }
    }
    CHECK_EQ(reported, far ? 0u : 4u);  // in the last round
  }
}

// Members whose routes share links, so that rounds of many shards are planned; others begin along pairs.
TEST(TsengineAddsEveryContributionOnceAndForwardsEveryValueOnce) {
  check::ForSeeds(60, [](std::uint64_t seed) {
    check::Random random(seed);
    Options options = Defaults();
    const auto count = static_cast<NodeId>(check::Between(random, 2, 9));
    std::vector<NodeId> members, nodes = {kRoot};
    for (NodeId id = 1; id <= count; ++id) members.push_back(id);
    nodes.insert(nodes.end(), members.begin(), members.end());
    for (const NodeId member : members) options["member " + std::to_string(member)] = 1;
    const bool meshed = check::Between(random, 0, 2) > 0;
    for (const NodeId from : nodes) {
      for (const NodeId to : nodes) {
        if (from == to) continue;
        const std::string pair = std::to_string(from) + " " + std::to_string(to);
        options["delay " + pair] = 1e-3 * static_cast<double>(check::Between(random, 0, 50));
        if (!meshed) continue;
        for (int at = 0; at < 2; ++at) {
          options["route " + pair + " " + std::to_string(at)] = static_cast<double>(check::Between(random, 0, 9));
        }
      }
    }
    for (int link = 0; link < 10; ++link) {
      options["rate " + std::to_string(link)] = 1e6 * static_cast<double>(check::Between(random, 2, 20));
    }
    check::OverlayRounds rounds("tsengine", options, members, {kRoot}, random);
    const auto shards = static_cast<std::uint32_t>(check::Between(random, 1, 12));
    for (Round round = 1; round <= 6; ++round) rounds.Run(shards, round);
  });
}

// Members send to the root over links that are drawn anew. Of each route, one link at least is known to be as
// slow as the transfer was, and none to be slower than what crossed it.
TEST(TsengineKnowsALinkThatLimitsEachTransfer) {
  check::ForSeeds(20, [](std::uint64_t seed) {
    check::Random random(seed);
    tsengine::Links links(Options{});
    Time now = 0;
    for (int draw = 0; draw < 4; ++draw) {
      std::map<NodeId, double> rates;
      double total = 0;
      for (NodeId member = 1; member <= 3; ++member) {
        total += rates[member] = 1e6 * static_cast<double>(check::Between(random, 2, 20));
      }
      for (int shard = 0; shard < 32; ++shard) {
        now += kSecond;
        for (const auto& [member, rate] : rates) {
          OverlayReport report{.what = What::kMerged, .root = kRoot, .spread = kSecond - kMillisecond};
          report.bytes = static_cast<std::uint64_t>(rate * 0.999 + tsengine::kFrameBytes);
          links.Arrive({member, kRoot}, report, now);
        }
        if (shard % 8 == 7) links.Read(false);
      }
      const double root = links.Rate(links.Route({1, kRoot}).back());
      CHECK(root >= 0.99 * total);
      for (const auto& [member, rate] : rates) {
        const double own = links.Rate(links.Route({member, kRoot}).front());
        CHECK(own >= 0.99 * rate);
        CHECK(own <= 1.2 * rate || root <= 1.2 * total);
      }
    }
  });
}

// No trees take less than the slowest node needs for one contribution and one value, and no less than all links
// need for those of all. Trees take at most twice that, as members have whole numbers of children, and no more than
// the star.
TEST(TsengineTreesUseTheLinksOfAllMembers) {
  check::ForSeeds(20, [](std::uint64_t seed) {
    check::Random random(seed);
    Options options;
    std::vector<NodeId> members;
    double slowest = 1e12, total = 0;
    for (NodeId id = 1; id <= 10; ++id) {  // 10 is the root
      for (const char* way : {"out", "in"}) {
        const auto link = static_cast<int>(2 * id) + (way[0] == 'o' ? 0 : 1);
        const double rate = 1e6 * static_cast<double>(check::Between(random, 20, 155));
        options[std::string(way) + " " + std::to_string(id)] = link;
        options["rate " + std::to_string(link)] = rate;
        slowest = std::min(slowest, rate);
        total += rate;
      }
      if (id < 10) members.push_back(id);
    }
    const tsengine::Links links(options);
    const tsengine::Planner planner(links, members, 10, {.bytes = 1e9, .largest = 1e6}, true, true, {});
    const tsengine::Trees trees = planner.Grow();
    CHECK_EQ(trees.up.size(), members.size());
    CHECK_EQ(trees.down.size(), members.size());
    CHECK(trees.seconds <= planner.Star().seconds);
    CHECK(trees.seconds <= 2 * std::max(1e9 / slowest, 36e9 / total));
  });
}

// A far member has two neighbours that are near both roots. The trees of each root leave one to those of the other.
TEST(TsengineTreesOfSeveralRootsUseDifferentLinks) {
  check::ForSeeds(10, [](std::uint64_t seed) {
    check::Random random(seed);
    Options options = Defaults();
    int links = 0;
    const auto connect = [&](NodeId one, NodeId other, double rate) {
      for (const auto& [from, to] : {std::pair{one, other}, std::pair{other, one}}) {
        options["route " + std::to_string(from) + " " + std::to_string(to) + " 0"] = links;
        options["rate " + std::to_string(links++)] = rate;
      }
    };
    constexpr NodeId kFar = 3, kRoots[] = {kRoot, kRoot + 1};
    for (const NodeId near : {1u, 2u}) {
      connect(kFar, near, 1e7);
      for (const NodeId root : kRoots) connect(near, root, 1e8);
    }
    connect(1, 2, 1e8);
    for (const NodeId root : kRoots) connect(kFar, root, 1e6);
    for (NodeId member = 1; member <= kFar; ++member) options["member " + std::to_string(member)] = 1;
    check::OverlayRounds rounds("tsengine", options, {1, 2, kFar}, {kRoots[0], kRoots[1]}, random);
    constexpr int kShards = 8;
    for (Round round = 1; round <= 4; ++round) {
      rounds.sent.clear();
      rounds.Run(kShards, round);
    }
    for (const NodeId near : {1u, 2u}) {
      CHECK_EQ((rounds.sent[{kFar, near}]), kShards);
      CHECK_EQ((rounds.sent[{near, kFar}]), kShards);
    }
  });
}

TEST(TsengineIgnoresInvalidReports) {
  auto coordinator = Make(Defaults());
  for (const std::vector<double>& report :
       {std::vector<double>{}, {0, 1, 2}, {9, 1, 1, 1, 1, 1, -1, 0, 0}, {0, -1, 1, 1, 1, 1, -1, 0, 0},
        {0, 1, 1, 1, std::nan(""), 1, -1, 0, 0}, {0, 1, 1, 1, 1, 1, -1, 0, -1}}) {
    CHECK(coordinator->OnReport(1, report, 0).empty());
  }
  // The end of a transfer that was not ordered.
  OverlayReport report{.what = What::kMerged, .root = kRoot, .round = 1, .from = 5};
  CHECK(coordinator->OnReport(kRoot, report.Pack(), 0).empty());
}

}  // namespace
}  // namespace geomx
