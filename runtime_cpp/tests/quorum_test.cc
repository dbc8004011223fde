// Global rounds that close without parties that are late (GlobalRounds::early).
#include <algorithm>

#include "tests/late.h"

namespace geomx {
namespace {

using check::Between;
using check::Chance;
using check::Cluster;
using check::ForSeeds;
using check::Plan;
using check::Random;
using check::Rules;
using check::Uniform;

constexpr std::uint32_t kPair = 2;

Plan QuorumOfTwo() {
  Plan plan;
  plan.continues = true;
  plan.parties = {1, 1, 1};
  plan.quorum = 2;
  plan.deadline = kSecond;
  return plan;
}

// Three parties of one worker, with the initial value.
struct ThreeParties : check::Pushing {
  explicit ThreeParties(std::uint64_t seed) : Pushing(seed, QuorumOfTwo()) {}
};

TEST(ARoundClosesAtTheDeadlineAfterTheQuorum) {
  ThreeParties run(1);
  run.PushOf(0, 2);
  run.Drive(10 * kSecond);
  CHECK_EQ(run.Rounds(), 0u);  // one party is no quorum
  run.PushOf(1, 4);
  run.Drive(kSecond / 2);
  CHECK_EQ(run.Rounds(), 0u);
  run.Drive(kSecond);
  CHECK_EQ(run.Rounds(), 1u);
  CHECK(run.Holds(0, 9) && run.Holds(1, 9));  // (2 + 4) * 3 / 2
  CHECK(run.Holds(2, 0));
  check::CheckNoErrors(run);
}

TEST(AllPartiesCloseARoundAtOnce) {
  ThreeParties run(2);
  for (std::size_t worker = 0; worker < 3; ++worker) run.PushOf(worker, 2);
  run.Drive();
  CHECK_EQ(run.Rounds(), 1u);
  CHECK(run.Holds(0, 6) && run.Holds(2, 6));
}

TEST(ALateContributionIsAnsweredAtOnceAndCountsOnceInTheNextRound) {
  ThreeParties run(3);
  run.PushOf(0, 2);
  run.PushOf(1, 4);
  run.Drive(2 * kSecond);
  run.PushOf(0, 1);
  run.PushOf(1, 1);
  run.Drive(2 * kSecond);
  CHECK_EQ(run.Rounds(), 2u);
  run.PushOf(2, 8);  // for round 1
  run.Drive();
  CHECK(run.Holds(2, 3));  // the value of round 2
  CHECK_EQ(run.Reached(2), 2u);
  CHECK_EQ(run.Rounds(), 2u);
  for (std::size_t worker = 0; worker < 3; ++worker) run.PushOf(worker, 4);
  run.Drive();
  CHECK_EQ(run.Rounds(), 3u);
  CHECK(run.Holds(0, 15) && run.Holds(2, 15));  // (4 + 4 + 4 + 8) * 3 / 4
  CHECK_EQ(run.Reached(2), 3u);
  const auto partial = run.Events(run.globals.front(), Event::Kind::kPartial);
  CHECK_EQ(partial.size(), 3u);
  CHECK(partial.back().values.empty());
  CHECK(partial.back().late == (std::vector<std::pair<NodeId, Round>>{{run.servers[2], 1}}));
  CHECK_EQ(partial.back().workers, 4u);
  check::CheckNoErrors(run);
}

TEST(PartiesThatHaveMadeTheirLastPushAreNotWaitedFor) {
  ThreeParties run(4);
  run.PushOf(0, 2, true);
  run.PushOf(1, 4, true);
  run.Drive(2 * kSecond);
  run.PushOf(2, 5, true);
  run.Drive();
  CHECK_EQ(run.Rounds(), 2u);
  CHECK(run.Holds(2, 15));  // 5 * 3
  CHECK_EQ(run.Reached(2), 2u);
  check::CheckNoErrors(run);
}

// A party that came back after the last round of the others has nothing to push.
TEST(ARoundDoesNotWaitForAPartyAtABarrier) {
  const auto come = [](Node& node, Time now) { node.worker().Barrier(now); };
  ThreeParties run(6);
  run.PushOf(0, 2);
  run.PushOf(1, 4, true);
  run.Drive(2 * kSecond);
  run.PushOf(0, 5, true);
  run.Drive(10 * kSecond);
  CHECK_EQ(run.Rounds(), 1u);  // one party is no quorum
  run.Do(run.workers[2], come);
  run.Drive(2 * kSecond);
  CHECK_EQ(run.Rounds(), 2u);
  CHECK(run.Holds(0, 15));
  for (std::size_t worker = 0; worker < 2; ++worker) run.Do(run.workers[worker], come);
  run.Drive(kSecond);
  CHECK_EQ(run.Count(Event::Kind::kBarrier), 3u);
  run.PushOf(0, 1);
  run.Drive(10 * kSecond);
  CHECK_EQ(run.Rounds(), 2u);  // that party may push again
  run.PushOf(2, 2);
  run.Drive(2 * kSecond);
  CHECK_EQ(run.Rounds(), 3u);
  check::CheckNoErrors(run);
}

TEST(ASecondPushInOneRoundIsRefusedWithAQuorumAsWell) {
  ThreeParties run(5);
  run.PushOf(0, 2);
  run.Drive();
  run.Deliver(run.servers[0], run.globals.front(), check::Transfer(Kind::kPush, run.servers[0], 2, kPair));
  run.Drive();
  CHECK_EQ(run.Events(run.globals.front(), Event::Kind::kPeerError).size(), 1u);
}

// ---- other policies --------------------------------------------------------------------------

Plan With(Rules& rules, std::vector<std::uint32_t> parties) {
  Plan plan;
  plan.continues = rules.continues;
  plan.parties = std::move(parties);
  plan.round_policy = [&rules] { return std::make_shared<check::ByRules>(rules); };
  return plan;
}

// Parties whose every contribution has a coordinate of its own, so that the sum shows its factor.
struct Factors : Cluster {
  Factors(std::uint64_t seed, Rules& rules, const std::vector<std::uint32_t>& parties, std::uint32_t most)
      : Cluster(seed, With(rules, parties)), most_(most), made_(workers.size()) {
    Declare(0, most, {{.elements = most}});
    Init(0, std::vector<float>(most));
    RequestAll(0);
    Drive();
  }
  // Returns the coordinate.
  std::uint32_t PushOf(std::size_t worker, std::uint32_t steps = 1, bool last = false) {
    std::vector<float> value(most_);
    value[next_] = 1;
    const auto kept = std::make_shared<const std::vector<float>>(value);
    made_[worker] += steps;
    Do(workers[worker], [kept, last, made = made_[worker]](Node& node, Time now) {
      node.worker().Submit(0, {.value = kept->data(), .owner = kept, .last = last, .made = made}, now);
    });
    return next_++;
  }
  std::vector<float> Sum(std::size_t worker) { return Value(workers[worker], 0); }

