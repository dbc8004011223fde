// Rounds that close without children that are late (NodeConfig::round_policy), at global and local servers.
//
// A round closes when all children that take part have contributed to it, or when the policy says. A
// child whose push comes after its round has closed is late: it is answered at once with the current
// value, and its contribution is added to the open round unless the policy drops it. Two reasons: nodes
// push all shards and wait for all answers, so if late ones waited, each child could wait for a shard to
// which the others have contributed already; and the answer brings the child to the round of the others. A
// child may therefore have two contributions in a round, or more, if it was lost and has come back.
#include "core/early_rounds.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/plugin_failure.h"
#include "core/server_role.h"
#include "kernels/sums.h"

namespace geomx {

void EarlyContributions::Add(const Contribution& contribution, Buffer value) {
  const auto same = [&](const Contribution& each) { return each.source == contribution.source; };
  const bool extra = contribution.age > 0 || std::any_of(made.begin(), made.begin() + in_time, same);
  const auto begin = made.begin() + (extra ? in_time : 0);
  const auto end = extra ? made.end() : made.begin() + in_time;
  const auto place = std::upper_bound(begin, end, contribution, [](const Contribution& a, const Contribution& b) {
    return a.source < b.source;
  });
  values.insert(values.begin() + (place - made.begin()), std::move(value));
  made.insert(place, contribution);
  if (!extra) ++in_time;
}

bool EarlyContributions::Ends() const {
  return std::any_of(made.begin(), made.begin() + in_time,
                     [this](const Contribution& each) { return finished.contains(each.source); });
}

ServerRole::Taken ServerRole::TakeEarly(NodeId peer, Header header, Round meant, SummedShard& shard, Buffer value,
                                        Time now) {
  EarlyContributions& round = *shard.early;
  const bool late = meant <= shard.round;
  // A correct child is late once in a round, then waits for the answer to its next push.
  if (round.due.contains(peer) || (late && !round.late.insert(peer).second)) {
    node_.Fail(peer, "pushed twice in one round");
    return Taken::kRefused;
  }
  value = node_.sums().Decoded(header, std::move(value));  // layouts may differ between rounds
  if (!IsAcceptable(peer, header, shard, value)) return Taken::kRefused;
  header.round = shard.round + 1;
  const Contribution made{peer, meant, header.round - meant, header.merge_count, header.steps};
  const bool dropped = late && !node_.config().round_policy->Takes(shard.terms.info, made);
  if (dropped) {
    round.dropped.emplace_back(peer, meant);
  } else {
    round.Add(made, std::move(value));
    NoteContribution(peer, header, shard, now);
  }
  if ((header.flags & kLast) != 0) {
    round.finished.insert(peer);
  } else {
    round.finished.erase(peer);
  }
  if (!late && Awaited(shard).empty()) times_.CameLast(PlaceOf(peer));
  return dropped ? Taken::kDropped : late ? Taken::kLate : Taken::kInTime;
}

void ServerRole::CloseIfDue(SummedShard& shard, Time now) {
  if (!shard.early->open()) return;
  const std::vector<NodeId> awaited = Awaited(shard);
  Time& known = shard.early->closes_at;
  const bool may = MayClose(shard);
  const Time closes_at = may && MayCloseEarly(shard)
                             ? node_.config().round_policy->ClosesAt(Open(shard, awaited), known, now)
                             : kNever;
  if (closes_at != known) {
    closing_.erase({known, IdOf(shard)});
    known = closes_at;
    if (closes_at != kNever) closing_.emplace(closes_at, IdOf(shard));
  }
  if (may && (closes_at <= now || awaited.empty())) CloseOpen(shard, now);
}

EarlyRound ServerRole::Open(const SummedShard& shard, std::span<const NodeId> awaited) const {
  return {shard.terms.info, shard.round + 1, shard.early->made, awaited, node_.config().quorum};
}

std::vector<NodeId> ServerRole::Lacking(const SummedShard& shard) const {
  if (!shard.early) return shard.sum.Lacking();
  std::vector<NodeId> lacking;
  auto next = shard.early->made.begin();
  const auto end = next + shard.early->in_time;
  for (const NodeId child : node_.config().children) {  // both are in the order of ids
    while (next != end && next->source < child) ++next;
    if (next == end || next->source != child) lacking.push_back(child);
  }
  return lacking;
}

std::vector<NodeId> ServerRole::Awaited(const SummedShard& shard) const {
  std::vector<NodeId> awaited = Lacking(shard);
  std::erase_if(awaited, [&](NodeId child) {
    return !TakesPart(child, shard.round + 1) || !WillPush(child, shard) || !CanPush(child, shard);
  });
  return awaited;
}

bool ServerRole::WaitsAtBarrierFor(NodeId child, const std::set<NodeId>& unanswered) const {
  const Round barrier = BarrierOf(child);
  return std::any_of(unanswered.begin(), unanswered.end(),
                     [&](NodeId each) { return Present(each) && BarrierOf(each) < barrier; });
}

void ServerRole::OnTimeout(Time now) {
  while (NextTimeout() <= now) CloseOpen(Find(closing_.begin()->second), now);
}

std::optional<Event> ServerRole::Partial(const Header& header, const SummedShard& shard) const {
  const std::uint32_t workers = Workers(shard);
  const EarlyContributions* early = shard.early.get();
  const bool all = early == nullptr || (early->made.size() == early->in_time && early->dropped.empty());
  if (workers == node_.config().quorum && all) return std::nullopt;
  ++node_.counts().partial_rounds;
  Event partial{.kind = Event::Kind::kPartial,
                .key = header.key,
                .shard = header.shard,
                .round = shard.round + 1,
                .workers = workers};
  const std::vector<NodeId> lacking = Lacking(shard);
  partial.values.assign(lacking.begin(), lacking.end());
  if (early == nullptr) return partial;
  for (std::size_t i = early->in_time; i < early->made.size(); ++i) {
    partial.late.emplace_back(early->made[i].source, early->made[i].meant);
  }
  partial.late.insert(partial.late.end(), early->dropped.begin(), early->dropped.end());
  partial.dropped = static_cast<std::uint32_t>(early->dropped.size());
  return partial;
}

// Returns nothing if the sum needs no factors of its own.
std::vector<double> ServerRole::Weights(const SummedShard& shard) const {
  RoundPolicy& policy = *node_.config().round_policy;
  const std::vector<Contribution>& made = shard.early->made;
  const bool relative = policy.Relative();
  std::vector<double> weights(made.size(), 1.0);
  const std::vector<NodeId> awaited = Awaited(shard);
  policy.Weigh(Open(shard, awaited), weights);
  double total = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (!(weights[i] >= 0)) throw PluginFailure("a round policy gave a weight that is negative or no number");
    total += (relative ? weights[i] : 1.0) * made[i].workers;
  }
  const double largest = *std::max_element(weights.begin(), weights.end());
  if (!(total > 0) || !std::isfinite(total + largest)) {
    throw PluginFailure("a round policy gave weights that are infinite, or all 0");
  }
  const double plain = relative ? weights.front() : 1.0;
  if (std::all_of(weights.begin(), weights.end(), [&](double each) { return each == plain; })) return {};
  for (double& weight : weights) weight *= node_.config().quorum / total;
  return weights;
}

