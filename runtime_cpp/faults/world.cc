#include "faults/world.h"

#include <algorithm>
#include <cstdio>

#include "core/worker.h"
#include "faults/watching.h"

namespace geomx::faults {
namespace {

constexpr std::uint64_t kMostActions = 3'000'000;
constexpr Time kFarewell = kSecond / 2;  // io/driver_links.cc
constexpr Time kLauncher = 2 * kMillisecond;  // until a launcher reports that a process has ended

// Within this time after the last fault, waits end, and nodes that lost their state repeat work.
Time Patience(const Experiment& experiment) {
  return 4 * kSecond + 4 * experiment.suspect + 2 * experiment.redial;
}

}  // namespace

World::World(const Experiment& experiment, const std::vector<Fault>& faults, bool note)
    : experiment_(experiment), layout_(experiment.plan), note_(note), random_(experiment.seed + 1),
      disturbed_(!faults.empty()),
      curtails_(experiment.curtailed),
      suspicions_(layout_.scheduler, Patience(experiment)),
      closings_(experiment),
      admissions_(experiment) {
  Network::Options options{.delay = [this](NodeId from, NodeId to) { return Delay(from, to); },
                           .loss = experiment.loss,
                           .duplicates = experiment.duplicates,
                           .late = experiment.late};
  Network::Handler handler;
  handler.alive = [this](ProcessId process) { return Alive(process); };
  handler.life = [this](NodeId id) { return members_[id].process ? members_[id].life : 0; };
  handler.act = [this](ProcessId process, const std::function<void()>& act) { Run(process, act); };
  handler.connected = [this](const ConnectionPtr& connection) {
    members_[connection->ends[kCaller].node].process->OnConnected(connection);
  };
  handler.arrives = [this](const ConnectionPtr& connection, End end) {
    members_[connection->ends[end].node].process->OnArrival(connection, end);
  };
  handler.ended = [this](const ConnectionPtr& connection, End end) {
    members_[connection->ends[end].node].process->OnEnded(connection);
  };
  handler.datagram = [this](NodeId from, std::uint32_t incarnation, NodeId to, const Message& message) {
    members_[to].process->OnDatagram(from, incarnation, message);
  };
  network_ = std::make_unique<Network>(agenda_, random_, std::move(options), std::move(handler));
  const auto absent = [&](NodeId id) {
    return std::find(experiment.absent.begin(), experiment.absent.end(), id) != experiment.absent.end();
  };
  for (const NodeId id : layout_.All()) {
    members_[id].gone = absent(id);
    const auto at = static_cast<Time>(check::Between(random_, 0, kMillisecond));
    if (!absent(id)) agenda_.Add(at, [this, id] { Begin(id); });
  }
  for (const Fault& fault : faults) {
    healed_ = std::max(healed_, fault.at + fault.lasts);
    agenda_.Add(fault.at, [this, fault] { Inflict(fault); });
  }
}

World::~World() = default;

Time World::Delay(NodeId from, NodeId to) const {
  const auto global = [this](NodeId id) { return id < layout_.servers.front(); };
  const auto party = [&](NodeId id) {
    return global(id) ? layout_.servers.front()
                      : *std::prev(std::upper_bound(layout_.servers.begin(), layout_.servers.end(), id));
  };
  const bool wan = global(from) != global(to) || (!global(from) && party(from) != party(to));
  return wan ? experiment_.wan_delay : experiment_.lan_delay;
}

NodeConfig World::Config(NodeId id) {
  NodeConfig config = layout_.Config(id);
  config.failure_timeout = experiment_.suspect;
  config.redial = experiment_.redial;
  config.absent = experiment_.absent;
  if (config.role == Role::kServer && !config.policy) {
    config.policy = std::make_shared<Watched>([this, id](const PartyRound& round) {
      members_[id].escalated[{round.shard.key, round.shard.index}].push_back(round.round);
      NoteClosed(id, round);
    });
  }
  if (config.role == Role::kServer && config.round_policy) {
    config.round_policy = std::make_shared<WatchedRounds>(
        config.round_policy, [this, id](const ShardInfo& shard, const Contribution& late) {
          closings_.OnLate(id, late.source, shard.key, shard.index, now());
        });
  }
  return config;
}

// ---- processes ---------------------------------------------------------------------------------

bool World::Alive(ProcessId process) const {
  const Member& member = members_.at(process.node);
  return member.process != nullptr && member.life == process.life;
}

// Defers the action while the process is paused.
void World::Run(ProcessId process, const std::function<void()>& action) {
  if (!Alive(process)) return;
  const Time until = members_.at(process.node).paused_until;
  if (until > now()) return agenda_.Add(until, [this, process, action] { Run(process, action); });
  action();
}

void World::Later(ProcessId process, Time at, std::function<void()> action) {
  agenda_.Add(at, [this, process, action = std::move(action)] { Run(process, action); });
}

void World::Begin(NodeId id) {
  Member& member = members_[id];
  if (member.process) return;
  // After the end of a run, a launcher starts no process in place of one that was killed.
  const Process* scheduler = members_[kScheduler].process.get();
  if (experiment_.on_loss == OnLoss::kContinue && scheduler && scheduler->stopped() && !IsNeeded(id)) return;
  const ProcessId process{id, ++member.life};
  const bool worker = layout_.Config(id).role == Role::kWorker;
  member.begun = now();
  member.paused_until = 0;
  member.accuses = member.deceived = false;
  suspicions_.Disturb(id, now());
  if (!worker) admissions_.OnBegin(id);
  closings_.OnBegin(id);
  member.escalated.clear();
  member.closed.clear();
  Journal* const journal = KeepsJournal(id) ? &member.journal : nullptr;
  member.process = std::make_unique<Process>(*this, experiment_, process, journal, outcome_.counts);
  if (worker) {
    member.trainer = std::make_unique<Trainer>(*this, experiment_, *member.process, outcome_.history);
  }
  Note(id, "begins, life " + std::to_string(member.life));
  member.repeats = true;
  member.process->Begin();
  member.repeats = false;
}

// As options/schema.py says of `durable=log`.
bool World::KeepsJournal(NodeId id) const {
  if (experiment_.on_loss == OnLoss::kContinue) return experiment_.logged && IsNeeded(id);
  return experiment_.on_loss == OnLoss::kWait && layout_.Config(id).role != Role::kWorker;
}

void World::Kill(NodeId id, Time lasts, bool told, double written, const std::string& reason) {
  Member& member = members_[id];
  if (!member.process) return;
  ++outcome_.kills;
  Note(id, reason);
  // What a server received, and lost with its uncommitted records, is in the history twice.
  const bool lost = member.journal.Crash(written);
  if (lost && experiment_.on_loss == OnLoss::kContinue) outcome_.history.ambiguous = true;
  forgets_ = forgets_ || (lost && id == kScheduler);
  outcome_.history.ended.insert({id, Era(experiment_, member.process->incarnation())});
  suspicions_.Disturb(id, experiment_.on_loss == OnLoss::kStop ? kNever : now() + lasts);
  network_->Forget(id, !told);
  member.trainer.reset();
  member.process.reset();
  if (experiment_.on_loss != OnLoss::kStop) agenda_.Add(now() + lasts, [this, id] { Begin(id); });
  if (experiment_.on_loss == OnLoss::kStop && id == kScheduler) EndThoseThatWaitForTheStart();
  if (!told || KeepsJournal(id)) return;
  agenda_.Add(now() + kLauncher, [this, id, reason] {
    Member& scheduler = members_[kScheduler];
    if (!scheduler.process) return;
    Run({kScheduler, scheduler.life}, [this, id, reason] {
      // A launcher reports the end of a process only before it starts a new one.
      if (!members_[id].process) members_[kScheduler].process->ReportEnded(id, reason);
    });
  });
}

// A member that the scheduler had no time to tell of the start ends by itself (live/member.py: JOIN_TIMEOUT_S).
void World::EndThoseThatWaitForTheStart() {
  agenda_.Add(now() + Patience(experiment_) / 2, [this] {
    for (const auto& [id, member] : members_) {
      RecordedNode* node = member.process ? member.process->node() : nullptr;
      if (node != nullptr && !node->started()) Kill(id, 0, false, 0, "has waited for the start in vain");
    }
  });
}

void World::OnEnd(ProcessId process, const std::string& reason) {
  if (experiment_.on_loss == OnLoss::kStop && gone_) return Stop(process, reason);
  const bool bearable = experiment_.on_loss == OnLoss::kContinue && !IsNeeded(process.node);
  if (!bearable) return Fail(process.node, "ends: " + reason);
  agenda_.Add(now(), [this, process, reason] {
    const Time pause = static_cast<Time>(check::Between(random_, 5 * kMillisecond, 200 * kMillisecond));
    if (Alive(process)) Kill(process.node, pause, true, 0, "ends: " + reason);
  });
}

// Handles the end of a process with `stop`: every process must end, and name the member that was killed.
void World::Stop(ProcessId process, const std::string& reason) {
  const std::string name = check::Layout::Name(*gone_);
  // If the scheduler has ended before it could report the loss, its peers name the scheduler (node0).
  const bool named = reason.starts_with(name + " is lost: ") ||
                     (!members_[kScheduler].process && reason.starts_with("node0 is lost: "));
  if (!named) return Fail(process.node, "does not name " + name + ": " + reason);
  agenda_.Add(now() + kFarewell, [this, process, reason] {
    if (Alive(process)) Kill(process.node, 0, true, 0, "ends: " + reason);
  });
}

// ---- reports of processes ----------------------------------------------------------------------

void World::Note(NodeId node, const std::string& what) {
  if (note_) std::printf("%12.6f node%u %s\n", static_cast<double>(now()) / kSecond, node, what.c_str());
}

void World::Fail(NodeId node, const std::string& what) {
  if (!outcome_.broken.empty()) return;
  char when[40];
  std::snprintf(when, sizeof when, " (at %.6f s)", static_cast<double>(now()) / kSecond);
  outcome_.broken = "node" + std::to_string(node) + " " + what + when;
}

void World::OnEvent(ProcessId process, const Event& event) {
  const NodeId id = process.node;
  Member& member = members_[id];
  if (note_ && event.kind != Event::Kind::kValueReady) {
    Note(id, "event " + std::to_string(static_cast<int>(event.kind)) + " peer " + std::to_string(event.peer) +
                 " key " + std::to_string(event.key) + " round " + std::to_string(event.round) + " " +
                 event.text.substr(0, 40) + " " + event.reason);
  }
  switch (event.kind) {
    case Event::Kind::kPeerError:
      if (forged_ == std::pair{id, event.peer}) {
        forged_.reset();
        if (experiment_.on_loss != OnLoss::kContinue) return void(convicted_ = true);
        return Later(process, now(), [&member, event] { member.process->ReportEnded(event.peer, event.reason); });
      }
      return Fail(id, "blames node" + std::to_string(event.peer) + ": " + event.reason);
    case Event::Kind::kRefused: return Fail(id, "refuses " + event.text + ": " + event.reason);
    case Event::Kind::kDead: return OnEnd(process, event.text + " is lost: " + event.reason);
    case Event::Kind::kSuspect:
      ++outcome_.suspicions;
      if (experiment_.on_loss != OnLoss::kStop && suspicions_.AreBaseless(id, event.peer, now())) {
        Fail(id, "suspects node" + std::to_string(event.peer) + ", to which nothing has happened");
      }
      return;
    case Event::Kind::kGone:
      if (id == kScheduler) return CheckLoss(event);
      return Expect(id, closings_.OnGone(id, event.peer, now()));
    case Event::Kind::kBack:
      if (id == kScheduler) Announce(event.peer, event.key);
      if (id != kScheduler && !member.trainer) admissions_.OnBack(id, event.peer);
      Expect(id, closings_.OnBack(id, event.peer, now()));
      if (!experiment_.hostile || id == kScheduler || id >= layout_.servers.front()) return;
      if (check::Chance(random_, 0.5)) Later(process, now(), [this, id, event] { ForgePush(id, event.peer); });
      return;
    case Event::Kind::kUpdated:
    case Event::Kind::kPartial: return Record(process, event);
    case Event::Kind::kStarted:
      if (id == kScheduler) {
        for (auto& [other, each] : members_) each.announced = each.life;
      }
      if (member.trainer) {
        const Time loading = id == layout_.workers.front() ? experiment_.loading : 0;
        Later(process, now() + loading, [this, id] { members_[id].trainer->OnStarted(); });
      }
      return;
    case Event::Kind::kBarrier:
      if (member.trainer) Later(process, now(), [this, id] { members_[id].trainer->OnBarrier(); });
      return;
    case Event::Kind::kValueReady:
      if (member.trainer) member.trainer->OnValue(event.key);
      return;
    default: return;
  }
}

void World::Record(ProcessId process, const Event& event) {
  History& history = outcome_.history;
  const std::tuple shard{process.node, event.key, event.shard};
  if (event.kind == Event::Kind::kUpdated) {
    history.updated[shard].emplace_back(process.life, event.round);
    const bool stops = members_[process.node].process->stopped();
    return Expect(process.node,
                  closings_.OnClosed(process.node, event.key, event.shard, event.round, stops, now()));
  }
  History::Closed closed{.life = process.life,
                         .incarnation = members_[process.node].process->incarnation(),
                         .round = event.round,
                         .above = event.above,
                         .workers = event.workers,
                         .without = {},
                         .late = event.late};
  for (const double each : event.values) closed.without.insert(static_cast<NodeId>(each));
  history.partial[shard].push_back(std::move(closed));
}

// ---- the run -----------------------------------------------------------------------------------

// Returns true if every member that takes part has stopped.
bool World::Over() const {
  if (convicted_) return true;
  if (gone_) {
    return std::none_of(members_.begin(), members_.end(),
                        [](const auto& each) { return each.second.process && !each.second.process->stopped(); });
  }
  const Member& scheduler = members_.at(kScheduler);
  if (!scheduler.process || !scheduler.process->stopped()) return false;
  const Node& node = scheduler.process->node()->node();
  return std::all_of(members_.begin(), members_.end(), [&](const auto& each) {
    const auto& [id, member] = each;
    if (id != kScheduler && node.IsAway(id)) return true;
    return member.process ? member.process->stopped() : !KeepsJournal(id) && experiment_.on_loss != OnLoss::kWait;
  });
}

void World::ReadLast() {
  for (Key key = 0; key < experiment_.tensors.size(); ++key) {
    const auto& shards = experiment_.tensors[key].shards;
    for (std::uint32_t i = 0; i < shards.size(); ++i) {
      const Buffer* value = members_[layout_.globals[shards[i].server]].process->node()->GlobalValue(key, i);
      if (value != nullptr) outcome_.history.last[{key, i}] = Values(value->begin(), value->end());
    }
  }
}

std::string World::Standstill() {
  std::string text = "no progress: the run has not ended at " + std::to_string(now() / kMillisecond) + " ms;";
  for (auto& [id, member] : members_) {
    if (!member.process) text += " node" + std::to_string(id) + " is gone;";
    RecordedNode* node = member.process ? member.process->node() : nullptr;
    if (node == nullptr || node->stopped()) continue;
    if (!node->started()) text += " node" + std::to_string(id) + " has not started;";
    for (const ::geomx::Wait& wait : node->ListWaits()) {
      text += " node" + std::to_string(id) + " waits (" + std::to_string(static_cast<int>(wait.kind)) + ", key " +
              std::to_string(wait.key) + ", round " + std::to_string(wait.round) + ") for";
      for (const NodeId each : wait.whom) text += " node" + std::to_string(each);
      text += ";";
    }
  }
  return text;
}

Outcome World::Run(Time patience) {
  try {
    while (outcome_.broken.empty() && !Over()) {
      const bool moved = agenda_.Step();
      if (!moved || now() > healed_ + patience || ++outcome_.actions > kMostActions) {
        outcome_.broken = Standstill();
        break;
      }
    }
    outcome_.end = now();
    outcome_.stopped = convicted_ || gone_.has_value();
    if (outcome_.broken.empty() && !outcome_.stopped) ReadLast();
  } catch (const std::exception& error) {
    outcome_.broken = std::string("an exception: ") + error.what();
  }
  outcome_.resets = network_->resets();
  return std::move(outcome_);
}

Outcome Try(const Experiment& experiment, const std::vector<Fault>& faults, bool note) {
  Outcome undisturbed = World(experiment, {}, note && faults.empty()).Run(60 * kSecond);
  if (undisturbed.broken.empty()) undisturbed.broken = Judge(experiment, undisturbed.history, nullptr);
  if (!undisturbed.broken.empty() || faults.empty()) return undisturbed;
  Outcome outcome = World(experiment, faults, note).Run(2 * undisturbed.end + Patience(experiment));
  if (outcome.broken.empty() && !outcome.stopped) {
    outcome.broken = Judge(experiment, outcome.history, &undisturbed.history);
  }
  return outcome;
}

}  // namespace geomx::faults
