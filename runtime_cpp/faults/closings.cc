#include "faults/closings.h"

#include <algorithm>

namespace geomx::faults {
namespace {

std::string Words(const char* what, NodeId global, Key key, Round round) {
  return std::string(what) + ": node" + std::to_string(global) + ", round " + std::to_string(round) + " of key " +
         std::to_string(key);
}

}  // namespace

Closings::Closings(const Experiment& experiment)
    : plan_(experiment.plan),
      applies_(plan_.quorum > 0 && experiment.on_loss == OnLoss::kContinue && !experiment.logged) {
  if (!applies_) return;
  const check::Layout layout(plan_);
  const auto absent = [&](NodeId id) {
    return std::find(experiment.absent.begin(), experiment.absent.end(), id) != experiment.absent.end();
  };
  for (Key key = 0; key < experiment.tensors.size(); ++key) {
    const auto& shards = experiment.tensors[key].shards;
    for (std::uint32_t i = 0; i < shards.size(); ++i) {
      Open& open = rounds_[{layout.globals[shards[i].server], key, i}];
      for (const NodeId party : layout.servers) {
        open.parties[party] = absent(party) ? Part::kGone : Part::kTakesPart;
      }
    }
  }
}

std::string Closings::Overdue(const Place& place, const Open& open, Time now) {
  if (open.complete >= now) return {};
  const auto& [global, key, shard] = place;
  return Words("rounds close in time: no contribution is awaited, but the round is still open", global, key,
               open.closed + 1);
}

void Closings::Recheck(Open& open, Time now) {
  const bool complete = std::all_of(open.parties.begin(), open.parties.end(), [&](const auto& each) {
    const auto& [party, part] = each;
    const auto made = open.made.find(party);
    return part == Part::kGone || part == Part::kFinished || (made != open.made.end() && made->second);
  });
  open.complete = complete && !open.made.empty() ? std::min(open.complete, now) : kNever;
}

std::string Closings::OnPush(NodeId global, NodeId party, const Header& push, Time now) {
  if (!applies_) return {};
  Open& open = OpenOf(global, push.key, push.shard);
  if (std::string wrong = Overdue({global, push.key, push.shard}, open, now); !wrong.empty()) return wrong;
  if (open.made.empty()) open.first = now;
  bool& in_time = open.made[party];
  in_time = in_time || push.round > open.closed;
  Part& part = open.parties.at(party);
  if (part != Part::kGone) part = (push.flags & kLast) != 0 ? Part::kFinished : Part::kTakesPart;
  Recheck(open, now);
  return {};
}

std::string Closings::Change(NodeId global, NodeId party, Part part, Time now) {
  for (auto& [place, open] : rounds_) {
    if (std::get<0>(place) != global || !open.parties.contains(party)) continue;
    if (std::string wrong = Overdue(place, open, now); !wrong.empty()) return wrong;
    open.parties[party] = part;
    Recheck(open, now);
  }
  return {};
}

std::string Closings::OnGone(NodeId global, NodeId party, Time now) {
  return Change(global, party, Part::kGone, now);
}

std::string Closings::OnBack(NodeId global, NodeId party, Time now) {
  return Change(global, party, Part::kUnknown, now);
}

std::string Closings::OnClosed(NodeId global, Key key, std::uint32_t shard, Round round, bool stops, Time now) {
  if (!applies_) return {};
  Open& open = OpenOf(global, key, shard);
  bool early = false, without = false;  // a party that takes part has not contributed in time, or not at all
  for (const auto& [party, part] : open.parties) {
    if (part != Part::kTakesPart) continue;
    const auto made = open.made.find(party);
    without = without || made == open.made.end();
    early = early || made == open.made.end() || !made->second;
  }
  const std::size_t count = open.made.size();
  const Time first = open.first;
  open.closed = round;
  open.made.clear();
  open.complete = kNever;
  if (stops) return {};
  if (without && count < plan_.quorum) return Words("rounds close in time: before the quorum", global, key, round);
  if (early && now < first + plan_.deadline) {
    return Words("rounds close in time: before the deadline", global, key, round);
  }
  return {};
}

}  // namespace geomx::faults