// Contributions are added in the order of node ids, then those that the round has in addition.
ServerRole::EarlySum ServerRole::TakeSum(SummedShard& shard) {
  EarlyContributions& round = *shard.early;
  const std::vector<double> weights = Weights(shard);
  EarlySum taken{.workers = weights.empty() ? round.Workers() : node_.config().quorum};
  closing_.erase({std::exchange(round.closes_at, kNever), IdOf(shard)});
  std::vector<Buffer> values = std::exchange(round.values, {});
  std::vector<const float*> terms;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float factor = weights.empty() ? 1.0f : static_cast<float>(weights[i]);
    if (!weights.empty()) taken.lacks -= weights[i] * round.made[i].workers;
    for (float& value : weights.empty() ? std::span<float>() : std::span<float>(values[i])) value *= factor;
    if (i > 0) terms.push_back(values[i].data());
  }
  taken.lacks += weights.empty() ? 0 : node_.config().quorum;
  taken.value = std::move(values.front());
  if (!taken.value.empty()) kernels::Add(taken.value.data(), terms.data(), terms.size(), taken.value.size());
  round.made.clear();
  round.in_time = 0;
  round.late.clear();
  round.dropped.clear();
  return taken;
}

std::vector<NodeId> ServerRole::TakeDue(SummedShard& shard) {
  std::vector<NodeId> due;
  for (const NodeId child : std::exchange(shard.early->due, {})) {
    if (Present(child)) due.push_back(child);
  }
  return due;
}

}  // namespace geomx
