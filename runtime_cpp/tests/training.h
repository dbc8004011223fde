// Random clusters that train for a few rounds, for laws about faults during training.
#pragma once

#include <functional>

#include "core/natives.h"
#include "tests/cluster.h"

namespace geomx::check {

inline void AddCodecs(Random& random, LinkPlan& plan) {
  const auto add = [&](const char* name, const Options& options) {
    plan.codecs.push_back(NativeCodecs::Instance().Create(name, options));
  };
  if (Chance(random, 0.4)) {
    add("bisparse", {{"ratio", 0.25}, {"momentum", 0.9}, {"masking", 1}, {"clip", 0},
                     {"warmup_rounds", 2}, {"exact", 1}, {"flush", 1}});
  }
  if (Chance(random, 0.3)) add("twobit", {{"threshold", 0.5}});
  if (Chance(random, 0.3)) add("fp16", {});
}

// Returns a random plan: shape of the cluster, place of the optimizer, codecs, and frame size.
inline Plan AnyPlan(Random& random) {
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
  // With codecs that keep something, parties' workers would have different values.
  plan.rounds.step_first = plan.rounds.update_at_party && plan.wan_push.codecs.empty();
  for (const std::uint32_t workers : plan.parties) plan.rounds.workers += workers;
  return plan;
}

// Returns the workers' values after each round, which depend on the seed only. `disturb` is called
// before training, and may let connections break and nodes be killed; `after` is called at the end.
inline std::vector<std::vector<float>> Train(std::uint64_t seed, const Plan& plan, bool integers,
                                             const std::function<void(Cluster&)>& disturb = {},
                                             const std::function<void(Cluster&)>& after = {}) {
  constexpr int kRounds = 4;
  constexpr std::uint32_t kElements = 150;
  Cluster cluster(seed, plan);
  cluster.random.seed(seed + 17);  // equal shards and values, before random numbers differ
  const auto shards = cluster.RandomShards(kElements, 3);
  const auto initial = cluster.RandomIntegers(kElements);
  std::vector<std::vector<std::vector<float>>> pushes(kRounds);
  for (auto& round : pushes) {
    for (std::size_t i = 0; i < cluster.workers.size(); ++i) {
      round.push_back(integers ? cluster.RandomIntegers(kElements) : cluster.RandomValues(kElements));
    }
  }
  if (disturb) disturb(cluster);
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
    if (!cluster.carriers()) CHECK_EQ(cluster.Lent(), 0u);  // else links keep what is not acknowledged
  }
  CHECK_EQ(cluster.Count(Event::Kind::kValueReady), (kRounds + 1) * cluster.workers.size());
  CheckNoErrors(cluster);
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
  if (after) after(cluster);
  if (seed % 8 == 0) cluster.ReplayAll();
  return values;
}

}  // namespace geomx::check
