// Common rounds that close without parties that are late (GlobalRounds::early).
//
// A round closes when all parties that take part have contributed to it, or when the policy says. A
// party whose push comes after its round has closed is late: it is answered at once with the current
// value, and its contribution is added to the open round unless the policy drops it. Two reasons: parties
// push all shards and wait for all answers, so if late ones waited, each party could wait for a shard to
// which the others have contributed already; and the answer brings the party to the round of the others. A
// party may therefore have two contributions in a round, or more, if it was lost and has come back.
#include <algorithm>
#include <cmath>
#include <vector>

#include "core/global_server.h"
#include "core/plugin_failure.h"
#include "kernels/sums.h"

namespace geomx {

void GlobalServer::PushEarly(NodeId peer, Header header, Shard& shard, Buffer value, Time now) {
  const Round meant = header.round;
  if (meant == 0 || meant > shard.round + 1) return FailRound(peer, header, shard.round + 1);
  const bool late = meant <= shard.round;
  // A correct party is late once in a round, then waits for the answer to its next push.
  if (late ? shard.due.contains(peer) || !shard.late.insert(peer).second : shard.due.contains(peer)) {
    return node_.Fail(peer, "pushed twice in one round");
  }
  value = node_.sums().Decoded(header, std::move(value));  // layouts may differ between rounds
  if (!IsAcceptable(peer, header, shard, value)) return;
  header.round = shard.round + 1;
  const Contribution made{peer, meant, header.round - meant, header.merge_count, header.steps};
  if (late && !node_.config().round_policy->Takes(shard.terms.info, made)) {
    shard.dropped.emplace_back(peer, meant);
  } else {
    Add(shard, made, std::move(value));
    NoteContribution(peer, header, shard, now);
  }
  if ((header.flags & kLast) != 0) {
    shard.finished.insert(peer);
  } else {
    shard.finished.erase(peer);
  }
  shard.due.insert(peer);
  if (!late && Awaited(shard).empty()) times_.CameLast(PlaceOf(peer));
  CloseIfDue(shard, now);
  if (!late || shard.due.erase(peer) == 0) return;  // to be answered when its round closes, or answered
  header.flags = 0;
  SendResult(header, shard.round, node_.config().quorum, shard.weights.value(), {&peer, 1}, now);
}

void GlobalServer::Add(Shard& shard, const Contribution& made, Buffer value) {
  const auto same = [&](const Contribution& each) { return each.source == made.source; };
  const bool extra =
      made.age > 0 || std::any_of(shard.contributions.begin(), shard.contributions.begin() + shard.in_time, same);
  const auto begin = shard.contributions.begin() + (extra ? shard.in_time : 0);
  const auto end = extra ? shard.contributions.end() : shard.contributions.begin() + shard.in_time;
  const auto place = std::upper_bound(begin, end, made, [](const Contribution& a, const Contribution& b) {
    return a.source < b.source;
  });
  shard.values.insert(shard.values.begin() + (place - shard.contributions.begin()), std::move(value));
  shard.contributions.insert(place, made);
  if (!extra) ++shard.in_time;
}

void GlobalServer::CloseIfDue(Shard& shard, Time now) {
  if (!IsOpen(shard)) return;
  const std::vector<NodeId> awaited = Awaited(shard);
  const Time closes_at = node_.config().round_policy->ClosesAt(Open(shard, awaited), shard.closes_at, now);
  if (closes_at != shard.closes_at) {
    closing_.erase({shard.closes_at, IdOf(shard)});
    shard.closes_at = closes_at;
    if (closes_at != kNever) closing_.emplace(closes_at, IdOf(shard));
  }
  if (closes_at <= now || awaited.empty()) Close(shard.given, shard, now);
}

EarlyRound GlobalServer::Open(const Shard& shard, std::span<const NodeId> awaited) const {
  return {shard.terms.info, shard.round + 1, shard.contributions, awaited, node_.config().quorum};
}

std::vector<NodeId> GlobalServer::Lacking(const Shard& shard) const {
  std::vector<NodeId> lacking;
  auto next = shard.contributions.begin();
  const auto end = next + shard.in_time;
  for (const NodeId party : node_.config().children) {  // both are in the order of ids
    while (next != end && next->source < party) ++next;
    if (next == end || next->source != party) lacking.push_back(party);
  }
  return lacking;
}

std::vector<NodeId> GlobalServer::Awaited(const Shard& shard) const {
  std::vector<NodeId> awaited = Lacking(shard);
  std::erase_if(awaited, [&](NodeId party) {
    return !TakesPart(party, shard.round + 1) || shard.finished.contains(party);
  });
  return awaited;
}

void GlobalServer::OnTimeout(Time now) {
  while (NextTimeout() <= now) {
    Shard& shard = *shards_.Find(closing_.begin()->second);
    Close(shard.given, shard, now);
  }
}

// The last contributions may be late ones, which are answered already.
void GlobalServer::OnStop(Time now) {
  if (!rules_.early) return;
  for (auto& [id, shard] : shards_) {
    if (IsOpen(shard)) Close(shard.given, shard, now);
  }
}

void GlobalServer::TellPartial(const Header& header, const Shard& shard) {
  const std::uint32_t workers = Workers(shard);
  if (workers == node_.config().quorum && shard.contributions.size() == shard.in_time && shard.dropped.empty()) return;
  ++node_.counts().partial_rounds;
  Event partial = Closing(header, shard, rules_.early ? Lacking(shard) : shard.sum.Lacking());
  partial.workers = workers;
  for (std::size_t i = shard.in_time; i < shard.contributions.size(); ++i) {
    partial.late.emplace_back(shard.contributions[i].source, shard.contributions[i].meant);
  }
  partial.late.insert(partial.late.end(), shard.dropped.begin(), shard.dropped.end());
  partial.dropped = static_cast<std::uint32_t>(shard.dropped.size());
  node_.Emit(std::move(partial));
}

std::uint32_t GlobalServer::Workers(const Shard& shard) {
  std::uint32_t workers = shard.sum.merge_count();
  for (const Contribution& each : shard.contributions) workers += each.workers;
  return workers;
}

// Returns nothing if the sum needs no factors of its own.
std::vector<double> GlobalServer::Weights(const Shard& shard) const {
  RoundPolicy& policy = *node_.config().round_policy;
  const bool relative = policy.Relative();
  std::vector<double> weights(shard.contributions.size(), 1.0);
  const std::vector<NodeId> awaited = Awaited(shard);
  policy.Weigh(Open(shard, awaited), weights);
  double total = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (!(weights[i] >= 0)) throw PluginFailure("a round policy gave a weight that is negative or no number");
    total += (relative ? weights[i] : 1.0) * shard.contributions[i].workers;
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
Buffer GlobalServer::TakeSum(Shard& shard, std::uint32_t& merge_count) {
  const std::vector<double> weights = Weights(shard);
  if (!weights.empty()) merge_count = node_.config().quorum;
  closing_.erase({std::exchange(shard.closes_at, kNever), IdOf(shard)});
  std::vector<Buffer> values = std::exchange(shard.values, {});
  std::vector<const float*> terms;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float factor = weights.empty() ? 1.0f : static_cast<float>(weights[i]);
    for (float& value : weights.empty() ? std::span<float>() : std::span<float>(values[i])) value *= factor;
    if (i > 0) terms.push_back(values[i].data());
  }
  Buffer sum = std::move(values.front());
  if (!sum.empty()) kernels::Add(sum.data(), terms.data(), terms.size(), sum.size());
  shard.contributions.clear();
  shard.in_time = 0;
  shard.late.clear();
  shard.dropped.clear();
  return sum;
}

std::vector<NodeId> GlobalServer::TakeDue(Shard& shard) {
  std::vector<NodeId> due;
  for (const NodeId party : std::exchange(shard.due, {})) {
    if (Present(party)) due.push_back(party);
  }
  return due;
}

void GlobalServer::ForgetPushes(NodeId party) {
  node_.flows().Forget(party);
  for (auto& [id, shard] : shards_) {
    shard.due.erase(party);
    shard.late.erase(party);
    shard.finished.erase(party);
  }
}

void GlobalServer::AddWaitsOfEarly(Key key, const Shard& shard, Waits& waits) const {
  if (!IsOpen(shard)) return;
  waits.Add({.kind = Wait::Kind::kPush, .whom = Awaited(shard), .key = key, .round = shard.round + 1});
}

}  // namespace geomx
