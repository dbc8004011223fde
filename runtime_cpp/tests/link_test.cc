// Links that outlive their connections (core/link.h): alone, and under whole clusters.
#include "core/link.h"

#include <set>

#include "core/natives.h"
#include "tests/cluster.h"
#include "tests/random_pairs.h"

namespace geomx {
namespace {

using check::Between;
using check::Chance;
using check::Cluster;
using check::Plan;
using check::RandomPairs;

TEST(AnOutboxKeepsWhatWasNotReceived) {
  Outbox<int> outbox;
  for (int i = 0; i < 5; ++i) outbox.Add(i, i != 2);  // 2 is best effort
  for (int i = 0; i < 4; ++i) outbox.Leave();
  CHECK_EQ(outbox.kept(), 3u);  // 0, 1, 3
  CHECK_EQ(outbox.unsent(), 1u);
  CHECK(outbox.Acknowledge(1));
  CHECK(!outbox.Acknowledge(4));  // the fourth of those that count has not left
  CHECK(outbox.Acknowledge(0));   // an older word
  CHECK_EQ(outbox.kept(), 2u);
  CHECK(!outbox.Restart(9).has_value());
  CHECK(outbox.Restart(2) == std::optional<std::uint32_t>(2));
  CHECK_EQ(outbox.kept(), 0u);
  CHECK_EQ(outbox.unsent(), 2u);
  CHECK_EQ(outbox.At(0), 3);
  CHECK_EQ(outbox.At(1), 4);
}

TEST(OnlyTheLatestCallCarriesALink) {
  Link<int> caller, called;
  const Greeting first = caller.Call(), second = caller.Call();
  Greeting answer, late;
  CHECK(called.Answer(second, answer) == LinkOutcome::kCarried);
  CHECK(called.Answer(first, late) == LinkOutcome::kLate);
  CHECK(caller.Answered(answer) == LinkOutcome::kCarried);
  CHECK(caller.Answered(answer) == LinkOutcome::kLate);
  Greeting invented = caller.Call();
  invented.received = 7;  // of none that ever left
  CHECK(called.Answer(invented, answer) == LinkOutcome::kMismatch);
}

// ---- clusters ----

void AddCodecs(check::Random& random, LinkPlan& plan) {
  const auto add = [&](const char* name, const Options& options) {
    plan.codecs.push_back(NativeCodecs::Instance().Create(name, options));
  };
  if (Chance(random, 0.4)) {
    add("bisparse", {{"ratio", 0.25}, {"momentum", 0.9}, {"masking", 1}, {"clip", 0},
                     {"warmup_rounds", 2}, {"exact", 1}});
  }
  if (Chance(random, 0.3)) add("twobit", {{"threshold", 0.5}});
  if (Chance(random, 0.3)) add("fp16", {});
}

// Drawn anew for each seed: shape of the cluster, who updates, codecs in both directions, frames.
Plan AnyPlan(check::Random& random) {
  Plan plan;
  plan.parties.clear();
  for (std::uint64_t i = Between(random, 1, 3); i > 0; --i) {
    plan.parties.push_back(static_cast<std::uint32_t>(Between(random, 1, 3)));
  }
  plan.global_servers = static_cast<std::uint32_t>(Between(random, 1, 2));
  plan.frame_bytes = 64 << Between(random, 0, 4);
  plan.rounds.update_at_party = Chance(random, 0.3);
  AddCodecs(random, plan.lan_push);
  AddCodecs(random, plan.wan_push);
  if (Chance(random, 0.5)) plan.wan_pull.codecs.push_back(NativeCodecs::Instance().Create("fp16", {}));
  return plan;
}

// What all workers hold after each round, when they do the same as in any other call with this seed.
std::vector<std::vector<float>> Train(std::uint64_t seed, const Plan& plan, bool integers,
                                      const std::optional<check::Carriers::Chances>& chances,
                                      std::uint64_t& broken) {
  constexpr int kRounds = 4;
  constexpr std::uint32_t kElements = 150;
  Cluster cluster(seed, plan);
  cluster.random.seed(seed + 17);  // the same shards and values, before chance differs
  const auto shards = cluster.RandomShards(kElements, 3);
  const auto initial = cluster.RandomIntegers(kElements);
  std::vector<std::vector<std::vector<float>>> pushes(kRounds);
  for (auto& round : pushes) {
    for (std::size_t i = 0; i < cluster.workers.size(); ++i) {
      round.push_back(integers ? cluster.RandomIntegers(kElements) : cluster.RandomValues(kElements));
    }
  }
  if (chances) cluster.BreakConnections(*chances);
  cluster.Declare(0, kElements, shards);
  cluster.Command("optimizer\nsgd\nlearning_rate 0.5\nmomentum 0.5");
  cluster.Init(0, initial);
  cluster.RequestAll(0);
  cluster.Drive();
  std::vector<std::vector<float>> values;
  for (const auto& round : pushes) {
    for (std::size_t i = 0; i < cluster.workers.size(); ++i) {
      cluster.Push(cluster.workers[i], 0, round[i]);
    }
    cluster.Drive();
    values.push_back(cluster.Value(cluster.workers.front(), 0));
    for (const NodeId worker : cluster.workers) CHECK(cluster.Value(worker, 0) == values.back());
  }
  CHECK_EQ(cluster.Count(Event::Kind::kValueReady), (kRounds + 1) * cluster.workers.size());
  check::CheckNoErrors(cluster);
  for (const NodeId worker : cluster.workers) {
    cluster.Do(worker, [](Node& node, Time now) { node.worker().Barrier(now); });
  }
  cluster.Drive();
  CHECK_EQ(cluster.Count(Event::Kind::kBarrier), cluster.workers.size());
  for (const NodeId worker : cluster.workers) {
    cluster.Do(worker, [](Node& node, Time now) { node.Leave(now); });
  }
  cluster.Drive();
  CHECK(cluster.node(cluster.scheduler).stopped());
  if (cluster.carriers() != nullptr) broken += cluster.carriers()->broken;
  if (seed % 8 == 0) cluster.ReplayAll();
  return values;
}

// Law 1 and law 2 of links: whatever breaks whenever, every message is handed on once and in order, so
// that values, barriers and the end of the run are those of a run in which nothing broke.
TEST(BrokenConnectionsChangeNothing) {
  std::uint64_t broken = 0;
  check::ForSeeds(120, [&](std::uint64_t seed) {
    check::Random random(seed);
    const Plan plan = AnyPlan(random);
    const check::Carriers::Chances chances{.breaks = Chance(random, 0.5) ? 0.02 : 0.2,
                                           .calls = Chance(random, 0.5) ? 0.0 : 0.05};
    const auto undisturbed = Train(seed, plan, false, std::nullopt, broken);
    CHECK(Train(seed, plan, false, chances, broken) == undisturbed);
  });
  CHECK(broken > 100);
}

// Under overlays sums are made where they meet; of whole numbers they are the same.
TEST(BrokenConnectionsChangeNothingUnderOverlays) {
  std::uint64_t broken = 0;
  check::ForSeeds(40, [&](std::uint64_t seed) {
    check::Random random(seed);
    Plan plan;
    plan.parties = {3, 1, 2};
    plan.frame_bytes = 128;
    plan.coordinator = [] { return std::make_shared<RandomPairs>(); };
    const auto undisturbed = Train(seed, plan, true, std::nullopt, broken);
    CHECK(Train(seed, plan, true, check::Carriers::Chances{.breaks = 0.05, .calls = 0.02}, broken) ==
          undisturbed);
  });
  CHECK(broken > 100);
}

}  // namespace
}  // namespace geomx
