// Clusters of real nodes: results of training, and messages.
#include <algorithm>
#include <map>
#include <stdexcept>

#include "core/natives.h"
#include "core/round_times.h"
#include "tests/cluster.h"

namespace geomx {
namespace {

using check::Between;
using check::Cluster;
using check::Plan;
using check::Random;

// Returns the sum of a fully synchronous round, added in the same order as by nodes.
std::vector<float> TreeSum(const Cluster& cluster,
                           const std::map<NodeId, std::vector<float>>& given) {
  std::vector<float> total;
  for (const auto& party : cluster.parties) {
    std::vector<float> sum = given.at(party.front());
    for (std::size_t i = 1; i < party.size(); ++i) {
      for (std::size_t j = 0; j < sum.size(); ++j) sum[j] += given.at(party[i])[j];
    }
    if (total.empty()) {
      total = sum;
    } else {
      for (std::size_t j = 0; j < sum.size(); ++j) total[j] += sum[j];
    }
  }
  return total;
}

Plan RandomPlan(Random& random) {
  Plan plan;
  plan.parties.clear();
  for (std::uint64_t i = Between(random, 1, 3); i > 0; --i) {
    plan.parties.push_back(static_cast<std::uint32_t>(Between(random, 1, 3)));
  }
  plan.global_servers = static_cast<std::uint32_t>(Between(random, 1, 3));
  plan.frame_bytes = static_cast<std::uint32_t>(Between(random, 1, 400));
  return plan;
}

// A push of NaN is refused while the answer to the push before is due: that one is answered as usual.
TEST(ARefusedPushIsNotSubmitted) {
  Plan plan;
  plan.parties = {1};
  plan.non_finite = NonFinite::kRefuse;
  Cluster cluster(1, plan);
  const NodeId worker = cluster.workers.front();
  cluster.Declare(0, 2, {{.elements = 2}});
  cluster.Init(0, {1, 2});
  cluster.RequestAll(0);
  cluster.Drive();
  cluster.Push(worker, 0, {1, 1});
  cluster.Push(worker, 0, {1, std::numeric_limits<float>::quiet_NaN()});
  const auto refused = cluster.Events(worker, Event::Kind::kNonFinite);
  CHECK_EQ(refused.size(), 1u);
  if (!refused.empty()) CHECK_EQ(refused.front().round, 2u);
  cluster.Drive();
  CHECK((cluster.Value(worker, 0) == std::vector<float>{1, 1}));
  cluster.Do(worker, [](Node& node, Time now) { node.Leave(now); });
  cluster.Drive();
  CHECK(cluster.node(cluster.scheduler).stopped());
}

// Every global server forwards the optimizer to the parties at its own time, which must not reset the state
// of another global server's shards.
TEST(InstructionsOfAGlobalServerApplyToItsShards) {
  const auto train = [](bool late) {
    Plan plan;
    plan.global_servers = 2;
    plan.rounds.update_at_party = true;
    Cluster cluster(1, plan);
    cluster.Declare(0, 2, {{.elements = 1}, {.offset = 1, .elements = 1, .server = 1}});
    const std::string text = "optimizer\nsgd\nlearning_rate 0.5\nmomentum 0.5";
    cluster.Command(text);
    cluster.Init(0, {1, 2});
    cluster.RequestAll(0);
    cluster.Drive();
    for (int round = 0; round < 3; ++round) {
      for (const NodeId worker : cluster.workers) cluster.Push(worker, 0, {1, 1});
      cluster.Drive();
      if (!late || round > 0) continue;
      for (const NodeId server : cluster.servers) {
        Message again = ControlMessage(Kind::kCommand, {text});
        again.header.source = cluster.globals.back();
        cluster.Deliver(cluster.globals.back(), server, again);
      }
    }
    return cluster.Value(cluster.workers.front(), 0);
  };
  CHECK_EQ(train(true).front(), train(false).front());
  CHECK(train(true).back() != train(false).back());  // it starts anew, as instructed
}

// Parties run the optimizer first: with SGD the steps of unequal parties add up to the step of all, and
// replicas stay equal.
TEST(StepsOfPartiesAddUpToTheStepOfAll) {
  const auto train = [](bool steps) {
    Plan plan;
    plan.parties = {1, 3};
    plan.rounds.update_at_party = steps;
    plan.rounds.step_first = steps;
    plan.rounds.workers = 4;
    Cluster cluster(3, plan);
    cluster.Declare(0, 2, {{.elements = 2}});
    cluster.Command("optimizer\nsgd\nlearning_rate 0.5\nmomentum 0.5\nrescale_grad 0.25");
    cluster.Init(0, {1, 2});
    cluster.RequestAll(0);
    cluster.Drive();
    for (int round = 0; round < 3; ++round) {
      for (const NodeId worker : cluster.workers) {
        cluster.Push(worker, 0, {static_cast<float>(worker), 1});
      }
      cluster.Drive();
    }
    CheckNoErrors(cluster);
    const auto value = cluster.Value(cluster.workers.front(), 0);
    for (const NodeId worker : cluster.workers) CHECK(cluster.Value(worker, 0) == value);
    return value;
  };
  const auto here = train(false), there = train(true);
  for (std::size_t i = 0; i < here.size(); ++i) CHECK(std::abs(here[i] - there[i]) < 1e-5);
  CHECK(std::abs(here.back() - 2) > 0.1);
}

// Where no optimizer runs at the parties, workers receive sums of gradients: equal ones, without what their own
// party's codec has kept.
TEST(WithoutAnOptimizerAllPartiesReceiveTheSameSum) {
  check::ForSeeds(8, [](std::uint64_t seed) {
    constexpr std::uint32_t kElements = 40, kLeast = 1, kMost = 9, kRounds = 4;
    Random random(seed);
    Plan plan = RandomPlan(random);
    plan.rounds.update_at_party = plan.rounds.step_first = true;
    for (const std::uint32_t workers : plan.parties) plan.rounds.workers += workers;
    plan.wan_push.codecs = {NativeCodecs::Instance().Create(
        "bisparse", {{"ratio", 0.1}, {"momentum", 0}, {"masking", 0}, {"clip", 0}, {"warmup_rounds", 0},
                     {"exact", 1}, {"flush", 0}})};
    Cluster cluster(seed, plan);
    cluster.Declare(0, kElements, cluster.RandomShards(kElements, 3));
    cluster.Init(0, std::vector<float>(kElements, 0.0f));
    cluster.RequestAll(0);
    cluster.Drive();
    std::vector<float> pushed(kElements), received(kElements);
    for (std::uint32_t round = 0; round < kRounds; ++round) {
      for (const NodeId worker : cluster.workers) {
        std::vector<float> gradient(kElements);
        for (std::uint32_t i = 0; i < kElements; ++i) {
          gradient[i] = static_cast<float>(Between(random, kLeast, kMost));
          pushed[i] += gradient[i];
        }
        cluster.Push(worker, 0, gradient);
      }
      cluster.Drive();
      const std::vector<float> sum = cluster.Value(cluster.workers.front(), 0);
      for (const NodeId worker : cluster.workers) CHECK(cluster.Value(worker, 0) == sum);
      for (std::uint32_t i = 0; i < kElements; ++i) received[i] += sum[i];
    }
    for (std::uint32_t i = 0; i < kElements; ++i) CHECK(received[i] <= pushed[i]);  // and nothing twice
    CHECK(received != pushed);
    CheckNoErrors(cluster);
  });
}

TEST(FsaSumsDoNotDependOnTheOrderOfDelivery) {
  check::ForSeeds(40, [](std::uint64_t seed) {
    Random random(seed);
    Cluster cluster(seed, RandomPlan(random));
    const bool all_at_once = Between(random, 0, 1) == 0;
    const Round rounds = 3;
    std::map<Key, std::vector<float>> expected;
    for (Key key = 0; key < 3; ++key) {
      const auto elements = static_cast<std::uint32_t>(Between(random, 1, 300));
      cluster.Declare(key, elements, cluster.RandomShards(elements, 4));
      expected[key] = cluster.RandomValues(elements);
      cluster.Init(key, expected[key]);
      cluster.RequestAll(key);
    }
    cluster.Drive();
    for (Round round = 0; round <= rounds; ++round) {
      if (!all_at_once || round == 0 || round == rounds) {
        cluster.Drive();
        for (const auto& [key, value] : expected) {
          for (const NodeId worker : cluster.workers) CHECK(cluster.Value(worker, key) == value);
        }
        CHECK_EQ(cluster.Lent(), 0u);
      }
      if (round == rounds) break;
      for (auto& [key, value] : expected) {
        std::map<NodeId, std::vector<float>> given;
        for (const NodeId worker : cluster.workers) {
          given[worker] = cluster.RandomValues(static_cast<std::uint32_t>(value.size()));
          cluster.Push(worker, key, given[worker]);
        }
        // Requests are optional for workers that wait for an answer.
        if (Between(random, 0, 1) == 0) cluster.RequestAll(key);
        value = TreeSum(cluster, given);
      }
    }
    CheckNoErrors(cluster);
    CHECK_EQ(cluster.Count(Event::Kind::kValueReady), (rounds + 1) * 3 * cluster.workers.size());
    cluster.ReplayAll();
  });
}

// The optimizer receives one sum of all workers, with equal bits, as sums of integers are exact.
TEST(ManyWorkersEqualOne) {
  check::ForSeeds(10, [](std::uint64_t seed) {
    Random random(seed);
    Plan many = RandomPlan(random), one;
    one.parties = {1};
    Cluster crowd(seed, many), single(seed + 1, one);
    const std::uint32_t elements = 50;
    crowd.Declare(0, elements, crowd.RandomShards(elements, 3));
    single.Declare(0, elements, single.RandomShards(elements, 3));
    const std::vector<float> start = crowd.RandomValues(elements);
    for (Cluster* cluster : {&crowd, &single}) {
      cluster->Init(0, start);
      cluster->Command("optimizer\nadam\nlearning_rate 0.1\nwd 0.01");
      cluster->RequestAll(0);
      cluster->Drive();
    }
    for (int round = 0; round < 4; ++round) {
      std::vector<float> sum(elements, 0.0f);
      for (const NodeId worker : crowd.workers) {
        const std::vector<float> gradient = crowd.RandomIntegers(elements);
        for (std::uint32_t i = 0; i < elements; ++i) sum[i] += gradient[i];
        crowd.Push(worker, 0, gradient);
      }
      single.Push(single.workers.front(), 0, sum);
      crowd.Drive();
      single.Drive();
      const auto expected = single.Value(single.workers.front(), 0);
      CHECK(expected != start);
      for (const NodeId worker : crowd.workers) CHECK(crowd.Value(worker, 0) == expected);
    }
    CheckNoErrors(crowd);
    CHECK_EQ(crowd.Count(Event::Kind::kCommand), crowd.globals.size());
  });
}

// A shard is in one phase at a time; a round waits for its last contribution, and the others wait for that one.
TEST(TimesOfRoundsAddUp) {
  check::ForSeeds(20, [](std::uint64_t seed) {
    Random random(seed);
    Cluster cluster(seed, RandomPlan(random));
    for (const auto& servers : {cluster.servers, cluster.globals}) {
      for (const NodeId server : servers) cluster.Do(server, [](Node& node, Time) { node.CountTimes(); });
    }
    const auto elements = static_cast<std::uint32_t>(Between(random, 1, 60));
    const std::vector<ShardInfo> shards = cluster.RandomShards(elements, 4);
    cluster.Declare(0, elements, shards);
    cluster.Init(0, std::vector<float>(elements, 0.0f));
    cluster.RequestAll(0);
    cluster.Drive();
    // Per shard: seconds by server and phase, and by server and child.
    std::map<std::pair<NodeId, RoundPhase>, double> phases;
    std::map<std::pair<NodeId, NodeId>, RoundTimes::Child> children;
    const auto gather = [&](NodeId server, double before, const std::map<NodeId, double>& came) {
      const auto sooner = [](const auto& a, const auto& b) { return a.second < b.second; };
      const double first = std::ranges::min_element(came, sooner)->second;
      const auto last = std::ranges::max_element(came, sooner);
      phases[{server, RoundPhase::kCompute}] += first - before;
      phases[{server, RoundPhase::kGather}] += last->second - first;
      for (const auto& [child, at] : came) children[{server, child}].held_s += last->second - at;
      ++children[{server, last->first}].last;
      return last->second;
    };
    const auto now = [&] { return static_cast<double>(cluster.now()) / kSecond; };
    double before = now();
    for (int round = 0; round < 3; ++round) {
      std::vector<NodeId> order = cluster.workers;
      std::shuffle(order.begin(), order.end(), random);
      std::map<NodeId, double> came, sums;
      for (const NodeId worker : order) {
        cluster.Drive(static_cast<Time>(Between(random, 1, 1000)) * kMillisecond);
        came[worker] = now();
        cluster.Push(worker, 0, cluster.RandomIntegers(elements));
      }
      cluster.Drive();
      for (std::size_t party = 0; party < cluster.parties.size(); ++party) {
        std::map<NodeId, double> own;
        for (const NodeId worker : cluster.parties[party]) own[worker] = came[worker];
        sums[cluster.servers[party]] = gather(cluster.servers[party], before, own);
      }
      const double end = came[order.back()];
      for (const auto& [server, at] : sums) phases[{server, RoundPhase::kAnswer}] += end - at;
      for (const NodeId global : cluster.globals) gather(global, before, sums);
      before = end;
    }
    const auto check = [&](NodeId server, const std::vector<NodeId>& from, double held) {
      const RoundTimes& times = *cluster.node(server).times();
      for (const auto phase : {RoundPhase::kCompute, RoundPhase::kGather, RoundPhase::kAnswer}) {
        CHECK_NEAR(times.SecondsIn(phase, cluster.now()), (held * phases[{server, phase}]), 1e-3);
      }
      const std::vector<RoundTimes::Child> counted = times.Children(cluster.now());
      CHECK_EQ(counted.size(), from.size());
      for (std::size_t i = 0; i < from.size(); ++i) {
        const RoundTimes::Child& expected = children[{server, from[i]}];
        CHECK_EQ(counted[i].last, static_cast<std::uint64_t>(held) * expected.last);
        CHECK_NEAR(counted[i].held_s, held * expected.held_s, 1e-3);
      }
    };
    for (std::size_t party = 0; party < cluster.parties.size(); ++party) {
      check(cluster.servers[party], cluster.parties[party], static_cast<double>(shards.size()));
    }
    for (std::uint32_t i = 0; i < cluster.globals.size(); ++i) {
      const auto here = std::ranges::count_if(shards, [i](const ShardInfo& shard) { return shard.server == i; });
      check(cluster.globals[i], cluster.servers, static_cast<double>(here));
    }
    CHECK(cluster.node(cluster.workers.front()).times() == nullptr);
  });
}

TEST(TheFirstInitialValueIsUsedAndEarlyRequestsWait) {
  Cluster cluster(1, {});
  cluster.Declare(7, 5, {{.elements = 5}});
  cluster.RequestAll(7);
  cluster.Drive();
  CHECK_EQ(cluster.Count(Event::Kind::kValueReady), 0u);
  cluster.Init(7, {1, 2, 3, 4, 5});
  cluster.Drive();
  CHECK_EQ(cluster.Count(Event::Kind::kValueReady), 4u);
  const std::vector<float> other(5, 9.0f);
  cluster.Init(7, other);
  cluster.Do(cluster.workers.back(), [&](Node& node, Time now) {
    node.worker().Init(7, other.data(), nullptr, now);
  });
  cluster.RequestAll(7);
  cluster.Drive();
  for (const NodeId worker : cluster.workers) {
    CHECK((cluster.Value(worker, 7) == std::vector<float>{1, 2, 3, 4, 5}));
  }
  const Buffer* held = cluster.node(cluster.globals.front()).GlobalValue(7, 0);
  CHECK(held != nullptr && (*held == Buffer{1, 2, 3, 4, 5}));
  CHECK(cluster.node(cluster.globals.front()).GlobalValue(8, 0) == nullptr);
  CheckNoErrors(cluster);
}

TEST(AMasterMayBeAGlobalServer) {
  Cluster cluster(1, {});
  const NodeId global = cluster.globals.front();
  cluster.Declare(7, 3, {{.elements = 3}});
  cluster.RequestAll(7);
  cluster.Drive();
  cluster.Do(global, [](Node& node, Time now) {
    node.Initialise({.key = 7, .elements = 3}, {1, 2, 3}, now);
    node.Initialise({.key = 7, .elements = 3}, {9, 9, 9}, now);  // only the first is used
    node.Instruct("optimizer\nsgd\nlearning_rate 1", now);
  });
  cluster.Drive();
  CHECK_EQ(cluster.Events(global, Event::Kind::kCommand).size(), 1u);
  const std::vector<float> gradient(3, 0.25f);
  for (const NodeId worker : cluster.workers) {
    CHECK((cluster.Value(worker, 7) == std::vector<float>{1, 2, 3}));
    cluster.Push(worker, 7, gradient);
  }
  cluster.Drive();
  for (const NodeId worker : cluster.workers) {
    CHECK((cluster.Value(worker, 7) == std::vector<float>{0, 1, 2}));
  }
  bool refused = false;
  cluster.Do(cluster.workers.front(), [&](Node& node, Time now) {
    try {
      node.Initialise({.key = 7, .elements = 3}, {1, 2, 3}, now);
    } catch (const std::invalid_argument&) {
      refused = true;
    }
  });
  CHECK(refused);
  CheckNoErrors(cluster);
}

// The local server refuses an invalid instruction, since it knows the sender.
TEST(InstructionsAreExecutedOrRefused) {
  Cluster cluster(1, {});
  for (const std::string text :
       {"optimizer\nsgdd", "optimizer\nsgd\nspeed 9", "optimizer", " ", "run"}) {
    cluster.ClearEvents();
    cluster.Command(text);
    cluster.Drive();
    const auto refused = cluster.Events(cluster.servers.front(), Event::Kind::kPeerError);
    CHECK_EQ(refused.size(), 1u);
    if (!refused.empty()) CHECK_EQ(refused.front().peer, cluster.workers.front());
    CHECK_EQ(cluster.Count(Event::Kind::kPeerError), 1u);
    CHECK_EQ(cluster.Count(Event::Kind::kRefused) + cluster.Count(Event::Kind::kCommand), 0u);
  }
  cluster.ClearEvents();
  cluster.Command("optimizer\nsgd\nlearning_rate 0.5");
  cluster.Drive();
  CHECK_EQ(cluster.Events(cluster.globals.front(), Event::Kind::kCommand).size(), 1u);
}

TEST(SimulatedSizesEqualTheTrafficOfValues) {
  check::ForSeeds(10, [](std::uint64_t seed) {
    Random random(seed);
    Plan plan = RandomPlan(random);
    plan.wan_push.slicers = {check::BlockSlices(16, 3)};
    std::map<std::tuple<NodeId, NodeId, Kind>, check::Wire::Traffic> traffic[2];
    for (const bool phantom : {false, true}) {
      plan.phantom = phantom;
      Cluster cluster(seed, plan);
      cluster.Declare(0, 200, cluster.RandomShards(200, 3));
      cluster.Init(0, cluster.RandomValues(200));
      cluster.RequestAll(0);
      cluster.Command("optimizer\nsgd\nlearning_rate 0.5");
      cluster.Drive();
      for (int round = 0; round < 2; ++round) {
        for (const NodeId worker : cluster.workers) {
          cluster.Push(worker, 0, std::vector<float>(200));
        }
        cluster.Drive();
      }
      CheckNoErrors(cluster);
      CHECK_EQ(cluster.Count(Event::Kind::kValueReady), 3 * cluster.workers.size());
      traffic[phantom] = cluster.traffic();
    }
    CHECK(traffic[0] == traffic[1]);
  });
}

TEST(NoMessageIsLargerThanAFrame) {
  Plan plan;
  plan.frame_bytes = 100;
  Cluster cluster(1, plan);
  cluster.Declare(0, 1000, {{.elements = 1000}});
  cluster.Init(0, std::vector<float>(1000));
  cluster.RequestAll(0);
  cluster.Drive();
  const auto traffic =
      cluster.traffic().at({cluster.workers.front(), cluster.servers.front(), Kind::kInit});
  CHECK_EQ(traffic.messages, 42u);  // 24 rows fit, as slices begin at multiples of 8 rows
  CHECK_EQ(traffic.bytes, 42u * kHeaderBytes + 4000u);
}

TEST(WorkersRefuseInvalidCalls) {
  Cluster cluster(1, {});
  const auto complaint = [&](auto verb) -> std::string {
    try {
      cluster.Do(cluster.workers.front(),
                 [verb](Node& node, Time now) { verb(node.worker(), now); });
      return "";
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
  };
  const auto declare = [&](std::uint32_t elements, const std::vector<ShardInfo>& shards) {
    return complaint([=](Worker& worker, Time) { worker.Declare(3, elements, shards); });
  };
  CHECK_EQ(declare(0, {}), "shards of key 3 do not cover it");
  CHECK_EQ(declare(5, {{.elements = 4}}), "shards of key 3 do not cover it");
  CHECK_EQ(declare(5, {{.offset = 1, .elements = 4}}), "shards of key 3 do not cover it");
  CHECK_EQ(declare(5, {{.elements = 5}}), "");
  CHECK_EQ(declare(5, {{.elements = 5}}), "");
  CHECK_EQ(declare(6, {{.elements = 6}}), "key 3 already has 5 elements, not 6");
  CHECK_EQ(complaint([](Worker& worker, Time now) { worker.Submit(4, {}, now); }),
           "key 4 was never initialised");
  CHECK_EQ(complaint([](Worker& worker, Time now) { worker.Request(4, now); }),
           "key 4 was never initialised");
}

}  // namespace
}  // namespace geomx