 private:
  std::uint32_t most_, next_ = 0;
  std::vector<std::uint32_t> made_;
};

TEST(WeightsAreOfWorkersAndTheSumStandsForAll) {
  Rules rules{.weight = [](const Contribution& each) { return double(each.steps); }};
  Factors run(6, rules, {2, 1, 1}, 4);
  run.PushOf(0, 3);
  run.PushOf(1, 5);  // with the first: two workers, eight steps
  run.PushOf(2, 2);
  run.PushOf(3, 6);
  run.Drive();
  const double total = 2 * 8 + 2 + 6;
  const std::vector<float> sum = run.Sum(0);
  for (const auto& [coordinate, weight] : {std::pair{0, 8.0}, {1, 8.0}, {2, 2.0}, {3, 6.0}}) {
    CHECK_NEAR(sum[static_cast<std::size_t>(coordinate)], 4 * weight / total, 1e-6);
  }
  CHECK(run.Sum(3) == sum);
  check::CheckNoErrors(run);
}

TEST(EqualWeightsChangeNoBit) {
  ForSeeds(10, [](std::uint64_t seed) {
    std::vector<std::vector<float>> sums;
    for (const double weight : {1.0, 0.3}) {
      Rules rules{.weight = [weight](const Contribution&) { return weight; }};
      Cluster run(seed, With(rules, {1, 2, 1}));
      run.Declare(0, 5, {{.elements = 5}});
      run.Init(0, std::vector<float>(5));
      run.RequestAll(0);
      run.Drive();
      Random random(seed);
      for (const NodeId worker : {run.workers[0], run.workers[1], run.workers[2]}) {
        std::vector<float> value(5);
        for (float& each : value) each = Uniform(random, -1, 1);
        run.Push(worker, 0, value);
      }
      run.Drive(2 * kSecond);  // without the last party
      sums.push_back(run.Value(run.workers[0], 0));
    }
    CHECK(sums[0] == sums[1]);
  });
}

TEST(ADroppedContributionIsAnsweredAndReportedAndCountsNowhere) {
  Rules rules{.takes = [](const Contribution& late) { return late.age < 2; }};
  Factors run(7, rules, {1, 1, 1}, 8);
  for (int round = 0; round < 2; ++round) {
    run.PushOf(0);
    run.PushOf(1);
    run.Drive(2 * kSecond);
  }
  const std::uint32_t lost = run.PushOf(2);  // for round 1, two rounds late
  run.Drive();
  CHECK(!run.Sum(2).empty());
  for (std::size_t worker = 0; worker < 3; ++worker) run.PushOf(worker);
  run.Drive();
  CHECK_EQ(run.Events(run.globals.front(), Event::Kind::kUpdated).size(), 3u);
  CHECK_EQ(run.Sum(0)[lost], 0.0f);
  const auto partial = run.Events(run.globals.front(), Event::Kind::kPartial);
  CHECK_EQ(partial.size(), 3u);
  CHECK(partial.back().values.empty());
  CHECK_EQ(partial.back().dropped, 1u);
  CHECK(partial.back().late == (std::vector<std::pair<NodeId, Round>>{{run.servers[2], 1}}));
  check::CheckNoErrors(run);
}

// Whatever is late, weighed or dropped: every round's sum stands for all workers if weights are relative, and
// every contribution is in one round's, with its weight, or was dropped.
TEST(EveryContributionCountsOnceWithItsWeightOrIsDropped) {
  std::size_t seeds = 0, late = 0, dropped = 0;
  ForSeeds(60, [&](std::uint64_t seed) {
    ++seeds;
    Random random(seed);
    const std::uint64_t oldest = Between(random, 0, 3), weighs = Between(random, 0, 2);
    Rules rules;
    rules.quorum = static_cast<std::uint32_t>(Between(random, 1, 3));
    rules.deadline = static_cast<Time>(Between(random, 0, 1)) * kSecond;
    rules.relative = Chance(random, 0.7);
    rules.continues = Chance(random, 0.5);
    rules.Choose(oldest, weighs);
    Factors run(seed, rules, {2, 1, 1}, 40);
    run.Command("optimizer\nsgd\nlearning_rate -1");  // the model is the sum of all rounds
    const std::vector<std::vector<std::size_t>> members = {{0, 1}, {2}, {3}};
    std::vector<std::uint64_t> left;
    for (std::size_t party = 0; party < 3; ++party) left.push_back(Between(random, 2, 9));
    std::vector<std::vector<std::vector<std::uint32_t>>> coordinates(3);  // of each party's pushes
    while (std::any_of(left.begin(), left.end(), [](std::uint64_t each) { return each > 0; })) {
      const std::size_t party = Between(random, 0, 2);
      const bool free = std::all_of(members[party].begin(), members[party].end(), [&](std::size_t member) {
        Worker& worker = const_cast<Node&>(run.node(run.workers[member])).worker();
        return worker.Submitted(0) == worker.ValueRound(0);
      });
      if (free && left[party] > 0) {
        --left[party];
        coordinates[party].emplace_back();
        for (const std::size_t member : members[party]) {
          const auto steps = static_cast<std::uint32_t>(Between(random, 1, 5));
          coordinates[party].back().push_back(run.PushOf(member, steps, left[party] == 0));
        }
      }
      run.Drive(static_cast<Time>(Between(random, 0, 12)) * kSecond / 8);
    }
    run.Drive(2 * kSecond);

    double total_mass = 0;
    std::vector<std::map<Round, double>> factors(3);  // by party and the round that was meant
    for (const std::vector<Contribution>& closed : rules.closed) {
      double total = 0;
      for (const Contribution& each : closed) total += (rules.relative ? rules.weight(each) : 1) * each.workers;
      for (const Contribution& each : closed) {
        const auto party = std::find(run.servers.begin(), run.servers.end(), each.source) - run.servers.begin();
        const double factor = 4 * rules.weight(each) / total;
        CHECK(factors[static_cast<std::size_t>(party)].emplace(each.meant, factor).second);
        late += each.age > 0;
        total_mass += factor * each.workers;
      }
    }
    for (const Event& event : run.Events(run.globals.front(), Event::Kind::kPartial)) {
      for (std::size_t i = event.late.size() - event.dropped; i < event.late.size(); ++i) {
        const auto [source, meant] = event.late[i];
        const auto party = std::find(run.servers.begin(), run.servers.end(), source) - run.servers.begin();
        CHECK(factors[static_cast<std::size_t>(party)].emplace(meant, 0.0).second);
        ++dropped;
      }
    }
    const Buffer* model = run.node(run.globals.front()).GlobalValue(0, 0);
    double mass = 0;
    for (const float value : *model) mass += value;
    CHECK_NEAR(mass, total_mass, 1e-4);
    if (rules.relative) CHECK_NEAR(mass, 4.0 * static_cast<double>(rules.closed.size()), 1e-4);
    for (std::size_t party = 0; party < 3; ++party) {
      // What was dropped after the last round has closed is not reported any more.
      CHECK(factors[party].size() <= coordinates[party].size());
      auto factor = factors[party].begin();
      for (const std::vector<std::uint32_t>& push : coordinates[party]) {
        const double expected = factor == factors[party].end() ? 0.0 : (factor++)->second;
        for (const std::uint32_t coordinate : push) CHECK_NEAR((*model)[coordinate], expected, 1e-5);
      }
    }
    check::CheckNoErrors(run);
  });
  CHECK(seeds < 60 || (late > 20 && dropped > 20));  // fewer are drawn under sanitizers
}

}  // namespace
}  // namespace geomx
