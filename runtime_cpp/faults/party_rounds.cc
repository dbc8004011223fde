// Draws rounds of parties that close without some of their workers (docs/faults.md, faults.party_quorum).
#include <algorithm>

#include "core/round_policy.h"
#include "faults/experiment.h"

namespace geomx::faults {

void DrawPartyRounds(Random& random, Experiment& experiment) {
  using check::Between;
  using check::Chance;
  check::Plan& plan = experiment.plan;
  const std::uint32_t largest = *std::max_element(plan.parties.begin(), plan.parties.end());
  const double share = experiment.on_loss == OnLoss::kContinue ? 0.35 : 0.6;
  if (!experiment.replayable || experiment.hostile || largest < 2 || !Chance(random, share)) return;
  for (const std::uint32_t workers : plan.parties) {
    const auto quorum = static_cast<std::uint32_t>(Between(random, 1, workers));
    const Time longest = 2 * experiment.compute + experiment.lan_delay;
    experiment.party_rounds.push_back({quorum, Chance(random, 0.3) ? 0 : Any(random, 0, longest)});
  }
  plan.party_rounds = [rounds = experiment.party_rounds](std::uint32_t party) {
    return std::make_shared<QuorumRounds>(rounds[party].quorum, rounds[party].deadline);
  };
  experiment.exact = false;
  const check::Layout layout(plan);
  const Time step = experiment.compute + 4 * (experiment.lan_delay + experiment.wan_delay);
  for (std::uint64_t i = Between(random, 0, 2); i > 0; --i) {
    const NodeId worker = layout.workers[Between(random, 0, layout.workers.size() - 1)];
    experiment.slower[worker] = static_cast<double>(Between(random, 2, Chance(random, 0.3) ? 40 : 8));
    if (experiment.on_loss != OnLoss::kContinue || !Chance(random, 0.2)) continue;
    // After a push that was late, in most cases.
    const Time at = Any(random, 0, 2 * static_cast<Time>(experiment.rounds) * step);
    experiment.faults.push_back({.what = Fault::What::kLeave, .at = at, .node = worker});
  }
}

}  // namespace geomx::faults
