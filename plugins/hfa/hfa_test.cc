// HFA in a cluster: rounds that use the WAN, and the models after them.
#include <cmath>

#include "core/natives.h"
#include "tests/cluster.h"

namespace geomx {
namespace {

using check::Cluster;
using check::Plan;
using check::Random;

Plan HfaPlan(double k2, std::vector<std::uint32_t> parties) {
  Plan plan;
  plan.parties = std::move(parties);
  double workers = 0;
  for (const std::uint32_t size : plan.parties) workers += size;
  plan.policy = [k2, workers, sizes = plan.parties](std::uint32_t party) {
    return NativePolicies::Instance().Create("hfa",
                                             {{"k2", k2}, {"weight", sizes[party] / workers}});
  };
  return plan;
}

// Initialises all nodes with the master's weights, and SGD on the global server.
void Begin(Cluster& cluster, const std::vector<float>& weights) {
  const auto elements = static_cast<std::uint32_t>(weights.size());
  cluster.Declare(0, elements, cluster.RandomShards(elements, 3));
  cluster.Init(0, weights);
  cluster.Command("optimizer\nsgd\nlearning_rate 1");
  cluster.RequestAll(0);
  cluster.Drive();
  for (const NodeId worker : cluster.workers) CHECK(cluster.Value(worker, 0) == weights);
}

// Each worker pushes its parameters divided by the number of workers of its party.
void PushParameters(Cluster& cluster, const std::map<NodeId, std::vector<float>>& parameters,
                    bool last = false) {
  for (const auto& party : cluster.parties) {
    for (const NodeId worker : party) {
      std::vector<float> scaled = parameters.at(worker);
      for (float& x : scaled) x /= static_cast<float>(party.size());
      cluster.Push(worker, 0, scaled, last);
    }
  }
  cluster.Drive();
  CHECK_EQ(cluster.Count(Event::Kind::kPeerError), 0u);
}

// Returns the number of pushes over the WAN.
std::uint64_t Escalations(const Cluster& cluster) {
  std::uint64_t count = 0;
  for (const auto& [link, traffic] : cluster.traffic()) {
    const auto& [from, to, kind] = link;
    if (kind == Kind::kPush && from == cluster.servers[0]) count += traffic.messages;
  }
  return count;
}

TEST(HfaAveragesParameters) {
  Cluster cluster(1, HfaPlan(1, {1, 1}));
  cluster.Declare(0, 1, {{.elements = 1}});
  cluster.Init(0, {1.0f});
  cluster.Command("optimizer\nsgd\nlearning_rate 1");
  cluster.RequestAll(0);
  cluster.Drive();
  PushParameters(cluster, {{cluster.workers[0], {1.4f}}, {cluster.workers[1], {0.8f}}});
  for (const NodeId worker : cluster.workers) CHECK_NEAR(cluster.Value(worker, 0)[0], 1.1, 1e-6);
}

TEST(HfaCrossesTheWanEveryK2thRoundAndAtTheEnd) {
  check::ForSeeds(6, [](std::uint64_t seed) {
    Cluster cluster(seed, HfaPlan(3, {2, 1}));
    cluster.Declare(0, 4, {{.elements = 4}});
    cluster.Init(0, {0, 0, 0, 0});
    cluster.Command("optimizer\nsgd\nlearning_rate 1");
    cluster.RequestAll(0);
    cluster.Drive();
    for (Round round = 1; round <= 8; ++round) {
      std::map<NodeId, std::vector<float>> parameters;
      for (const NodeId worker : cluster.workers) parameters[worker] = cluster.RandomValues(4);
      const bool last = round == 8;
      PushParameters(cluster, parameters, last);
      CHECK_EQ(Escalations(cluster), round / 3 + (last ? 1 : 0));
      const auto& w = cluster.workers;
      for (std::size_t i = 0; i < 4; ++i) {
        const double mean = (parameters[w[0]][i] + parameters[w[1]][i]) / 2;
        const double other = parameters[w[2]][i];
        if (round % 3 == 0 || last) {
          // The mean over all workers: parties are weighted by size.
          const double all = (2 * mean + other) / 3;
          for (const NodeId worker : w) CHECK_NEAR(cluster.Value(worker, 0)[i], all, 1e-5);
        } else {
          CHECK_NEAR(cluster.Value(w[0], 0)[i], mean, 1e-6);
          CHECK_NEAR(cluster.Value(w[2], 0)[i], other, 1e-6);
        }
      }
    }
    cluster.ReplayAll();
  });
}

// A worker that has made its last push, and left, changes nothing about the rounds of the others.
TEST(HfaCrossesTheWanEveryK2thRoundAfterAWorkerHasEnded) {
  check::ForSeeds(6, [](std::uint64_t seed) {
    Plan plan = HfaPlan(4, {2, 1});
    plan.continues = true;
    Cluster cluster(seed, plan);
    cluster.Declare(0, 1, {{.elements = 1}});
    cluster.Init(0, {1.0f});
    cluster.Command("optimizer\nsgd\nlearning_rate 1");
    cluster.RequestAll(0);
    cluster.Drive();
    const NodeId ends = cluster.workers[1];
    for (Round round = 1; round <= 10; ++round) {
      for (const NodeId worker : cluster.workers) {
        if (worker == ends && round > 3) continue;
        const float size = worker == cluster.workers[2] ? 1 : 2;
        cluster.Push(worker, 0, {1.0f / size}, round == (worker == ends ? 3 : 10));
      }
      cluster.Drive();
      if (round == 3) cluster.Do(ends, [](Node& node, Time now) { node.Leave(now); });
      cluster.Drive();
      CHECK_EQ(Escalations(cluster), round / 4 + (round == 10 ? 1 : 0));
    }
    CHECK_EQ(cluster.Count(Event::Kind::kPeerError), 0u);
  });
}

// With K1 = K2 = 1 and SGD, averaging parameters equals averaging gradients.
TEST(HfaInEveryStepEqualsFsa) {
  check::ForSeeds(6, [](std::uint64_t seed) {
    const std::vector<std::uint32_t> parties = {2, 3};
    Plan fsa_plan;
    fsa_plan.parties = parties;
    Cluster hfa(seed, HfaPlan(1, parties)), fsa(seed, fsa_plan);
    const double rate = 0.1;
    std::vector<float> weights = hfa.RandomValues(20);
    Begin(hfa, weights);
    fsa.Declare(0, 20, {{.elements = 20}});
    fsa.Init(0, weights);
    fsa.Command("optimizer\nsgd\nlearning_rate 0.1\nrescale_grad 0.2");
    fsa.RequestAll(0);
    fsa.Drive();
    for (int round = 0; round < 5; ++round) {
      std::map<NodeId, std::vector<float>> moved;
      for (const NodeId worker : hfa.workers) {
        const std::vector<float> gradient = hfa.RandomValues(20);
        fsa.Push(worker, 0, gradient);
        moved[worker] = hfa.Value(worker, 0);
        for (std::size_t i = 0; i < 20; ++i) moved[worker][i] -= float(rate) * gradient[i];
      }
      PushParameters(hfa, moved);
      fsa.Drive();
      const auto expected = fsa.Value(fsa.workers[0], 0);
      for (const NodeId worker : hfa.workers) {
        const auto value = hfa.Value(worker, 0);
        for (std::size_t i = 0; i < 20; ++i) CHECK_NEAR(value[i], expected[i], 1e-5);
      }
    }
  });
}

TEST(HfaSendsSimulatedSizes) {
  Plan plan = HfaPlan(2, {2, 2});
  plan.phantom = true;
  Cluster cluster(1, plan);
  cluster.Declare(0, 10, {{.elements = 10}});
  cluster.Init(0, std::vector<float>(10));
  cluster.RequestAll(0);
  cluster.Drive();
  for (int round = 1; round <= 4; ++round) {
    for (const NodeId worker : cluster.workers) cluster.Push(worker, 0, std::vector<float>(10));
    cluster.Drive();
  }
  CHECK_EQ(Escalations(cluster), 2u);
  CHECK_EQ(cluster.Count(Event::Kind::kValueReady), 20u);
}

// Without initial values there is no milestone: the push is refused, and nothing else happens.
TEST(HfaNeedsTheInitialValue) {
  check::CheckThatPushesNeedTheInitialValue(HfaPlan(1, {1, 1}));
}

}  // namespace
}  // namespace geomx
