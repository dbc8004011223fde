// Faults that follow each other so closely that independent draws hardly contain them, and members that do not
// behave as most do. Each concerns a few seeds in a hundred, and is added to their other faults.
#include <algorithm>

#include "faults/experiment.h"

namespace geomx::faults {
namespace {

using check::Between;
using check::Chance;

class Coincidences {
 public:
  Coincidences(Random& random, Experiment& experiment)
      : random_(random), experiment_(experiment), layout_(experiment.plan) {
    const Time step = experiment.compute + 4 * (experiment.lan_delay + experiment.wan_delay);
    training_ = static_cast<Time>(experiment.rounds) * step;
  }

  // The scheduler is replaced while members join. Some have called twice, or hear from both processes, and answers
  // are lost when connections are reset.
  void KillTheSchedulerThatCounts() {
    const Time wan = experiment_.wan_delay;
    Fault& kill = Add({.what = Fault::What::kKill, .at = Any(random_, 2 * wan, 9 * wan), .node = layout_.scheduler});
    kill.lasts = Any(random_, kMillisecond / 10, wan);
    kill.written = Chance(random_, 0.5) ? 0 : 1;
    const Time back = kill.at + kill.lasts;
    for (std::uint64_t i = Between(random_, 1, 3); i > 0; --i) {
      Reset(layout_.scheduler, back + Any(random_, 0, 7 * wan));
    }
  }

  // A party is without workers twice, and the answer to what it requested in between is delayed.
  void LoseAPartyTwice() {
    const auto smallest = std::min_element(layout_.parties.begin(), layout_.parties.end(),
                                           [](const auto& a, const auto& b) { return a.size() < b.size(); });
    const NodeId server = layout_.servers[static_cast<std::size_t>(smallest - layout_.parties.begin())];
    const Time wan = experiment_.wan_delay, at = Any(random_, 0, training_);
    const Time back = at + 10 * kMillisecond + Any(random_, 9 * wan, 15 * wan);  // and the request is sent
    const Time longest = experiment_.suspect * 9 / 10;
    for (const NodeId worker : *smallest) {
      Kill(worker, at, Any(random_, kMillisecond, 5 * kMillisecond));
      Kill(worker, back + Any(random_, 2 * wan, 4 * wan), kMillisecond);
    }
    // One draw a statement: compilers choose the order in which arguments are evaluated.
    const Time lasts = Any(random_, longest / 2, longest);
    const Time from = back + Any(random_, wan, 3 * wan);
    Cut(server, One(layout_.globals), from, lasts);
  }

  // A worker fails silently. Its server cannot report that until another process has taken its place.
  void ReportLate() {
    const std::size_t party = Between(random_, 0, layout_.parties.size() - 1);
    const NodeId worker = One(layout_.parties[party]);
    const Time at = Any(random_, 0, training_), tenth = experiment_.suspect / 10;
    const Time cut = Any(random_, 3 * tenth, 6 * tenth);
    Kill(worker, at, cut + Any(random_, 0, 3 * tenth)).told = false;
    Cut(layout_.scheduler, layout_.servers[party], at + cut, Any(random_, 7 * tenth, 9 * tenth));
  }

  // Rounds stay open for long, so that members come back to the round in which they were lost.
  void Slow() {
    const std::size_t party = Between(random_, 0, layout_.parties.size() - 1);
    experiment_.slow[party] = static_cast<double>(Between(random_, 5, 25));
  }

  // Rounds close without a slow party, but not at once.
  void LeaveBehind(std::size_t party) {
    check::Plan& plan = experiment_.plan;
    experiment_.slow[party] = static_cast<double>(Between(random_, 10, 25));
    plan.quorum = std::min(plan.quorum, static_cast<std::uint32_t>(layout_.parties.size() - 1));
    plan.deadline = Any(random_, 8 * experiment_.wan_delay, 16 * experiment_.wan_delay + experiment_.compute);
  }

  // All workers leave with the first, in the middle of the slow ones' steps.
  void Curtail() {
    experiment_.curtailed = true;
    if (experiment_.plan.quorum > 0) LeaveBehind(Between(random_, 0, layout_.parties.size() - 1));
  }

  // The workers of a slow party leave when the others have finished, after a push that is late.
  void LeaveLate() {
    check::Plan& plan = experiment_.plan;
    const std::size_t slow = Between(random_, 0, layout_.parties.size() - 1);
    LeaveBehind(slow);
    const Time longest = training_ + static_cast<Time>(experiment_.rounds) * plan.deadline;
    const Time at = 8 * experiment_.wan_delay + Any(random_, 0, longest);
    for (const NodeId worker : layout_.parties[slow]) {
      Add({.what = Fault::What::kLeave, .at = at, .node = worker});
    }
  }

  // Rounds close without late parties, although no member is lost.
  void CloseEarly() {
    const std::size_t parties = layout_.parties.size();
    check::Plan& plan = experiment_.plan;
    plan.quorum = static_cast<std::uint32_t>(Between(random_, 1, parties));
    plan.deadline = Chance(random_, 0.3) ? 0 : Any(random_, 0, 2 * experiment_.compute + experiment_.wan_delay);
    if (Chance(random_, 0.7)) {
      experiment_.slow[Between(random_, 0, parties - 1)] = static_cast<double>(Between(random_, 1, 8));
    }
    experiment_.exact = false;
  }

