// Best-effort slices in clusters: lost, duplicated, reordered, delayed, queued, and awaited.
#include <cmath>

#include "tests/alone.h"

namespace geomx {
namespace {

using check::Alone;
using check::Cluster;
using check::Plan;
using check::Transfer;

constexpr std::uint32_t kRows = 8;  // rows of a slice
constexpr std::uint32_t kLength = 20 * kRows;

// Returns a plan whose pushes over the WAN are divided into slices, few of which are reliable.
Plan LossyPlan(std::vector<std::uint32_t> parties, std::uint32_t reliable_every, Time grace) {
  Plan plan;
  plan.parties = std::move(parties);
  plan.wan_push.slicers = {check::BlockSlices(kRows, reliable_every)};
  plan.wan_push.grace = grace;
  return plan;
}

// Pushes values of 1 from every worker.
void PushOnes(Cluster& cluster) {
  for (const NodeId worker : cluster.workers) {
    cluster.Push(worker, 0, std::vector<float>(kLength, 1.0f));
  }
}

NodeStats GlobalStats(const Cluster& cluster) {
  return cluster.node(cluster.globals.front()).stats();
}

// All rounds complete, all workers receive the same values, and nodes are deterministic.
TEST(RoundsWithLostSlicesComplete) {
  check::ForSeeds(30, [](std::uint64_t seed) {
    check::Random random(seed);
    Cluster cluster(seed, LossyPlan({1, 2}, 4, check::Chance(random, 0.5) ? 0 : kSecond));
    cluster.Declare(0, kLength, {{.elements = kLength}});
    cluster.faults = {.loss = 0.2, .duplicate = 0.2, .delay = 0.3};
    for (std::size_t round = 1; round <= 5; ++round) {
      PushOnes(cluster);
      cluster.Drive(2 * kSecond);
      CHECK_EQ(cluster.Count(Event::Kind::kValueReady), round * cluster.workers.size());
      const auto value = cluster.Value(cluster.workers.front(), 0);
      for (const NodeId worker : cluster.workers) CHECK(cluster.Value(worker, 0) == value);
    }
    CHECK_EQ(cluster.Count(Event::Kind::kPeerError), 0u);
    cluster.ReplayAll();
  });
}

// Every pushed row is in the sum of its round or of the next, or is counted as missing.
TEST(LostRowsAreCounted) {
  check::ForSeeds(40, [](std::uint64_t seed) {
    Cluster cluster(seed, LossyPlan({1}, 4, kSecond));
    cluster.Declare(0, kLength, {{.elements = kLength}});
    const int rounds = 6;
    double sum = 0;
    for (int round = 1; round <= rounds; ++round) {
      // The last round has no faults, so that no slice is pending.
      cluster.faults = {.loss = 0.2, .duplicate = 0.2, .delay = 0.3};
      if (round == rounds) cluster.faults = {};
      PushOnes(cluster);
      cluster.Drive(2 * kSecond);
      for (const float x : cluster.Value(cluster.workers.front(), 0)) sum += x;
    }
    const NodeStats stats = GlobalStats(cluster);
    CHECK(stats.late_slices > 0 && stats.refused_slices > 0);
    CHECK_EQ(sum, 1.0 * kLength * rounds -
                      kRows * static_cast<double>(stats.missing_slices - stats.late_slices));
  });
}

TEST(ARoundWaitsForBestEffortSlicesUpToTheLimit) {
  Cluster cluster(1, LossyPlan({1}, 2, 3 * kSecond));
  cluster.Declare(0, kLength, {{.elements = kLength}});
  cluster.faults.loss = 1;
  PushOnes(cluster);
  cluster.Drive(2 * kSecond);
  CHECK_EQ(cluster.Count(Event::Kind::kValueReady), 0u);
  const Time deadline = cluster.node(cluster.globals.front()).PollTimeout();
  CHECK(deadline > 2 * kSecond && deadline < 4 * kSecond);
  cluster.Drive(2 * kSecond);
  CHECK_EQ(cluster.Count(Event::Kind::kValueReady), 1u);
  CHECK_EQ(cluster.Value(cluster.workers.front(), 0)[kRows - 1], 1.0f);
  CHECK_EQ(cluster.Value(cluster.workers.front(), 0)[kRows], 0.0f);
  CHECK_EQ(cluster.node(cluster.globals.front()).PollTimeout(), kNever);
}

// Even if the slicer has none; otherwise the receiver might not learn of the round.
TEST(OneSliceIsAlwaysReliable) {
  Cluster cluster(1, LossyPlan({1}, 0, 0));
  cluster.Declare(0, kLength, {{.elements = kLength}});
  cluster.faults.loss = 1;
  PushOnes(cluster);
  cluster.Drive();
  CHECK_EQ(cluster.Count(Event::Kind::kValueReady), 1u);
  CHECK_EQ(GlobalStats(cluster).missing_slices, kLength / kRows - 1);
}

// An unsent slice may still be merged into the next round, but not into later ones.
TEST(UnsentSlicesOfOldRoundsAreDropped) {
  Cluster cluster(1, LossyPlan({1}, 4, 0));
  cluster.Declare(0, kLength, {{.elements = kLength}});
  cluster.faults.stall = true;
  const std::uint64_t best_effort = 15;  // of 20 slices
  for (std::uint64_t round = 1; round <= 4; ++round) {
    PushOnes(cluster);
    cluster.Drive();
    const NodeStats sender = cluster.node(cluster.servers.front()).stats();
    CHECK_EQ(sender.dropped_slices, round < 3 ? 0 : (round - 2) * best_effort);
  }
  cluster.faults.stall = false;
  cluster.Drive();
  CHECK_EQ(GlobalStats(cluster).late_slices, best_effort);     // of round 4, merged into round 5
  CHECK_EQ(GlobalStats(cluster).refused_slices, best_effort);  // of round 3
}

// Notes the loss ratios that slicers are given.
struct Noting final : Slicer, SlicerFactory {
  explicit Noting(std::vector<double>& its) : ratios(its) {}
  void Cut(const SliceContext& context, std::vector<Slice>&) override { ratios.push_back(context.loss_ratio); }
  std::unique_ptr<Slicer> Make(const ShardInfo&) const override { return std::make_unique<Noting>(ratios); }
  std::vector<double>& ratios;
};

// The loss of a party is that of its workers that are there.
TEST(LossesAreComparedWithoutWorkersThatAreAway) {
  std::vector<double> ratios;
  const Cluster cluster(1, check::Lasting({3, 1}, 1));
  const NodeId global = cluster.globals.front(), server = cluster.servers.front();
  const std::vector<NodeId>& workers = cluster.parties.front();
  NodeConfig config = cluster.node(server).config();
  config.absent = {workers[2]};
  config.links[{global, Direction::kPush}].slicers = {std::make_shared<const Noting>(ratios)};
  Alone party(config);
  for (const std::size_t worker : {0u, 1u}) party.Hear(workers[worker], check::Ask(0, 10, 0));
  Message initial = Transfer(Kind::kValue, global, 0, 10);
  initial.header.flags = kPlain;
  party.Hear(global, std::move(initial));
  const auto push = [&](std::size_t worker, Round round, float loss) {
    Message message = Transfer(Kind::kPush, workers[worker], round, 10);
    message.header.loss = loss;
    party.Hear(workers[worker], std::move(message));
  };
  const auto answer = [&](Round round) { party.Hear(global, Transfer(Kind::kValue, global, round, 10)); };
  push(0, 1, 8);
  push(1, 1, 4);
  answer(1);
  push(0, 2, 4);
  push(1, 2, 2);
  answer(2);
  party.Lose(workers[0]);
  push(1, 3, 3);
  CHECK((ratios == std::vector{1.0, 0.5, 0.5}));
  CHECK(party.errors.empty());
}

}  // namespace
}  // namespace geomx
