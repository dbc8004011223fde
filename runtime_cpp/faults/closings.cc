#include "faults/closings.h"

#include <algorithm>

namespace geomx::faults {
namespace {

std::string Words(const char* what, NodeId server, Key key, Round round) {
  return std::string("rounds close in time: ") + what + ": node" + std::to_string(server) + ", round " +
         std::to_string(round) + " of key " + std::to_string(key);
}

}  // namespace

Closings::Closings(const Experiment& experiment) {
  // Servers that are killed and resume repeat what has been delivered to them.
  const bool known = !experiment.logged && !experiment.sliced();
  if (!experiment.early() || experiment.on_loss != OnLoss::kContinue || !known) return;
  const check::Layout layout(experiment.plan);
  const auto parties = static_cast<std::uint32_t>(layout.servers.size());
  PartyRounds rule{parties, 0};
  if (experiment.plan.quorum > 0) rule = {experiment.plan.quorum, experiment.plan.deadline};
  for (const NodeId global : layout.globals) AddServer(experiment, global, layout.servers, rule, false);
  for (std::size_t party = 0; party < experiment.party_rounds.size(); ++party) {
    AddServer(experiment, layout.servers[party], layout.parties[party], experiment.party_rounds[party], true);
  }
}

void Closings::AddServer(const Experiment& experiment, NodeId server, const std::vector<NodeId>& children,
                         PartyRounds rule, bool of_party) {
  const check::Layout layout(experiment.plan);
  const auto absent = [&](NodeId id) {
    return std::find(experiment.absent.begin(), experiment.absent.end(), id) != experiment.absent.end();
  };
  for (Key key = 0; key < experiment.tensors.size(); ++key) {
    const auto& shards = experiment.tensors[key].shards;
    for (std::uint32_t i = 0; i < shards.size(); ++i) {
      if (!of_party && layout.globals[shards[i].server] != server) continue;
      Open& open = rounds_[{server, key, i}];
      open.rule = rule;
      open.of_party = of_party;
      for (const NodeId child : children) open.children[child] = absent(child) ? Part::kGone : Part::kTakesPart;
    }
  }
}

Closings::Open* Closings::OpenOf(NodeId server, Key key, std::uint32_t shard) {
  const auto found = rounds_.find({server, key, shard});
  return found == rounds_.end() ? nullptr : &found->second;
}

void Closings::OnBegin(NodeId server) {
  for (auto& [place, open] : rounds_) {
    if (std::get<0>(place) != server || !open.of_party) continue;
    for (auto& [child, part] : open.children) part = Part::kUnknown;
    open.made.clear();
    open.last.clear();
    open.pushed.clear();
    open.unanswered.clear();
    open.late.reset();
    open.awaits = false;
    open.complete = open.due = kNever;
  }
}

void Closings::OnPause(NodeId server, Time until) { paused_[server] = std::max(paused_[server], until); }

std::string Closings::Overdue(const Place& place, const Open& open, Time now) const {
  const auto& [server, key, shard] = place;
  const auto paused = paused_.find(server);
  if (open.due < now && (paused == paused_.end() || paused->second < now)) {
    return Words("its deadline has passed, but the round is still open", server, key, open.closed + 1);
  }
  if (open.complete >= now) return {};
  return Words("no contribution is awaited, but the round is still open", server, key, open.closed + 1);
}

void Closings::Recheck(Open& open, Time now) {
  const bool complete = std::all_of(open.children.begin(), open.children.end(), [&](const auto& each) {
    const auto& [child, part] = each;
    const auto made = open.made.find(child);
    return part == Part::kGone || part == Part::kFinished || (made != open.made.end() && made->second);
  });
  open.complete = complete && !open.made.empty() && !open.awaits ? std::min(open.complete, now) : kNever;
  // The last round of a party has no deadline.
  const bool ends = open.of_party && std::any_of(open.made.begin(), open.made.end(), [&](const auto& each) {
    return each.second && open.last.contains(each.first);
  });
  const bool quorum = open.made.size() >= open.rule.quorum && !open.awaits && !ends;
  open.due = quorum ? std::min(open.due, now + open.rule.deadline) : kNever;
}

std::string Closings::OnPush(NodeId server, NodeId child, const Header& push, Time now) {
  Open* const open = OpenOf(server, push.key, push.shard);
  if (open == nullptr) return {};
  if (std::string wrong = Overdue({server, push.key, push.shard}, *open, now); !wrong.empty()) return wrong;
  if (open->made.empty()) open->first = now;
  bool& in_time = open->made[child];
  open->before = in_time;
  in_time = in_time || open->of_party || push.round > open->closed;
  Part& part = open->children.at(child);
  if (part != Part::kGone) part = (push.flags & kLast) != 0 ? Part::kFinished : Part::kTakesPart;
  if ((push.flags & kLast) != 0) open->last.insert(child);
  NoteAnswered(*open, false, now);
  open->pushed[child] = push.round;
  open->unanswered.insert(child);
  Recheck(*open, now);
  return {};
}

void Closings::OnLate(NodeId server, NodeId child, Key key, std::uint32_t shard, Time now) {
  Open* const open = OpenOf(server, key, shard);
  if (open == nullptr) return;
  open->made[child] = open->before;
  if (!open->awaits) open->late = {child, now};
  Recheck(*open, now);
}

void Closings::OnAnswer(NodeId server, Key key, std::uint32_t shard, Time now) {
  Open* const open = OpenOf(server, key, shard);
  if (open == nullptr || !open->of_party) return;
  open->awaits = false;
  open->unanswered.clear();
  open->first = now;
  Recheck(*open, now);
}

std::string Closings::Change(NodeId server, NodeId child, Part part, Time now) {
  for (auto& [place, open] : rounds_) {
    if (std::get<0>(place) != server || !open.children.contains(child)) continue;
    if (std::string wrong = Overdue(place, open, now); !wrong.empty()) return wrong;
    open.children[child] = part;
    if (part == Part::kUnknown) open.last.erase(child);
    Recheck(open, now);
  }
  return {};
}

std::string Closings::OnGone(NodeId server, NodeId child, Time now) {
  return Change(server, child, Part::kGone, now);
}

std::string Closings::OnBack(NodeId server, NodeId child, Time now) {
  return Change(server, child, Part::kUnknown, now);
}

void Closings::NoteAnswered(Open& open, bool closes, Time now) {
  if (!open.late) return;
  if (!closes || open.late->second < now) open.unanswered.erase(open.late->first);
  open.late.reset();
}

bool Closings::Waits(NodeId server, NodeId worker, const Open& open) const {
  const auto pushed = open.pushed.find(worker);
  return pushed != open.pushed.end() && std::ranges::any_of(rounds_, [&](const auto& each) {
    const Open& other = each.second;
    return std::get<0>(each.first) == server && other.awaits && other.unanswered.contains(worker) &&
           other.pushed.at(worker) <= pushed->second;
  });
}

std::string Closings::OnClosed(NodeId server, Key key, std::uint32_t shard, Round round, bool stops, Time now) {
  Open* const open = OpenOf(server, key, shard);
  if (open == nullptr) return {};
  // A child that takes part has not contributed in time, or not at all; one has contributed for the last time.
  bool early = false, without = false;
  const bool ends = open->of_party && std::ranges::any_of(open->made, [&](const auto& each) {
    return each.second && open->last.contains(each.first);
  });
  for (const auto& [child, part] : open->children) {
    const auto made = open->made.find(child);
    if (part != Part::kTakesPart || (ends && Waits(server, child, *open))) continue;
    without = without || made == open->made.end();
    early = early || made == open->made.end() || !made->second;
  }
  NoteAnswered(*open, true, now);
  const std::size_t count = open->made.size();
  const Time first = open->first;
  open->closed = round;
  open->made.clear();
  open->last.clear();
  open->awaits = open->of_party;
  open->complete = open->due = kNever;
  if (stops) return {};
  if (without && count < open->rule.quorum) return Words("before the quorum", server, key, round);
  if (early && now < first + open->rule.deadline) return Words("before the deadline", server, key, round);
  if (early && ends) return Words("the last without a worker", server, key, round);
  return {};
}

}  // namespace geomx::faults
