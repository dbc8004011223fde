// Draws what plugins decide in an experiment: the sync algorithm, codecs, and slices.
#include "core/natives.h"
#include "faults/experiment.h"
#include "faults/pool.h"
#include "tests/cluster.h"
#include "tests/random_pairs.h"
#include "tests/training.h"

namespace geomx::faults {
namespace {

using check::Between;
using check::Chance;

void DrawHfa(Random& random, Experiment& experiment) {
  const double k2 = static_cast<double>(Between(random, 1, 3));
  experiment.plan.policy = [k2](std::uint32_t) {
    return NativePolicies::Instance().Create("hfa", {{"k2", k2}, {"weight", 0.25}});
  };
  experiment.optimizer = "optimizer\nsgd\nlearning_rate 1";
}

// Draws a sync algorithm: rounds of each party's own or of each worker's, updates at the parties, HFA, an overlay,
// or FSA.
void DrawSync(Random& random, Experiment& experiment) {
  check::Plan& plan = experiment.plan;
  const auto which = Between(random, 0, 9);
  if (which == 0) {  // rounds of each party's own
    plan.rounds.together = false;
    plan.rounds.staleness_bound = static_cast<std::uint32_t>(Between(random, 0, 3));
    experiment.integers = true;
    experiment.optimizer.clear();
  } else if (which == 1) {
    plan.rounds.update_at_party = true;
  } else if (which == 2) {
    DrawHfa(random, experiment);
  } else if (which == 3) {
    plan.coordinator = [] { return std::make_shared<check::RandomPairs>(); };
    experiment.integers = true;
  } else if (which == 4) {  // workers that do not wait for each other either
    plan.rounds.together = plan.rounds.workers_together = false;
    const std::uint64_t k = Between(random, 1, 6);
    plan.policy = [k](std::uint32_t) { return std::make_shared<Pool>(k); };
    experiment.integers = true;
    experiment.optimizer.clear();
  }
}

void DrawCodecs(Random& random, Experiment& experiment) {
  check::Plan& plan = experiment.plan;
  if (Chance(random, 0.4)) check::AddCodecs(random, plan.lan_push);
  if (Chance(random, 0.6)) check::AddCodecs(random, plan.wan_push);
  if (Chance(random, 0.3)) plan.wan_pull.codecs.push_back(NativeCodecs::Instance().Create("fp16", {}));
}

void DrawSlices(Random& random, Experiment& experiment) {
  for (LinkPlan* link : {&experiment.plan.lan_push, &experiment.plan.wan_push}) {
    if (Chance(random, 0.5)) continue;
    const bool reliable = Chance(random, 0.4);
    const auto every = static_cast<std::uint32_t>(reliable ? 1 : Between(random, 2, 4));
    link->slicers = {check::BlockSlices(8 * static_cast<std::uint32_t>(Between(random, 1, 3)), every)};
    link->grace = 20 * kMillisecond;
    if (!reliable) experiment.exact = false;
  }
  experiment.loss = Chance(random, 0.5) ? 0.2 : 0;
  experiment.duplicates = Chance(random, 0.5) ? 0.2 : 0;
  experiment.late = Chance(random, 0.5) ? 0.2 : 0;
}

}  // namespace

void DrawParts(Random& random, Experiment& experiment) {
  DrawSync(random, experiment);
  const bool dense = experiment.integers || experiment.plan.coordinator || experiment.plan.policy;
  if (!dense) DrawCodecs(random, experiment);
  if (!experiment.plan.coordinator && Chance(random, 0.2)) DrawSlices(random, experiment);
}

void DrawPartsOfContinuing(Random& random, Experiment& experiment) {
  check::Plan& plan = experiment.plan;
  const bool free = experiment.on_loss == OnLoss::kContinue && !experiment.hostile && experiment.party_rounds.empty();
  if (!free || !Chance(random, 0.4)) return;
  experiment.replayable = experiment.exact = false;
  const auto which = plan.quorum > 0 ? 9 : Between(random, 0, 9);
  if (which < 5) {  // rounds of each party's own
    plan.rounds.together = false;
    if (Chance(random, 0.6)) plan.rounds.staleness_bound = static_cast<std::uint32_t>(Between(random, 0, 3));
    if (experiment.optimizer.empty()) experiment.integers = true;
    if (Chance(random, 0.3)) experiment.optimizer = "optimizer\ndcasgd\nlearning_rate 0.05";
  } else if (which < 7) {
    DrawHfa(random, experiment);
  }
  if (!plan.policy && Chance(random, 0.6)) DrawCodecs(random, experiment);
  if (Chance(random, 0.5)) DrawSlices(random, experiment);
}

}  // namespace geomx::faults
