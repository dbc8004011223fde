// Rounds of a party that close without workers that are late (NodeConfig::round_policy of a local server).
#include <algorithm>

#include "core/natives.h"
#include "tests/alone.h"
#include "tests/late.h"

namespace geomx {
namespace {

using check::Between;
using check::Chance;
using check::Cluster;
using check::ForSeeds;
using check::Plan;
using check::Pushing;
using check::Random;
using check::Rules;

Plan InParties(std::vector<Rules>& rules, std::vector<std::uint32_t> parties) {
  Plan plan;
  plan.continues = true;
  plan.parties = std::move(parties);
  plan.party_rounds = [&rules](std::uint32_t party) { return std::make_shared<check::ByRules>(rules[party]); };
  return plan;
}

TEST(APartysRoundClosesAtTheDeadlineAfterItsQuorum) {
  std::vector<Rules> rules(1);
  Pushing run(1, InParties(rules, {3}));
  run.PushOf(0, 2);
  run.Drive(10 * kSecond);
  CHECK_EQ(run.Rounds(), 0u);  // one worker is no quorum
  run.PushOf(1, 4);
  run.Drive(kSecond / 2);
  CHECK_EQ(run.Rounds(), 0u);
  run.Drive(2 * kSecond);
  CHECK_EQ(run.Rounds(), 1u);
  CHECK(run.Holds(0, 9) && run.Holds(1, 9));  // (2 + 4) * 3 / 2
  CHECK(run.Holds(2, 0));
  run.PushOf(0, 1);
  run.PushOf(1, 1);
  run.Drive(2 * kSecond);
  CHECK_EQ(run.Rounds(), 2u);
  run.PushOf(2, 8);  // for round 1
  run.Drive();
  CHECK(run.Holds(2, 3));  // the value of round 2, at once
  CHECK_EQ(run.Reached(2), 2u);
  for (std::size_t worker = 0; worker < 3; ++worker) run.PushOf(worker, 4);
  run.Drive();
  CHECK_EQ(run.Rounds(), 3u);
  CHECK(run.Holds(0, 15) && run.Holds(2, 15));  // (4 + 4 + 4 + 8) * 3 / 4
  const auto partial = run.Events(run.servers.front(), Event::Kind::kPartial);
  CHECK_EQ(partial.size(), 3u);
  CHECK(partial.back().late == (std::vector<std::pair<NodeId, Round>>{{run.workers[2], 1}}));
  CHECK_EQ(partial.back().above, 3u);
  check::CheckNoErrors(run);
}

TEST(OtherPartiesWaitForAPartyThatIsSlowAsAWhole) {
  std::vector<Rules> rules(2);
  Pushing run(2, InParties(rules, {2, 3}));
  for (std::size_t worker = 0; worker < 4; ++worker) run.PushOf(worker, 1);
  run.Drive(kSecond / 2);
  CHECK_EQ(run.Rounds(), 0u);
  run.Drive(kSecond);
  CHECK_EQ(run.Rounds(), 1u);
  CHECK(run.Holds(0, 5) && run.Holds(3, 5));  // a party's sum stands for all its workers
  check::CheckNoErrors(run);
}

TEST(NobodyIsLateInTheLastRound) {
  std::vector<Rules> rules(1);
  Pushing run(3, InParties(rules, {3}));
  run.PushOf(0, 2, true);
  run.PushOf(1, 4, true);
  run.Drive(10 * kSecond);
  CHECK_EQ(run.Rounds(), 0u);
  run.PushOf(2, 3, true);
  run.Drive();
  CHECK_EQ(run.Rounds(), 1u);
  for (std::size_t worker = 0; worker < 3; ++worker) CHECK(run.Holds(worker, 9));
  check::CheckNoErrors(run);
}

// The other parties, and so the answer that the worker waits for, may depend on that round.
TEST(TheLastRoundDoesNotWaitForAWorkerThatWaitsForAnotherAnswer) {
  for (const std::uint32_t first : {0u, 1u}) {  // the shard that the late worker pushes first
    Plan plan = check::Lasting({2}, 1);
    plan.party_rounds = [](std::uint32_t) { return std::make_shared<QuorumRounds>(1, kSecond); };
    const Cluster cluster(1, plan);
    const NodeId global = cluster.globals.front(), fast = cluster.workers[0], late = cluster.workers[1];
    check::Alone server(cluster.node(cluster.servers.front()).config());
    const auto hear = [&](NodeId from, std::uint32_t shard, Message message, std::uint8_t flags) {
      message.header.shard = shard;
      message.header.flags = flags;
      message.header.merge_count = from == global ? 2 : 1;
      server.Hear(from, std::move(message));
    };
    const auto push = [&](NodeId worker, std::uint32_t shard, Round round, bool last = false) {
      hear(worker, shard, check::Transfer(Kind::kPush, worker, round, 4), last ? kLast : 0);
    };
    const auto answer = [&](std::uint32_t shard, Round round, std::uint8_t flags = 0) {
      hear(global, shard, check::Transfer(Kind::kValue, global, round, 4), flags);
    };
    for (const std::uint32_t shard : {0u, 1u}) {
      for (const NodeId worker : {fast, late}) server.Hear(worker, check::Ask(shard, 4, 0));
      hear(global, shard, check::Transfer(Kind::kValue, global, 0, 4), kPlain);
      push(fast, shard, 1);
    }
    server.Pass(2 * kSecond);  // both have closed without the late one
    answer(0, 1);
    push(fast, 0, 2, true);
    server.Says(global);
    push(late, first, 1);
    CHECK(server.Says(global, Kind::kPush).empty());
    push(late, 1 - first, 1);
    const auto closed = server.Says(global, Kind::kPush);
    CHECK_EQ(closed.size(), 1u);
    if (!closed.empty()) CHECK(closed[0].shard == 0 && closed[0].round == 2);
    answer(1, 1);
    answer(0, 2);
    server.Says(fast);
    for (const std::uint32_t shard : {0u, 1u}) push(late, shard, 2, true);
    push(fast, 1, 2, true);
    CHECK(server.Says(fast).empty());
    CHECK_EQ(server.Says(global, Kind::kPush).size(), 2u);
    for (const std::uint32_t shard : {0u, 1u}) answer(shard, 3 - shard);
    CHECK_EQ(server.Says(fast, Kind::kValue).size(), 2u);
    CHECK(server.errors.empty());
  }
}

// One that came back after the last round of the others has nothing to push, and may come to the barrier at
// the end before them.
TEST(TheLastRoundDoesNotWaitForAWorkerAtABarrier) {
  const auto come = [](Node& node, Time now) { node.worker().Barrier(now); };
  std::vector<Rules> rules(1);
  Pushing run(3, InParties(rules, {3}));
  run.PushOf(0, 2, true);
  run.PushOf(1, 4, true);
  run.Do(run.workers[2], come);
  run.Drive(kSecond);
  CHECK_EQ(run.Rounds(), 1u);
  CHECK(run.Holds(0, 9) && run.Holds(1, 9));  // for all workers
  for (std::size_t worker = 0; worker < 2; ++worker) run.Do(run.workers[worker], come);
  run.Drive(kSecond);
  CHECK_EQ(run.Count(Event::Kind::kBarrier), 3u);
  check::CheckNoErrors(run);
}

// Once all workers have come to a barrier, it is released, and the last round waits for all of them again.
TEST(TheLastRoundWaitsForAWorkerThatWasAtABarrier) {
  const auto come = [](Node& node, Time now) { node.worker().Barrier(now); };
  std::vector<Rules> rules(1);
  Pushing run(3, InParties(rules, {3}));
  for (const NodeId worker : run.workers) run.Do(worker, come);
  run.Drive(kSecond);
  run.PushOf(0, 2, true);
  run.PushOf(1, 4, true);
  run.Drive(kSecond);
  CHECK_EQ(run.Rounds(), 0u);
  run.PushOf(2, 3, true);
  run.Drive(kSecond);
  CHECK_EQ(run.Rounds(), 1u);
  check::CheckNoErrors(run);
}

// The workers of a party that are left once the others have gone may all wait at a barrier.
TEST(OthersDoNotWaitForAPartyWhoseWorkersHaveLeftOrWaitAtABarrier) {
  std::vector<Rules> rules(2);
  Pushing run(3, InParties(rules, {2, 1}));
  run.Do(run.workers[0], [](Node& node, Time now) { node.worker().Barrier(now); });
  run.PushOf(2, 4, true);
  run.Drive(kSecond);
  CHECK_EQ(run.Rounds(), 0u);
  run.Do(run.workers[1], [](Node& node, Time now) { node.Leave(now); });
  run.Drive(kSecond);
  CHECK_EQ(run.Rounds(), 1u);
  CHECK(run.Holds(2, 12));  // for all workers
  check::CheckNoErrors(run);
}

// What is late after the last step of the others, and no quorum, is sent with what comes after the barrier.
TEST(OthersDoNotWaitForAPartyAtABarrierWhoseRoundLacksTheQuorum) {
  const auto come = [](Node& node, Time now) { node.worker().Barrier(now); };
  std::vector<Rules> rules(2);
  Pushing run(3, InParties(rules, {3, 1}));
  for (const std::size_t worker : {0u, 1u, 3u}) run.PushOf(worker, 2);
  run.Drive(2 * kSecond);
  run.PushOf(2, 2);
  run.PushOf(3, 2);
  run.Drive(10 * kSecond);
  CHECK_EQ(run.Rounds(), 1u);
  for (std::size_t worker = 0; worker < 3; ++worker) run.Do(run.workers[worker], come);
  run.Drive(kSecond);
  CHECK_EQ(run.Rounds(), 2u);
  CHECK(run.Holds(3, 8));  // for all workers
  run.Do(run.workers[3], come);
  run.Drive(kSecond);
  CHECK_EQ(run.Count(Event::Kind::kBarrier), 4u);
  for (std::size_t worker = 0; worker < 4; ++worker) run.PushOf(worker, 3);
  run.Drive(2 * kSecond);
  CHECK_EQ(run.Rounds(), 3u);
  check::CheckNoErrors(run);
}

TEST(APartysRoundDoesNotWaitForAKilledWorker) {
  std::vector<Rules> rules(1);
  rules[0].deadline = 1000 * kSecond;
  Pushing run(4, InParties(rules, {3}));
  run.PushOf(0, 2);
  run.PushOf(1, 4);
  run.Drive(kSecond);
  CHECK_EQ(run.Rounds(), 0u);
  run.Freeze(run.workers[2]);
  run.LinkDown(run.scheduler, run.workers[2], "killed by SIGKILL");
  run.Drive(kSecond);
  CHECK_EQ(run.Rounds(), 1u);
  CHECK(run.Holds(0, 9));
  run.PushOf(0, 1, true);
  run.PushOf(1, 1, true);
  run.Drive(kSecond);
  CHECK_EQ(run.Rounds(), 2u);
  CHECK(run.Holds(0, 3) && run.Holds(1, 3));
}

// Rounds of the shards of a tensor close one by one, also between the requests of a worker that begins.
TEST(AWorkerMayBeginWithShardsAtDifferentRounds) {
  std::size_t seeds = 0, apart = 0;
  ForSeeds(60, [&](std::uint64_t seed) {
    ++seeds;
    std::vector<Rules> rules(1);
    rules[0].quorum = 1;
    rules[0].deadline = 0;
    Cluster run(seed, InParties(rules, {2}));
    run.Declare(0, 2, {{.elements = 1}, {.offset = 1, .elements = 1}});
    run.Init(0, {0, 0});
    const auto request = [](Node& node, Time now) { node.worker().Request(0, now); };
    run.Do(run.workers[0], request);
    run.Drive();
    run.Push(run.workers[0], 0, {1, 2});
    run.Do(run.workers[1], request);
    run.Drive();
    const std::vector<float> first = run.Value(run.workers[1], 0);
    apart += (first[0] == 0) != (first[1] == 0);
    for (std::size_t worker = 0; worker < 2; ++worker) run.Push(run.workers[worker], 0, {4, 8}, true);
    run.Drive();
    for (std::size_t worker = 0; worker < 2; ++worker) {
      CHECK(run.Value(run.workers[worker], 0) == (std::vector<float>{8, 16}));
    }
    check::CheckNoErrors(run);
  });
  CHECK(seeds < 60 || apart > 5);  // fewer are drawn under sanitizers
}

// Parameters: the worker that is late has trained from an older model, and adds what it has changed there.
TEST(LateParametersCountByTheirChangeAndWeightsApplyToChanges) {
  std::vector<Rules> rules(1);
  rules[0].quorum = 1;
  rules[0].deadline = 0;
  Plan plan = InParties(rules, {2});
  plan.parameter_scale = 0.5;
  plan.policy = [](std::uint32_t) { return NativePolicies::Instance().Create("changes", {{"workers", 2}}); };
  Pushing run(5, plan);
  run.Command("optimizer\nsgd\nlearning_rate 1");
  run.PushOf(0, 0.5f * 1);
  run.Drive();
  CHECK(run.Holds(0, 1));
  run.PushOf(1, 0.5f * 10);  // from the value 0
  run.Drive();
  CHECK(run.Holds(1, 11));  // 1 + 10
  rules[0].relative = false;
  rules[0].weight = [](const Contribution&) { return 0.5; };
  run.PushOf(1, 0.5f * 13);
  run.Drive();
  CHECK(run.Holds(1, 12));  // 11 + (13 - 11) / 2
  check::CheckNoErrors(run);
}

// Whatever is late, weighed, dropped or killed: every contribution is in one round's sum, with its weight, or
// was dropped, and all workers that take part end with the same value.
TEST(EveryWorkersContributionCountsOnceWithItsWeightOrIsDropped) {
  constexpr std::uint32_t kMost = 160;
  std::size_t seeds = 0, late = 0, dropped = 0, killed = 0;
  ForSeeds(60, [&](std::uint64_t seed) {
    ++seeds;
    Random random(seed);
    const std::vector<std::uint32_t> sizes = {3, 2};
    const std::uint64_t oldest = Between(random, 0, 3), weighs = Between(random, 0, 2);
    const bool relative = Chance(random, 0.7);
    std::vector<Rules> rules(2);
    for (std::size_t party = 0; party < 2; ++party) {
      rules[party].quorum = static_cast<std::uint32_t>(Between(random, 1, sizes[party]));
      rules[party].deadline = static_cast<Time>(Between(random, 0, 1)) * kSecond;
      rules[party].relative = relative;
      rules[party].Choose(oldest, weighs);
    }
    Plan plan = InParties(rules, sizes);
    plan.rounds.together = false;  // the model is the sum of what the parties send
    Cluster run(seed, plan);
    run.Declare(0, kMost, {{.elements = kMost}});
    run.Init(0, std::vector<float>(kMost));
    run.RequestAll(0);
    run.Drive();
    run.Command("optimizer\nsgd\nlearning_rate -1");

    // Every push has a coordinate of its own. In each round of its party that it knows of, a worker pushes once,
    // so that all end with the same one, as experiments do.
    constexpr Round kRounds = 7;
    std::vector<std::vector<std::uint32_t>> coordinates(5);
    std::vector<std::uint32_t> made(5);
    std::vector<bool> ended(5), gone(5);
    std::uint32_t next = 0;
    const std::size_t victim = Chance(random, 0.3) ? Between(random, 0, 2) : 5;
    const std::uint64_t fatal = Between(random, 0, 40);
    for (std::uint64_t turn = 0; turn < 4000; ++turn) {
      if (turn == fatal && victim < 5 && !ended[victim]) {
        gone[victim] = true;
        ++killed;
        run.Freeze(run.workers[victim]);
        run.LinkDown(run.scheduler, run.workers[victim], "killed by SIGKILL");
      }
      const std::size_t worker = Between(random, 0, 4);
      Worker& self = const_cast<Node&>(run.node(run.workers[worker])).worker();
      const bool free = !gone[worker] && !ended[worker] && self.Submitted(0) == self.ValueRound(0);
      if (free && next < kMost) {
        const Round open = std::max(self.Reached(0), self.ValueRound(0)) + 1;
        ended[worker] = open >= kRounds;
        const auto steps = static_cast<std::uint32_t>(Between(random, 1, 5));
        const auto value = std::make_shared<std::vector<float>>(kMost);
        (*value)[next] = 1;
        coordinates[worker].push_back(next++);
        made[worker] += steps;
        run.Do(run.workers[worker], [&, value](Node& node, Time now) {
          node.worker().Submit(
              0, {.value = value->data(), .owner = value, .last = ended[worker], .made = made[worker]}, now);
        });
      }
      run.Drive(static_cast<Time>(Between(random, 0, worker == 1 ? 12 : 3)) * kSecond / 8);
      bool over = true;
      for (std::size_t each = 0; each < 5; ++each) over = over && (ended[each] || gone[each]);
      if (over) break;
    }
    run.Drive(5 * kSecond);

    std::vector<std::map<Round, double>> factors(5);  // by worker and the round that was meant
    for (std::size_t party = 0; party < 2; ++party) {
      for (const std::vector<Contribution>& closed : rules[party].closed) {
        double total = 0;
        for (const Contribution& each : closed) total += relative ? rules[party].weight(each) : 1;
        for (const Contribution& each : closed) {
          const auto worker = std::find(run.workers.begin(), run.workers.end(), each.source) - run.workers.begin();
          const double factor = sizes[party] * rules[party].weight(each) / total;
          CHECK(factors[static_cast<std::size_t>(worker)].emplace(each.meant, factor).second);
          late += each.age > 0;
        }
      }
      for (const Event& event : run.Events(run.servers[party], Event::Kind::kPartial)) {
        for (std::size_t i = event.late.size() - event.dropped; i < event.late.size(); ++i) {
          const auto [source, meant] = event.late[i];
          const auto worker = std::find(run.workers.begin(), run.workers.end(), source) - run.workers.begin();
          CHECK(factors[static_cast<std::size_t>(worker)].emplace(meant, 0.0).second);
          ++dropped;
        }
      }
    }
    const Buffer* model = run.node(run.globals.front()).GlobalValue(0, 0);
    for (std::size_t worker = 0; worker < 5; ++worker) {
      if (!gone[worker]) {
        CHECK(ended[worker]);
        // What was dropped after the last round has closed is not reported any more.
        CHECK(factors[worker].size() <= coordinates[worker].size());
        CHECK(run.Value(run.workers[worker], 0) == run.Value(run.workers[worker < 3 ? (victim == 0 ? 1 : 0) : 3], 0));
      }
      auto factor = factors[worker].begin();
      for (const std::uint32_t coordinate : coordinates[worker]) {
        const double expected = factor == factors[worker].end() ? 0.0 : (factor++)->second;
        CHECK_NEAR((*model)[coordinate], expected, 1e-5);
      }
    }
  });
  CHECK(seeds < 60 || (late > 20 && dropped > 10 && killed > 5));  // fewer are drawn under sanitizers
}

}  // namespace
}  // namespace geomx
