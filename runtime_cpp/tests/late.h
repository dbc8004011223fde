// Clusters whose rounds close without parties or workers that are late, by rules that a test decides.
#pragma once

#include <algorithm>
#include <functional>
#include <vector>

#include "tests/cluster.h"

namespace geomx::check {

// What a test decides about rounds, and the contributions of those that have closed.
struct Rules {
  std::uint32_t quorum = 2;
  Time deadline = kSecond;
  std::function<bool(const Contribution&)> takes = [](const Contribution&) { return true; };
  std::function<double(const Contribution&)> weight = [](const Contribution&) { return 1.0; };
  bool relative = true;
  bool continues = true;
  std::vector<std::vector<Contribution>> closed = {};

  // Takes what is not older; weighs all alike (0), by steps (1), or by age (2).
  void Choose(std::uint64_t oldest, std::uint64_t weighs) {
    takes = [oldest](const Contribution& each) { return each.age <= oldest; };
    weight = [weighs](const Contribution& each) {
      return weighs == 0 ? 1.0 : weighs == 1 ? each.steps : 1.0 / (1 + each.age);
    };
  }
};

class ByRules final : public QuorumRounds {
 public:
  explicit ByRules(Rules& rules) : QuorumRounds(rules.quorum, rules.deadline), rules_(rules) {}
  bool Takes(const ShardInfo&, const Contribution& late) override { return rules_.takes(late); }
  bool Relative() const override { return rules_.relative; }
  void Weigh(const EarlyRound& round, std::span<double> weights) override {
    rules_.closed.emplace_back(round.contributions.begin(), round.contributions.end());
    std::transform(round.contributions.begin(), round.contributions.end(), weights.begin(), rules_.weight);
  }

 private:
  Rules& rules_;
};

// A cluster whose workers push a tensor of two elements, with the initial value.
struct Pushing : Cluster {
  Pushing(std::uint64_t seed, const Plan& plan) : Cluster(seed, plan) {
    Declare(0, 2, {{.elements = 2}});
    Init(0, {0, 0});
    RequestAll(0);
    Drive();
  }
  void PushOf(std::size_t worker, float value, bool last = false) {
    Push(workers[worker], 0, {value, -value}, last);
  }
  bool Holds(std::size_t worker, float value) { return Value(workers[worker], 0) == std::vector{value, -value}; }
  std::size_t Rounds() const { return Events(globals.front(), Event::Kind::kUpdated).size(); }
  Round Reached(std::size_t worker) {
    Round reached = 0;
    Do(workers[worker], [&reached](Node& node, Time) { reached = node.worker().Reached(0); });
    return reached;
  }
};

}  // namespace geomx::check
