// Overlays with any coordinator: sums and bytes of all trees equal a star's, every member receives every
// value, and invalid messages of members are refused. The coordinator forms random pairs and belongs to
// no plugin.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "core/orders_due.h"
#include "core/overlay.h"
#include "tests/check.h"
#include "tests/cluster.h"
#include "tests/random_pairs.h"
#include "tests/random_plans.h"

namespace geomx {
namespace {

using check::Between;
using check::Cluster;
using check::Plan;
using check::Random;
using check::RandomPairs;
using check::RandomPlans;
using check::Transfer;
using What = OverlayReport::What;

Plan Trees(std::vector<std::uint32_t> parties) {
  Plan plan;
  plan.parties = std::move(parties);
  plan.coordinator = [] { return std::make_shared<RandomPairs>(); };
  return plan;
}

std::uint64_t SentBytes(const Cluster& cluster, Kind kind) {
  std::uint64_t bytes = 0;
  for (const auto& [link, traffic] : cluster.traffic()) {
    if (std::get<2>(link) == kind) bytes += traffic.bytes;
  }
  return bytes;
}

// Sums of integers are exact, so every tree must have the bits of the star.
TEST(TreesHaveTheSumsAndBytesOfTheStar) {
  check::ForSeeds(24, [](std::uint64_t seed) {
    Random random(seed);
    Plan tree = Trees({});
    for (std::uint64_t i = Between(random, 1, 5); i > 0; --i) {
      tree.parties.push_back(static_cast<std::uint32_t>(Between(random, 1, 5)));
    }
    tree.global_servers = static_cast<std::uint32_t>(Between(random, 1, 2));
    tree.frame_bytes = Between(random, 0, 1) == 0 ? 64 : 1 << 20;
    tree.overlay_push = Between(random, 0, 3) > 0;
    tree.overlay_pull = !tree.overlay_push || Between(random, 0, 3) > 0;
    if (Between(random, 0, 1) == 0) {
      tree.overlay_ahead = true;
      tree.coordinator = [push = tree.overlay_push, pull = tree.overlay_pull] {
        return std::make_shared<RandomPlans>(push, pull);
      };
    }
    Plan star = tree;
    star.coordinator = nullptr;
    Cluster one(seed, tree), other(seed, star);
    std::vector<std::vector<ShardInfo>> cuts;
    for (Key key = 0; key < 3; ++key) cuts.push_back(one.RandomShards(40, 3));
    const std::vector<float> start = one.RandomIntegers(40);
    std::map<std::pair<NodeId, int>, std::vector<float>> given;
    for (const NodeId worker : one.workers) {
      for (int i = 0; i < 24; ++i) given[{worker, i}] = one.RandomIntegers(40);
    }
    for (Cluster* cluster : {&one, &other}) {
      for (Key key = 0; key < 3; ++key) {
        cluster->Declare(key, 40, cuts[key]);
        cluster->Init(key, start);
        cluster->RequestAll(key);
      }
      cluster->Command("optimizer\nsgd\nlearning_rate 0.5");
      cluster->Drive();
      for (int round = 0; round < 8; ++round) {  // without waiting for values
        for (const NodeId worker : cluster->workers) {
          for (Key key = 0; key < 3; ++key) {
            cluster->Push(worker, key, given[{worker, round * 3 + static_cast<int>(key)}]);
          }
        }
        if (Between(random, 0, 1) == 0) cluster->Drive();
      }
      cluster->Drive();
      CHECK_EQ(cluster->Lent(), 0u);
      for (const NodeId worker : cluster->workers) {
        cluster->Do(worker, [](Node& node, Time now) { node.Leave(now); });
      }
      cluster->Drive();
      CheckNoErrors(*cluster);
      CHECK(cluster->Count(Event::Kind::kStopped) > 0u);
    }
    for (const NodeId worker : one.workers) {
      for (Key key = 0; key < 3; ++key) {
        CHECK(one.Value(worker, key) == other.Value(worker, key));
      }
    }
    for (const Kind kind : {Kind::kPush, Kind::kValue}) {
      CHECK_EQ(SentBytes(one, kind), SentBytes(other, kind));
    }
    one.ReplayAll();
  });
}

TEST(SimulatedSizesEqualTheTrafficOfTrees) {
  std::map<std::tuple<NodeId, NodeId, Kind>, check::Wire::Traffic> traffic[2];
  for (const bool phantom : {false, true}) {
    Plan plan = Trees({3, 4, 2});
    plan.phantom = phantom;
    Cluster cluster(5, plan);
    cluster.Declare(0, 200, cluster.RandomShards(200, 3));
    cluster.Init(0, cluster.RandomValues(200));
    cluster.RequestAll(0);
    cluster.Drive();
    for (int round = 0; round < 3; ++round) {
      for (const NodeId worker : cluster.workers) {
        cluster.Push(worker, 0, std::vector<float>(200, 1.0f));
      }
      cluster.Drive();
    }
    CheckNoErrors(cluster);
    traffic[phantom] = cluster.traffic();
  }
  CHECK(traffic[0] == traffic[1]);
}

// A tree loses no more slices than a star, and adds a late one once.
TEST(TreesCompleteWithLostSlices) {
  check::ForSeeds(10, [](std::uint64_t seed) {
    Plan plan = Trees({3, 4, 2});
    plan.wan_push.slicers = plan.wan_pull.slicers = {check::BlockSlices(8, 3)};
    plan.wan_push.grace = plan.wan_pull.grace = kMillisecond;
    Cluster cluster(seed, plan);
    cluster.faults = {.loss = 0.3, .duplicate = 0.1, .delay = 0.3};
    cluster.Declare(0, 200, {{.elements = 200}});
    cluster.Init(0, std::vector<float>(200, 0.0f));
    cluster.RequestAll(0);
    cluster.Drive(kSecond);
    constexpr int kRounds = 6;
    for (int round = 0; round < kRounds; ++round) {
      for (const NodeId worker : cluster.workers) {
        cluster.Push(worker, 0, std::vector<float>(200, 1.0f));
      }
      cluster.Drive(kSecond);
      for (const NodeId worker : cluster.workers) {
        for (const float value : cluster.Value(worker, 0)) {
          CHECK(value >= 0 && value <= 2 * 9);  // at most this round and a late one before it
        }
      }
    }
    CheckNoErrors(cluster);
    CHECK_EQ(cluster.Count(Event::Kind::kValueReady), (kRounds + 1) * cluster.workers.size());
  });
}

// Leaving a round that waits is a loss, even if contributions are merged by others.
TEST(LeavingAWaitingRoundIsALossInTrees) {
  Cluster cluster(1, Trees({3}));
  cluster.Declare(0, 4, {{.elements = 4}});
  cluster.Init(0, {1, 2, 3, 4});
  cluster.RequestAll(0);
  cluster.Drive();
  for (std::size_t i = 0; i < 2; ++i) cluster.Push(cluster.workers[i], 0, {1, 1, 1, 1});
  cluster.Do(cluster.workers[2], [](Node& node, Time now) { node.Leave(now); });
  cluster.Drive();
  const auto dead = cluster.Events(cluster.workers[0], Event::Kind::kDead);
  CHECK_EQ(dead.size(), 1u);
  if (!dead.empty()) CHECK_EQ(dead.front().text, Cluster::Name(cluster.workers[2]));
}

TEST(MessagesOfSiblingsWithoutAnOrderAreRefused) {
  const auto errors_after = [](const Plan& plan, auto&& act) {
    Cluster cluster(1, plan);
    cluster.Declare(0, 4, {{.elements = 4}});
    cluster.Init(0, {1, 2, 3, 4});
    cluster.RequestAll(0);
    cluster.Drive();
    CHECK_EQ(cluster.Count(Event::Kind::kPeerError), 0u);
    act(cluster, cluster.workers[0], cluster.workers[1]);
    return cluster.Count(Event::Kind::kPeerError);
  };
  // A contribution without a waiting one, and for another round.
  CHECK_EQ(errors_after(Trees({3}), [](Cluster& cluster, NodeId one, NodeId other) {
             cluster.Deliver(one, other, Transfer(Kind::kPush, one, 1, 4));
           }), 1u);
  // A value of a size that the tensor does not have.
  CHECK_EQ(errors_after(Trees({3}), [](Cluster& cluster, NodeId one, NodeId other) {
             cluster.Deliver(one, other, Transfer(Kind::kValue, one, 1, 5));
           }), 1u);
  // Overlays of one direction only.
  Plan plan = Trees({3});
  plan.overlay_push = false;
  CHECK_EQ(errors_after(plan, [](Cluster& cluster, NodeId one, NodeId other) {
             cluster.Deliver(one, other, Transfer(Kind::kPush, one, 1, 4));
           }), 1u);
  // Orders to send missing data, to an unknown node, or from another node than the coordinator. Orders for
  // no overlay are replies to the application.
  const auto order = [](NodeId from, NodeId root, NodeId target, std::uint32_t number) {
    Message message;
    message.header.kind = Kind::kReply;
    message.header.source = from;
    message.header.key = number;
    message.payload =
        Payload::Copy(PackNumbers(OverlayOrder{Direction::kPull, root, 0, 0, 9, target}.Pack()));
    message.header.payload_bytes = static_cast<std::uint32_t>(message.payload.size());
    return message;
  };
  CHECK_EQ(errors_after(Trees({3}), [&](Cluster& cluster, NodeId one, NodeId other) {
             const NodeId server = cluster.servers[0];
             cluster.Deliver(server, one, order(server, server, other, 3));
             cluster.Deliver(server, one, order(server, server, one, 3));
             cluster.Deliver(server, one, order(server, server, cluster.globals[0], 3));
           }), 3u);
  CHECK_EQ(errors_after(Trees({3}), [&](Cluster& cluster, NodeId one, NodeId other) {
             cluster.Deliver(other, one, order(other, cluster.servers[0], other, 3));
             cluster.Deliver(cluster.servers[0], one, order(cluster.servers[0], 99, other, 3));
             CHECK_EQ(cluster.Events(one, Event::Kind::kReply).size(), 1u);
           }), 1u);
}

// Where rounds are planned, a contribution may arrive before this server has the shard's initial value. It is kept
// until that has come, and checked then.
TEST(ContributionsBeforeTheInitialValueAreKept) {
  for (const std::uint32_t elements : {4u, 5u}) {
    Plan plan = Trees({1, 1});
    plan.strict = plan.overlay_ahead = true;
    plan.coordinator = [] { return std::make_shared<RandomPlans>(true, true); };
    Cluster cluster(1, plan);
    const NodeId early = cluster.servers[0], server = cluster.servers[1];
    cluster.Deliver(early, server, Transfer(Kind::kPush, early, 1, elements));
    CHECK_EQ(cluster.Count(Event::Kind::kPeerError), 0u);
    cluster.Declare(0, 4, {{.elements = 4}});
    cluster.Init(0, {1, 2, 3, 4});
    cluster.RequestAll(0);
    cluster.Drive();
    CHECK(cluster.Value(cluster.workers[1], 0) == std::vector<float>({1, 2, 3, 4}));
    const auto errors = cluster.Events(server, Event::Kind::kPeerError);
    CHECK_EQ(errors.size(), elements == 4 ? 0u : 1u);
    if (!errors.empty()) CHECK_EQ(errors[0].peer, early);
  }
  Plan plan = Trees({1, 1});
  plan.strict = true;
  for (const bool ahead : {false, true}) {
    plan.overlay_ahead = ahead;
    Cluster cluster(1, plan);
    const NodeId early = cluster.servers[0];
    for (int i = 0; i < 2; ++i) cluster.Deliver(early, cluster.servers[1], Transfer(Kind::kPush, early, 1, 4));
    const auto errors = cluster.Events(cluster.servers[1], Event::Kind::kPeerError);
    CHECK_EQ(errors.size(), ahead ? 1u : 2u);
    CHECK_EQ(errors.front().reason, ahead ? "more slices of a contribution than it has"
                                          : "push of a key that was never initialised");
  }
}

// What is kept for initial values that never come is bounded in bytes. The sender of the most is refused, and
// what it has sent is forgotten; what another has sent is used when its initial value has come.
TEST(KeptContributionsAreBoundedInBytes) {
  Plan plan = Trees({1, 1, 1});
  plan.strict = plan.overlay_ahead = true;
  plan.coordinator = [] { return std::make_shared<RandomPlans>(true, true); };
  plan.most_early_bytes = 64 * 1024;
  Cluster cluster(1, plan);
  const NodeId server = cluster.servers[0], other = cluster.servers[1], hostile = cluster.servers[2];
  const auto send = [&](NodeId from, Key key, std::uint32_t elements) {
    Message message = Transfer(Kind::kPush, from, 1, elements);
    message.header.key = key;
    cluster.Deliver(from, server, message);
  };
  send(other, 0, 4);
  for (Key key = 1; key <= 6; ++key) {
    CHECK_EQ(cluster.Count(Event::Kind::kPeerError), 0u);
    send(hostile, key, 2500);
  }
  send(other, 7, 4);
  send(other, 8, 4);
  for (Key key = 9; key <= 13; ++key) send(hostile, key, 2500);  // what was forgotten does not count
  const auto errors = cluster.Events(server, Event::Kind::kPeerError);
  CHECK_EQ(errors.size(), 1u);
  CHECK_EQ(errors[0].peer, hostile);
  CHECK_EQ(errors[0].reason, "contributions that cannot be used yet, of keys that were never initialised or before the "
                             "optimizer is known: all of these may take 65536 bytes here, half of the memory that was "
                             "free");
}

// A coordinator does not reply to reports about unknown members.
TEST(ReportsAboutUnknownMembersAreRefused) {
  Plan plan = Trees({3});
  Cluster cluster(1, plan);
  const NodeId server = cluster.servers[0], worker = cluster.workers[0];
  const OverlayReport report{
      .what = What::kOrigin, .root = server, .round = 1, .from = NodeId{77}, .members = {worker}};
  Message message;
  message.header.kind = Kind::kReport;
  message.header.source = worker;
  message.header.key = 3;
  message.payload = Payload::Copy(PackNumbers(report.Pack()));
  message.header.payload_bytes = static_cast<std::uint32_t>(message.payload.size());
  for (int i = 0; i < 20; ++i) cluster.Deliver(worker, server, message);
  CHECK(cluster.Count(Event::Kind::kPeerError) > 0u);
}

TEST(ReportsAndOrdersRoundTrip) {
  check::ForSeeds(20, [](std::uint64_t seed) {
    Random random(seed);
    const auto id = [&] { return static_cast<NodeId>(Between(random, 0, UINT32_MAX)); };
    OverlayReport report{.what = static_cast<What>(Between(random, 0, 3)),
                         .root = id(),
                         .key = id(),
                         .shard = id(),
                         .round = id(),
                         .priority = static_cast<std::int32_t>(id()),
                         .bytes = Between(random, 0, 1ull << 52),
                         .spread = static_cast<Time>(Between(random, 0, 1ull << 52))};
    if (Between(random, 0, 1) == 0) report.from = id();
    for (std::uint64_t i = Between(random, 0, 5); i > 0; --i) report.members.push_back(id());
    std::vector<double> numbers = report.Pack();
    const auto back = OverlayReport::Unpack(numbers);
    CHECK(back.has_value() && back->Pack() == numbers && back->from == report.from);
    numbers[Between(random, 0, numbers.size() - 1)] = Between(random, 0, 1) == 0 ? 0.5 : -2.0;
    const auto broken = OverlayReport::Unpack(numbers);
    CHECK(!broken || broken->Pack() == numbers);  // -2 is a valid priority
    numbers.resize(8);
    CHECK(!OverlayReport::Unpack(numbers));

    const OverlayOrder order{Direction::kPush, id(), id(), id(), id(), id()};
    numbers = order.Pack();
    const auto same = OverlayOrder::Unpack(numbers);
    CHECK(same.has_value() && same->Pack() == numbers);
    numbers[Between(random, 0, 5)] = std::nan("");
    CHECK(!OverlayOrder::Unpack(numbers));

    OverlayPlan plan{.direction = Between(random, 0, 1) == 0 ? Direction::kPush : Direction::kPull,
                     .root = id(),
                     .reports = Between(random, 0, 1) == 0};
    const bool up = plan.direction == Direction::kPush;
    if (up) plan.awaited = id();
    for (std::uint64_t i = Between(random, 0, up ? 1 : 5); i > 0; --i) plan.targets.push_back(id());
    for (std::uint64_t i = Between(random, 0, 5); i > 0; --i) {
      const Round first = std::max<Round>(1, id());
      plan.shards.push_back({id(), id(), first, static_cast<Round>(Between(random, first, UINT32_MAX))});
    }
    numbers = plan.Pack();
    const auto again = OverlayPlan::Unpack(numbers);
    CHECK(again.has_value() && again->Pack() == numbers);
    CHECK(!OverlayOrder::Unpack(numbers));
    numbers.push_back(1);  // part of a shard
    CHECK(!OverlayPlan::Unpack(numbers));
    numbers.pop_back();
    numbers[Between(random, 0, 4)] = Between(random, 0, 1) == 0 ? -1.0 : std::nan("");
    CHECK(!OverlayPlan::Unpack(numbers));
  });
}

TEST(AnOrderIsDueWhereAllHaveReportedAndNothingIsUnderWay) {
  const std::map<NodeId, std::uint32_t> members{{9, 2}};
  OrdersDue orders(members);
  NodeId root = 9;
  const auto is_due = [&] {
    Waits waits;
    orders.ListWaits(waits);
    return !waits.Take().empty();
  };
  const auto after_report = [&](What what, NodeId of, std::optional<NodeId> from, Round round) {
    OverlayReport report{.what = what, .root = root, .round = round, .from = from};
    if (what == What::kOrigin) report.members = {1, 2};
    orders.Reported(3, of, report.Pack());
    return is_due();
  };
  const auto after_order = [&](Direction direction, NodeId of, NodeId target, Round round) {
    orders.Replied(3, of, OverlayOrder{direction, root, 0, 0, round, target}.Pack());
    return is_due();
  };
  for (Round round = 1; round < 3; ++round) {
    CHECK(!after_report(What::kReady, 1, {}, round));
    CHECK(after_report(What::kReady, 2, {}, round));
    CHECK(!after_order(Direction::kPush, 1, 2, round));
    CHECK(after_report(What::kReady, 2, 1, round));
    CHECK(!after_order(Direction::kPush, 2, 9, round));
    CHECK(!after_report(What::kMerged, 9, 2, round));
    CHECK(after_report(What::kOrigin, 9, {}, round));
    CHECK(!after_order(Direction::kPull, 9, 1, round));
    CHECK(after_report(What::kHas, 1, 9, round));
    CHECK(!after_order(Direction::kPull, 1, 2, round));
    CHECK(!after_report(What::kHas, 2, 1, round));
  }
  // A transfer that is under way when its shard's next round begins does not count any more.
  CHECK(!after_report(What::kReady, 1, {}, 3));
  CHECK(!after_order(Direction::kPush, 1, 9, 3));
  CHECK(!after_report(What::kReady, 1, {}, 4));
  CHECK(after_report(What::kReady, 2, {}, 4));
  CHECK(!after_order(Direction::kPush, 1, 9, 4));
  CHECK(!after_order(Direction::kPush, 2, 9, 4));
  root = 8;  // whose members plan ahead
  CHECK(!after_report(What::kOrigin, 8, {}, 9));
}

// Plans to unknown nodes, to oneself, and in an overlay that does not say that it plans ahead.
TEST(PlansThatNobodyCanFollowAreRefused) {
  for (const bool ahead : {true, false}) {
    Plan plan = Trees({3});
    plan.overlay_ahead = ahead;
    Cluster cluster(1, plan);
    const NodeId server = cluster.servers[0], one = cluster.workers[0], other = cluster.workers[1];
    const auto deliver = [&](Direction direction, NodeId target) {
      const OverlayPlan made{.direction = direction, .root = server, .targets = {target}};
      Message message;
      message.header.kind = Kind::kReply;
      message.header.source = server;
      message.header.key = 3;
      message.payload = Payload::Copy(PackNumbers(made.Pack()));
      message.header.payload_bytes = static_cast<std::uint32_t>(message.payload.size());
      cluster.Deliver(server, one, message);
      return cluster.Count(Event::Kind::kPeerError);
    };
    CHECK_EQ(deliver(Direction::kPush, one), 1u);
    CHECK_EQ(deliver(Direction::kPush, cluster.globals[0]), 2u);
    CHECK_EQ(deliver(Direction::kPull, server), 3u);
    CHECK_EQ(deliver(Direction::kPull, other), ahead ? 3u : 4u);
    CHECK_EQ(deliver(Direction::kPush, server), ahead ? 3u : 5u);
  }
}

}  // namespace
}  // namespace geomx