  // The nodes of a party that joins are started at once, and some of what they and the scheduler say is late.
  void JoinAtOnce() {
    Time first = kNever;
    for (const Fault& each : experiment_.faults) {
      if (each.what == Fault::What::kJoin) first = std::min(first, each.at);
    }
    for (Fault& each : experiment_.faults) {
      if (each.what == Fault::What::kJoin) each.at = first + Any(random_, 0, 2 * experiment_.wan_delay);
    }
    for (std::uint64_t i = first == kNever ? 0 : Between(random_, 0, 3); i > 0; --i) {
      const Time wan = experiment_.wan_delay, at = first + Any(random_, 5 * wan, 14 * wan);
      const Time lasts = Any(random_, wan, 6 * wan);
      Cut(layout_.scheduler, One(experiment_.absent), at, lasts);
    }
  }

  // The scheduler and the global servers keep logs, and are killed too, or silent for longer than others may be.
  void Log() {
    experiment_.logged = true;
    experiment_.plan.patience = kPatience;
    for (std::uint64_t i = Between(random_, 1, 4); i > 0; --i) {
      const bool server = Chance(random_, 0.7);
      const NodeId node = server ? One(layout_.globals) : layout_.scheduler;
      const Time lasts = Chance(random_, 0.6) ? Any(random_, kMillisecond, experiment_.suspect / 2)
                                              : Any(random_, kMillisecond, 3 * experiment_.suspect);
      Fault& fault = Kill(node, Any(random_, 0, training_), lasts);
      if (Chance(random_, 0.3)) fault.what = Fault::What::kPause;
      fault.written = Chance(random_, 0.5) ? 0 : static_cast<double>(Between(random_, 0, 100)) / 100;
    }
  }

  // A local server is lost between its contribution and the end of the round.
  void LoseAServer() {
    const Time lasts = Any(random_, kMillisecond, 5 * kMillisecond);
    const Time at = Any(random_, 0, 4 * training_);
    Kill(One(layout_.servers), at, lasts);
  }

 private:
  template <class Item>
  const Item& One(const std::vector<Item>& items) {
    return items[Between(random_, 0, items.size() - 1)];
  }
  Fault& Add(const Fault& fault) { return experiment_.faults.emplace_back(fault); }
  Fault& Kill(NodeId node, Time at, Time lasts) {
    return Add({.what = Fault::What::kKill, .at = at, .lasts = lasts, .node = node, .written = 0});
  }
  void Cut(NodeId one, NodeId other, Time at, Time lasts) {
    Add({.what = Fault::What::kCut, .at = at, .lasts = lasts, .node = one, .other = other});
  }
  void Reset(NodeId node, Time at) { Add({.what = Fault::What::kReset, .at = at, .node = node, .other = node}); }

  Random& random_;
  Experiment& experiment_;
  const check::Layout layout_;
  Time training_ = 0;
};

}  // namespace

void DrawCoincidences(Random& random, Experiment& experiment) {
  const bool many = experiment.plan.parties.size() > 1;
  Coincidences coincidences(random, experiment);
  experiment.hasty = Chance(random, 0.1);
  if (Chance(random, 0.05)) experiment.loading = Any(random, experiment.suspect, 3 * experiment.suspect);
  if (experiment.on_loss == OnLoss::kWait) {
    const auto which = Between(random, 0, 19);
    if (which < 2) coincidences.KillTheSchedulerThatCounts();
    const GlobalRounds& rounds = experiment.plan.rounds;
    const bool own = !rounds.together && rounds.workers_together && experiment.plan.wan_push.slicers.empty();
    if (many && own && Chance(random, 0.2)) {
      experiment.hostile = true;
      coincidences.Slow();
    }
  } else if (experiment.on_loss == OnLoss::kContinue) {
    const auto which = Between(random, 0, 19);
    if (which < 2 && many) coincidences.LoseAPartyTwice();
    if (which == 2) coincidences.ReportLate();
    if ((which == 3 || which == 4) && experiment.plan.quorum > 0) coincidences.LeaveLate();
    if (many && experiment.plan.quorum == 0 && Chance(random, experiment.hostile ? 0.4 : 0.1)) {
      coincidences.Slow();
      if (experiment.hostile) coincidences.LoseAServer();
    }
  }
}

void DrawRecent(Random& random, Experiment& experiment) {
  Coincidences coincidences(random, experiment);
  if (Chance(random, 0.3)) experiment.idle = static_cast<double>(Between(random, 1, 9)) / 10;
  if (Chance(random, 0.7)) coincidences.JoinAtOnce();
  if (Chance(random, 0.25)) experiment.snapshots = 0.2;
  if (experiment.on_loss == OnLoss::kContinue && Chance(random, 0.1)) coincidences.Curtail();
  const bool many = experiment.plan.parties.size() > 1;
  if (experiment.on_loss == OnLoss::kWait && experiment.replayable && many && Chance(random, 0.5)) {
    coincidences.CloseEarly();
  }
  const bool continues = experiment.on_loss == OnLoss::kContinue && !experiment.hostile;
  if (continues && Chance(random, 0.3)) coincidences.Log();
}

}  // namespace geomx::faults
