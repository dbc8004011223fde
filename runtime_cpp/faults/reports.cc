// What messages and changes of members mean for the laws: the reports of processes that concern these.
#include "core/event.h"
#include "faults/world.h"

namespace geomx::faults {

// ---- messages ----------------------------------------------------------------------------------

void World::OnLeaving(ProcessId process, std::uint32_t incarnation, const Message& message) {
  const Header& header = message.header;
  Member& member = members_[process.node];
  member.accuses = member.accuses || header.kind == Kind::kDead;
  if (header.kind == Kind::kBye && member.trainer && !member.trainer->Answered()) {
    return Fail(process.node, "leaves before its pushes are answered");
  }
  const bool hostile = experiment_.hostile && experiment_.on_loss == OnLoss::kContinue;
  if (hostile && header.kind == Kind::kPush && member.trainer && !member.deceived &&
      check::Chance(random_, 0.2)) {
    member.deceived = true;
    Later(process, now(), [this, id = process.node, header] { ForgeValue(id, header); });
  }
  const bool server = process.node >= layout_.servers.front() && members_[process.node].trainer == nullptr;
  if (experiment_.on_loss != OnLoss::kContinue || !experiment_.replayable || header.kind != Kind::kPush || !server) {
    return;
  }
  if (header.slice > 0) return;
  auto& escalated = members_[process.node].escalated[{header.key, header.shard}];
  if (escalated.empty()) return Fail(process.node, "sends a sum that its policy did not escalate");
  outcome_.history.rounds[{process.node, incarnation, header.key, header.shard, header.round}].push_back(
      escalated.front());
  escalated.pop_front();
}

void World::OnDelivered(ProcessId process, NodeId from, std::uint32_t incarnation, const Message& message) {
  const Header& header = message.header;
  const Member& member = members_[process.node];
  if (note_ && header.kind != Kind::kHeartbeat) {
    const auto number = [](const char* name, std::uint64_t value) { return name + std::to_string(value); };
    Note(process.node, std::string("receives ") + KindName(header.kind) + number(" of node", from) +
                           number(", key ", header.key) + number(", shard ", header.shard) +
                           number(", round ", header.round) + number(", workers ", header.merge_count) +
                           ((header.flags & kPlain) != 0 ? ", plain" : ""));
  }
  if (process.node == kScheduler) {
    if (header.kind == Kind::kBye) Later(process, now(), [this, from] { HasLeft(from); });
    return;
  }
  if (!member.trainer) CheckReturn(process.node, from, header);
  if (process.node >= layout_.servers.front()) {
    if (!member.trainer && !experiment_.party_rounds.empty()) OnParty(process.node, from, incarnation, header);
    return;
  }
  if (header.kind == Kind::kMembers || header.kind == Kind::kBye) {
    if (from != kScheduler) OnMembers(process.node, from, header);
    return;
  }
  if (header.kind != Kind::kPush || header.slice + 1 < header.slices) return;  // the last slice completes it
  outcome_.history.taken[{process.node, from, header.key, header.shard, header.round}].push_back(incarnation);
  if (member.process->stopped()) outcome_.history.after_end.insert({from, incarnation, header.key, header.shard});
  Expect(process.node, closings_.OnPush(process.node, from, header, now()));
  if (!experiment_.hostile || experiment_.plan.rounds.together || !disturbed_ || convicted_) return;
  Later(process, now(), [this, id = process.node, from, header, updates = Updates(process.node, header)] {
    ForgeNext(id, from, header, updates);
  });
}

// What is delivered to a local server whose rounds close without some workers.
void World::OnParty(NodeId server, NodeId from, std::uint32_t incarnation, const Header& header) {
  CheckClosed(server);
  const bool last = header.slice + 1 == header.slices;
  if (header.kind == Kind::kBye) return Expect(server, closings_.OnGone(server, from, now()));
  if (header.kind == Kind::kValue && (header.flags & kPlain) == 0 && last) {
    return closings_.OnAnswer(server, header.key, header.shard, now());
  }
  if (header.kind != Kind::kPush || !last) return;
  Expect(server, closings_.OnPush(server, from, header, now()));
  const std::uint32_t own = members_[server].process->incarnation();
  const History::Contribution push{from, header.key, PushNumber(experiment_, own, incarnation, header.round)};
  auto& pushes = outcome_.history.arrived[{{server, Era(experiment_, own), header.key, header.shard}, from}];
  // With `wait`, what was not in the journal of a process that was killed is delivered again.
  if (experiment_.on_loss == OnLoss::kContinue || pushes.empty() || pushes.back() < push) pushes.push_back(push);
}

void World::NoteClosed(NodeId server, const PartyRound& round) {
  Member& member = members_[server];
  if (experiment_.party_rounds.empty() || member.repeats) return;
  const std::uint32_t own = Era(experiment_, member.process->incarnation());
  outcome_.history.closed[{server, own, round.shard.key, round.shard.index}][round.round] = member.life;
  if (member.closed.empty()) {
    agenda_.Add(now(), [this, server] { CheckClosed(server); });
  }
  member.closed.emplace_back(round.shard.key, round.shard.index, round.round);
}

void World::CheckClosed(NodeId server) {
  for (const auto& [key, shard, round] : std::exchange(members_[server].closed, {})) {
    Expect(server, closings_.OnClosed(server, key, shard, round, false, now()));
  }
}

// Follows when a child that has come back asks a server for values, and when it contributes again.
void World::CheckReturn(NodeId server, NodeId from, const Header& header) {
  const bool global = server < layout_.servers.front();
  if (header.kind == Kind::kPush && header.slice + 1 == header.slices) {
    Expect(server, admissions_.OnPush(server, from, header));
  } else if (header.kind == Kind::kPullRequest) {
    admissions_.OnRequest(server, from, header);
  } else if (header.kind == Kind::kValue && (header.flags & kPlain) != 0) {
    admissions_.OnValue(server, header.round);
  } else if (global && from != kScheduler && header.kind == Kind::kMembers && header.merge_count > 0 &&
             header.round == 0) {
    admissions_.OnBack(server, from);
    if (header.key != 0) admissions_.OnRequest(server, from, header);
  }
}

// ---- losses ------------------------------------------------------------------------------------

// The scheduler has told the others of a process, by its start or by its return.
void World::Announce(NodeId id, std::uint32_t incarnation) {
  Member& member = members_[id];
  member.gone = member.left = false;
  if (member.process && member.process->incarnation() == incarnation) member.announced = member.life;
}

// Checks that the process that the scheduler declares lost has ended, was disturbed, or blames another.
void World::CheckLoss(const Event& event) {
  Member& member = members_[event.peer];
  member.gone = true;
  if (member.process) outcome_.history.ended.insert({event.peer, Era(experiment_, member.process->incarnation())});
  CheckEnd(event.peer);
  const bool there = member.process && member.announced == member.life && !member.accuses;
  if (!there || experiment_.hostile) return;
  if (suspicions_.Spare(event.peer, layout_.Config(event.peer).peers, member.begun)) {
    Fail(event.peer, "is declared lost, although nothing has happened to it: " + event.reason);
  }
}

// A worker has said goodbye to the scheduler.
void World::HasLeft(NodeId worker) {
  members_[worker].left = true;
  CheckEnd(worker);
  if (!std::exchange(curtails_, false)) return;
  for (const NodeId other : layout_.workers) {
    const auto late = check::Between(random_, 0, static_cast<std::uint64_t>(experiment_.wan_delay));
    agenda_.Add(now() + static_cast<Time>(late), [this, other] {
      if (members_[other].trainer) members_[other].trainer->LeaveSoon();
    });
  }
}

// Checks that the run ends when its last worker, `which`, has left or is lost. Workers without a server do not count.
void World::CheckEnd(NodeId which) {
  if (experiment_.on_loss != OnLoss::kContinue || layout_.Config(which).role != Role::kWorker || forgets_) return;
  bool some = false;
  for (const NodeId worker : layout_.workers) {
    const Member& member = members_[worker];
    some = some || member.left;
    const bool absent = member.gone || members_[layout_.Config(worker).parents.front()].gone;
    if (!absent && !member.left) return;
  }
  if (some && !members_[kScheduler].process->stopped()) {
    Fail(kScheduler, "the run goes on, although its last worker has left or is lost");
  }
}

// A party says how many of its workers take part, or that all have left.
void World::OnMembers(NodeId global, NodeId party, const Header& header) {
  if (header.kind == Kind::kBye || header.merge_count == 0) {
    Expect(global, closings_.OnGone(global, party, now()));
  } else if (header.round == 0) {
    Expect(global, closings_.OnBack(global, party, now()));
  }
}

}  // namespace geomx::faults
