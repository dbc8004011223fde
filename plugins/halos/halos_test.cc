// HALoS: a party's model against a plain reference, and that no move is lost or counted twice, however
// pushes and answers interleave; a cluster; the planner of steps.
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "core/natives.h"
#include "tests/cluster.h"

namespace geomx {
namespace {

using check::Between;
using check::Chance;
using check::Cluster;
using check::Plan;
using check::Random;
using check::Uniform;

constexpr float kTolerance = 2e-5f;

Options Numbers(double k, double alpha, double lr, double momentum = 0, double delay = 1) {
  return {{"k", k}, {"alpha", alpha}, {"local_lr", lr}, {"local_momentum", momentum}, {"local_delay", delay}};
}

std::shared_ptr<PartyPolicy> Make(const Options& options) {
  return NativePolicies::Instance().Create("halos", options);
}

// One number of a party's model, by the equations.
struct Reference {
  double k, alpha, lr, momentum, delay;
  double model, unsent = 0, velocity = 0, buffer = 0;
  std::uint64_t updates = 0, since = 0;

  void Update(double change) {
    double step = lr * change;
    buffer += change;
    if (++updates % static_cast<std::uint64_t>(delay) == 0) {
      velocity = momentum * velocity + buffer / delay;
      buffer = 0;
      step += lr * delay * momentum * velocity;
    }
    model -= step;
    unsent += step;
    ++since;
  }
  std::optional<double> Send(bool ends) {
    if (!ends && static_cast<double>(since) < k) return std::nullopt;
    since = 0;
    return std::exchange(unsent, 0.0);
  }
  void Merge(double answer) { model = (1 - alpha) * model + alpha * answer; }
};

// Any interleaving of pushes and answers: the model, what workers get, and what is sent are those of the
// reference; without momentum, all that is sent is what workers have learnt.
TEST(HalosKeepsEveryMoveWhateverTheOrder) {
  check::ForSeeds(200, [](std::uint64_t seed) {
    Random random(seed);
    const double momentum = Chance(random, 0.5) ? 0 : Uniform(random, 0, 0.9f);
    Reference party{.k = static_cast<double>(Between(random, 1, 6)),
                    .alpha = Chance(random, 0.2) ? 1 : Uniform(random, 0, 1),
                    .lr = Uniform(random, 0.1f, 1),
                    .momentum = momentum,
                    .delay = static_cast<double>(Between(random, 1, 4)),
                    .model = Uniform(random, -1, 1)};
    const auto policy = Make(Numbers(party.k, party.alpha, party.lr, party.momentum, party.delay));
    const ShardInfo shard{.key = 3, .index = 1, .elements = 1};
    const auto initial = static_cast<float>(party.model);
    policy->Initial(shard, std::vector{initial});
    const auto workers = static_cast<NodeId>(Between(random, 1, 4));
    std::vector<float> given(workers, initial);
    std::vector<Round> rounds(workers);
    double learnt = 0, sent = 0;
    bool in_flight = false;
    const auto send = [&](bool ends) {
      if (in_flight) return;
      const auto expected = party.Send(ends);
      const auto move = policy->Send(shard, ends);
      CHECK_EQ(move.has_value(), expected.has_value());
      if (!move || !expected) return;
      CHECK_NEAR(move->front(), *expected, kTolerance);
      sent += move->front();
      in_flight = true;
    };
    const auto answer = [&](bool last) {
      std::vector<float> value = {Uniform(random, -1, 1)};
      const float theta = value.front();
      if (!last) party.Merge(theta);
      policy->Answer(shard, value);
      if (last) CHECK_EQ(value.front(), theta);
      in_flight = false;
    };
    for (std::uint64_t event = Between(random, 1, 60); event > 0; --event) {
      if (in_flight && Chance(random, 0.3)) {
        answer(false);
        send(false);
        continue;
      }
      const auto worker = static_cast<NodeId>(Between(random, 0, workers - 1));
      const float change = Uniform(random, -1, 1);
      learnt += change;
      std::vector<float> value = {given[worker] - change};
      party.Update(change);
      policy->Update({shard, worker, ++rounds[worker]}, value);
      CHECK_NEAR(value.front(), party.model, kTolerance);
      given[worker] = value.front();
      send(false);
    }
    if (in_flight) answer(false);
    send(true);
    if (momentum == 0) CHECK_NEAR(sent, party.lr * learnt, 1e-4);
    answer(true);
  });
}

// A run of a whole cluster, whose workers push different numbers of times: parties end with what the global server
// has made of all moves, which are all changes of all workers.
TEST(HalosEndsWithAllChanges) {
  check::ForSeeds(12, [](std::uint64_t seed) {
    Random random(seed);
    Plan plan;
    plan.parties = {static_cast<std::uint32_t>(Between(random, 1, 3)), static_cast<std::uint32_t>(Between(random, 1, 3))};
    plan.rounds.together = plan.rounds.workers_together = false;
    const auto k = static_cast<double>(Between(random, 1, 5));
    plan.policy = [k](std::uint32_t) { return Make(Numbers(k, 0.25, 0.5)); };
    Cluster cluster(seed, plan);
    constexpr std::uint32_t kElements = 5;
    cluster.Declare(0, kElements, cluster.RandomShards(kElements, 2));
    const std::vector<float> initial = cluster.RandomValues(kElements);
    cluster.Init(0, initial);
    cluster.Command("optimizer\nsgd\nlearning_rate 0.5");
    cluster.RequestAll(0);
    cluster.Drive();
    std::map<NodeId, std::uint64_t> left;
    for (const NodeId worker : cluster.workers) left[worker] = Between(random, 1, 7);
    std::vector<double> expected(initial.begin(), initial.end());
    while (!left.empty()) {
      for (const NodeId worker : cluster.workers) {
        if (!left.contains(worker) || !Chance(random, 0.6)) continue;
        std::vector<float> value = cluster.Value(worker, 0);
        const std::vector<float> change = cluster.RandomValues(kElements);
        for (std::size_t i = 0; i < kElements; ++i) {
          value[i] -= change[i];
          expected[i] -= 0.25 * change[i];
        }
        const bool last = --left[worker] == 0;
        cluster.Push(worker, 0, value, last);
        if (last) left.erase(worker);
      }
      cluster.Drive();
    }
    check::CheckNoErrors(cluster);
    std::vector<float> final(kElements);
    double nearest = INFINITY;  // the party that was answered last has everything
    for (const auto& party : cluster.parties) {
      const std::vector<float> value = cluster.Value(party.front(), 0);
      for (const NodeId worker : party) CHECK(cluster.Value(worker, 0) == value);
      double off = 0;
      for (std::size_t i = 0; i < kElements; ++i) off = std::max(off, std::fabs(value[i] - expected[i]));
      nearest = std::min(nearest, off);
    }
    if (cluster.Value(cluster.parties[0].front(), 0).size() == kElements) CHECK_NEAR(nearest, 0, 1e-4);
    cluster.ReplayAll();
  });
}

// A script may leave without saying which push was its last: the others do not wait for it.
TEST(HalosDoesNotWaitForWorkersThatHaveLeft) {
  Plan plan;
  plan.parties = {3};
  plan.rounds.together = plan.rounds.workers_together = false;
  plan.policy = [](std::uint32_t) { return Make(Numbers(100, 0.25, 0.5)); };
  Cluster cluster(1, plan);
  cluster.Declare(0, 1, {{.elements = 1}});
  cluster.Init(0, {1.0f});
  cluster.Command("optimizer\nsgd\nlearning_rate 1");
  cluster.RequestAll(0);
  cluster.Drive();
  const auto& w = cluster.workers;
  cluster.Push(w[0], 0, {0.0f}, true);
  cluster.Push(w[1], 0, {0.0f});
  cluster.Drive();
  for (const NodeId id : {w[1], w[2]}) {
    CHECK_EQ(cluster.Value(w[0], 0).front(), 1.0f);  // not answered yet
    cluster.Do(id, [](Node& node, Time now) { node.Leave(now); });
    cluster.Drive();
  }
  CHECK_EQ(cluster.Value(w[0], 0).front(), 0.0f);
  check::CheckNoErrors(cluster);
}

TEST(HalosRefusesPushesOutOfTurn) {
  Plan plan;
  plan.parties = {1, 1};
  plan.rounds.together = plan.rounds.workers_together = false;
  plan.policy = [](std::uint32_t) { return Make(Numbers(2, 0.25, 1)); };
  check::CheckThatPushesNeedTheInitialValue(plan);
}

TEST(HalosPlansStepsBySpeed) {
  const auto planner = NativeCoordinators::Instance().Create("halos", {});
  const auto share = [&](NodeId worker, double step_s) -> double {
    const auto replies = planner->OnReport(worker, std::vector{step_s}, 0);
    CHECK_EQ(replies.size(), 1u);
    return replies.empty() ? -1 : replies[0].values.at(0);
  };
  CHECK_EQ(share(7, 0.2), 1.0);   // the first to report is the fastest known
  CHECK_EQ(share(8, 0.1), 1.0);
  CHECK_EQ(share(7, 0.2), 0.5);
  CHECK_NEAR(share(9, 1.0), 0.1, 1e-12);
  CHECK_EQ(share(8, 0.4), 0.5);   // it has become slower
  for (const double bad : {0.0, -1.0, std::nan(""), double{INFINITY}}) {
    CHECK(planner->OnReport(9, std::vector{bad}, 0).empty());
  }
  CHECK(planner->OnReport(9, std::vector<double>{}, 0).empty());
}

}  // namespace
}  // namespace geomx
