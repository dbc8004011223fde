#include "faults/experiment.h"

#include <algorithm>
#include <cstdio>
#include <set>


namespace geomx::faults {
namespace {

using check::Between;
using check::Chance;

template <class Item>
const Item& One(Random& random, const std::vector<Item>& items) {
  return items[Between(random, 0, items.size() - 1)];
}

// ---- the cluster -------------------------------------------------------------------------------

Tensor AnyTensor(Random& random, std::uint32_t servers) {
  Tensor tensor;
  tensor.elements = static_cast<std::uint32_t>(Between(random, 1, 40));
  std::set<std::uint32_t> cuts = {0};
  for (std::uint64_t i = Between(random, 0, 2); i > 0; --i) {
    cuts.insert(static_cast<std::uint32_t>(Between(random, 0, tensor.elements - 1)));
  }
  for (auto cut = cuts.begin(); cut != cuts.end(); ++cut) {
    const auto after = std::next(cut);
    tensor.shards.push_back({.offset = *cut,
                             .elements = (after == cuts.end() ? tensor.elements : *after) - *cut,
                             .server = static_cast<std::uint32_t>(Between(random, 0, servers - 1)),
                             .priority = static_cast<std::int32_t>(Between(random, 0, 4)) - 2});
  }
  return tensor;
}

void DrawCluster(Random& random, Experiment& experiment) {
  check::Plan& plan = experiment.plan;
  plan.parties.clear();
  for (std::uint64_t i = Between(random, 1, 3); i > 0; --i) {
    plan.parties.push_back(static_cast<std::uint32_t>(Between(random, 1, 3)));
  }
  plan.global_servers = static_cast<std::uint32_t>(Between(random, 1, 2));
  plan.frame_bytes = 32 << Between(random, 0, 3);
  plan.started = false;
  if (Chance(random, 0.7)) {
    experiment.optimizer = Chance(random, 0.5) ? "optimizer\nsgd\nlearning_rate 0.1\nmomentum 0.5"
                                               : "optimizer\nadam\nlearning_rate 0.05";
  }
  experiment.integers = Chance(random, 0.2);
  if (experiment.on_loss != OnLoss::kContinue) DrawParts(random, experiment);
  const bool coded = !plan.lan_push.codecs.empty() || !plan.wan_push.codecs.empty() ||
                     !plan.wan_pull.codecs.empty();
  experiment.replayable = !coded && experiment.exact && plan.rounds.together && !plan.policy &&
                          !plan.rounds.update_at_party && !plan.coordinator;
  experiment.exact = experiment.exact && plan.rounds.together;
}

// Draws a quorum and a deadline, and often a slow party.
void DrawQuorum(Random& random, Experiment& experiment) {
  const std::size_t parties = experiment.plan.parties.size();
  if (experiment.on_loss != OnLoss::kContinue || parties < 2 || !Chance(random, 0.5)) return;
  experiment.plan.quorum = static_cast<std::uint32_t>(Between(random, 1, parties));
  experiment.plan.deadline = Chance(random, 0.3) ? 0 : Any(random, 0, 2 * experiment.compute + experiment.wan_delay);
  if (Chance(random, 0.7)) {
    experiment.slow[Between(random, 0, parties - 1)] = static_cast<double>(Between(random, 1, 8));
  }
}

void DrawTraining(Random& random, Experiment& experiment) {
  for (std::uint64_t i = Between(random, 1, 3); i > 0; --i) {
    experiment.tensors.push_back(AnyTensor(random, experiment.plan.global_servers));
  }
  experiment.rounds = static_cast<Round>(Between(random, 2, 7));
  experiment.lockstep = Chance(random, 0.5);
  experiment.barrier = experiment.on_loss == OnLoss::kWait && Chance(random, 0.3);
  experiment.compute = Any(random, kMillisecond, 60 * kMillisecond);
  experiment.slow.assign(experiment.plan.parties.size(), 1);
  experiment.lan_delay = Any(random, 20 * kMicrosecond, kMillisecond);
  experiment.wan_delay = Any(random, kMillisecond, 60 * kMillisecond);
  experiment.bytes_per_s = static_cast<double>(10'000 << Between(random, 0, 7));
  // Reconnecting takes two round trips, whose delays vary by a factor of two, and must not count as silence.
  experiment.suspect = Any(random, 600 * kMillisecond, 1500 * kMillisecond) + 12 * experiment.wan_delay;
  experiment.redial = Any(random, 50 * kMillisecond, kSecond);
  experiment.shaped = Chance(random, 0.3);
  check::Plan& plan = experiment.plan;
  plan.heartbeat_interval = std::min(experiment.suspect / 4, 250 * kMillisecond);
  plan.continues = experiment.on_loss == OnLoss::kContinue;
  plan.patience = experiment.on_loss == OnLoss::kWait ? kPatience : 0;
}

// ---- faults ------------------------------------------------------------------------------------

// Returns a duration: shorter than the failure timeout in most cases.
Time AnyLength(Random& random, Time suspect) {
  return Chance(random, 0.6) ? Any(random, kMillisecond, suspect / 2) : Any(random, kMillisecond, 3 * suspect);
}

class Drawing {
 public:
  Drawing(Random& random, const Experiment& experiment)
      : random_(random), experiment_(experiment), layout_(experiment.plan) {}

  Fault Any(Time until) {
    Fault fault;
    fault.at = faults::Any(random_, 0, until);
    fault.lasts = AnyLength(random_, experiment_.suspect);
    const auto which = Between(random_, 0, 9);
    if (which < 3) {
      fault.what = Fault::What::kReset;
      fault.lasts = 0;
      Ends(fault);
    } else if (which < 5) {
      fault.what = Fault::What::kCut;
      Ends(fault);
      if (!MayBeLost(fault)) fault.lasts = Shorten(fault.lasts);
    } else if (which < 6) {
      fault.what = Fault::What::kPause;
      fault.node = fault.other = One(random_, layout_.All());
      if (!MayBeLost(fault)) fault.lasts = Shorten(fault.lasts);
    } else if (which < 7 && experiment_.on_loss == OnLoss::kContinue) {
      fault.what = Fault::What::kLeave;
      fault.lasts = 0;
      fault.node = One(random_, layout_.workers);
    } else if (experiment_.on_loss == OnLoss::kStop) {
      fault.what = Fault::What::kReset;
      fault.lasts = 0;
      Ends(fault);
    } else {
      fault.what = Fault::What::kKill;
      fault.node = One(random_, Mortal());
      fault.told = experiment_.on_loss == OnLoss::kWait || Chance(random_, 0.7);
      fault.written = Chance(random_, 0.5) ? 0 : static_cast<double>(Between(random_, 0, 100)) / 100;
    }
    return fault;
  }

  // Draws members that are absent at the start, a party or the last workers of one, and lets most of them join.
  void Join(std::vector<NodeId>& absent, std::vector<Fault>& faults, Time until) {
    const std::size_t party = Between(random_, 0, layout_.parties.size() - 1);
    const std::vector<NodeId>& workers = layout_.parties[party];
    const std::size_t first = party > 0 && Chance(random_, 0.5) ? 0 : Between(random_, 1, workers.size());
    if (first == 0) absent.push_back(layout_.servers[party]);
    absent.insert(absent.end(), workers.begin() + static_cast<std::ptrdiff_t>(first), workers.end());
    const Time at = faults::Any(random_, 0, until);
    for (const NodeId id : absent) {
      if (Chance(random_, 0.2)) continue;
      const Time late = faults::Any(random_, 0, experiment_.suspect);
      faults.push_back({.what = Fault::What::kJoin, .at = at + late, .node = id, .other = id});
    }
  }

  // With `stop`: draws a process that is killed and not replaced.
  Fault Stop(Time until) {
    return {.what = Fault::What::kKill,
            .at = faults::Any(random_, 0, until),
            .lasts = 0,
            .node = One(random_, layout_.All()),
            .told = Chance(random_, 0.5)};
  }

 private:
  // Returns true if the run continues where this fault makes peers lose a member. With `wait` no member is
  // lost; with `continue` the run needs the scheduler and the global servers.
  bool MayBeLost(const Fault& fault) const {
    if (experiment_.on_loss != OnLoss::kContinue) return experiment_.on_loss == OnLoss::kWait;
    const auto needed = [this](NodeId id) { return id < layout_.servers.front(); };
    return fault.node == fault.other ? !needed(fault.node) : !needed(fault.node) || !needed(fault.other);
  }
  Time Shorten(Time lasts) const { return std::min(lasts, experiment_.suspect / 10); }

  void Ends(Fault& fault) {
    fault.node = One(random_, layout_.All());
    const NodeConfig config = layout_.Config(fault.node);
    fault.other = Chance(random_, 0.3) ? fault.node : One(random_, config.peers).id;
  }

  std::vector<NodeId> Mortal() const {
    std::vector<NodeId> mortal = layout_.servers;
    if (experiment_.on_loss == OnLoss::kWait) {
      mortal.push_back(layout_.scheduler);
      mortal.insert(mortal.end(), layout_.globals.begin(), layout_.globals.end());
    } else {
      mortal.insert(mortal.end(), layout_.workers.begin(), layout_.workers.end());
    }
    return mortal;
  }

  Random& random_;
  const Experiment& experiment_;
  const check::Layout layout_;
};

void DrawFaults(Random& random, Experiment& experiment) {
  Drawing drawing(random, experiment);
  const Time step = experiment.compute + 4 * (experiment.lan_delay + experiment.wan_delay);
  const Time until = 8 * experiment.wan_delay + static_cast<Time>(experiment.rounds + 1) * step;
  for (std::uint64_t i = Between(random, 1, Chance(random, 0.3) ? 12 : 5); i > 0; --i) {
    experiment.faults.push_back(drawing.Any(until));
  }
  if (experiment.on_loss == OnLoss::kContinue && Chance(random, 0.25)) {
    drawing.Join(experiment.absent, experiment.faults, until);
    std::sort(experiment.absent.begin(), experiment.absent.end());
  }
  if (experiment.on_loss == OnLoss::kStop && Chance(random, 0.8)) {
    experiment.faults.push_back(drawing.Stop(until));
  }
  std::sort(experiment.faults.begin(), experiment.faults.end(),
            [](const Fault& one, const Fault& other) { return one.at < other.at; });
}

// Processes that end again soon after they began, workers that come back after they left, and hostile members.
void DrawMore(Random& random, Experiment& experiment) {
  if (experiment.on_loss != OnLoss::kContinue) return;
  const Time soon = 300 * kMillisecond + 10 * experiment.wan_delay;
  for (std::size_t i = 0, count = experiment.faults.size(); i < count; ++i) {
    const Fault first = experiment.faults[i];
    const bool kill = first.what == Fault::What::kKill, leave = first.what == Fault::What::kLeave;
    if (!Chance(random, kill ? 0.3 : leave ? 0.5 : 0)) continue;
    experiment.faults.push_back({.what = Fault::What::kKill,
                                 .at = first.at + first.lasts + Any(random, 0, leave ? 4 * soon : soon),
                                 .lasts = AnyLength(random, experiment.suspect),
                                 .node = first.node,
                                 .told = Chance(random, 0.7)});
  }
  experiment.hostile = experiment.replayable && experiment.plan.quorum == 0 && Chance(random, 0.3);
}

}  // namespace

std::string ToString(const Fault& fault) {
  static const char* const kNames[] = {"reset", "cut", "pause", "kill", "join", "leave"};
  char text[160];
  int used = std::snprintf(text, sizeof text, "%s node%u", kNames[static_cast<int>(fault.what)], fault.node);
  const auto add = [&](const char* format, auto... values) {
    used += std::snprintf(text + used, sizeof text - static_cast<std::size_t>(used), format, values...);
  };
  const bool link = fault.what == Fault::What::kReset || fault.what == Fault::What::kCut;
  if (link && fault.other != fault.node) add("-node%u", fault.other);
  if (link && fault.other == fault.node) add("-all");
  add(" at %.6f s", static_cast<double>(fault.at) / kSecond);
  if (fault.lasts > 0) add(" for %.6f s", static_cast<double>(fault.lasts) / kSecond);
  if (!fault.told) add(" silently");
  return text;
}

std::string ToString(const Experiment& experiment) {
  static const char* const kWords[] = {"wait", "continue", "stop"};
  const check::Plan& plan = experiment.plan;
  std::string text = std::string("on_loss=") + kWords[static_cast<int>(experiment.on_loss)] + ", parties of";
  for (const std::uint32_t size : plan.parties) text += " " + std::to_string(size);
  text += ", " + std::to_string(plan.global_servers) + " global servers, " + std::to_string(experiment.rounds) +
          " rounds of";
  for (const Tensor& tensor : experiment.tensors) text += " " + std::to_string(tensor.shards.size());
  text += " shards";
  const auto add = [&](bool holds, const char* words) { text += holds ? std::string(", ") + words : ""; };
  add(experiment.logged, "logs of what is needed");
  add(!plan.rounds.together, "rounds of each party's own");
  if (plan.quorum > 0) {
    text += ", quorum of " + std::to_string(plan.quorum) + " and " +
            std::to_string(plan.deadline / kMillisecond) + " ms";
  }
  for (const PartyRounds& each : experiment.party_rounds) {
    text += ", quorum in the party of " + std::to_string(each.quorum) + " and " +
            std::to_string(each.deadline / kMillisecond) + " ms";
  }
  add(plan.rounds.update_at_party, "updates at parties");
  add(!plan.rounds.workers_together, "rounds of each worker's own");
  add(plan.policy != nullptr && plan.rounds.workers_together, "hfa");
  add(plan.coordinator != nullptr, "overlays");
  for (const auto& [link, name] : {std::pair{&plan.lan_push, "LAN push"}, std::pair{&plan.wan_push, "WAN push"},
                                   std::pair{&plan.wan_pull, "WAN pull"}}) {
    if (!link->codecs.empty()) text += ", " + std::to_string(link->codecs.size()) + " codecs of " + name;
    if (!link->slicers.empty()) text += std::string(", slices of ") + name;
  }
  add(experiment.integers, "integers");
  add(experiment.idle > 0, "gradients of zeros");
  add(experiment.hasty, "hasty workers");
  add(experiment.curtailed, "curtailed");
  add(experiment.loading > 0, "late initial values");
  add(experiment.shaped, "emulated network");
  add(experiment.replayable, "compared with plain sums");
  add(experiment.hostile, "hostile members");
  const std::size_t line = experiment.optimizer.find('\n');
  if (line != std::string::npos) {
    text += ", " + experiment.optimizer.substr(line + 1, experiment.optimizer.find('\n', line + 1) - line - 1);
  }
  return text;
}

Experiment Draw(std::uint64_t seed) {
  Random random(seed);
  Experiment experiment;
  experiment.seed = seed;
  const auto word = Between(random, 0, 19);
  experiment.on_loss = word < 9 ? OnLoss::kWait : word < 18 ? OnLoss::kContinue : OnLoss::kStop;
  DrawCluster(random, experiment);
  DrawTraining(random, experiment);
  DrawQuorum(random, experiment);
  DrawFaults(random, experiment);
  Random more(seed ^ 0x5eed);  // a generator of its own: earlier draws stay as they are
  DrawMore(more, experiment);
  Random rare(seed ^ 0xc01ded), recent(seed ^ 0x2ece47), parties(seed ^ 0x9a271e5), parts(seed ^ 0x9a2753);
  DrawCoincidences(rare, experiment);
  DrawRecent(recent, experiment);
  DrawPartyRounds(parties, experiment);
  DrawPartsOfContinuing(parts, experiment);
  return experiment;
}

}  // namespace geomx::faults
