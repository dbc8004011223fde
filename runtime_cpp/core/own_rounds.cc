// A global server without common rounds: every party's push is applied and answered by itself, as far
// as the staleness bound allows.
#include <algorithm>

#include "core/global_server.h"

namespace geomx {

void GlobalServer::Apply(NodeId peer, const Header& header, Shard& shard, Buffer encoded, Time now) {
  Buffer value = node_.sums().Decoded(header, std::move(encoded));
  std::uint32_t merge_count = header.merge_count;
  for (const NodeId child : node_.config().children) shard.parties.try_emplace(child);
  Progress& party = shard.parties.at(peer);
  if (header.round != party.round + 1 || party.held) {
    return FailRound(peer, header, party.round + 1);
  }
  if (!IsAcceptable(peer, header, shard, value)) return;
  if (MakeUp(value, merge_count, node_.StandsFor(peer))) ++node_.counts().partial_rounds;
  party.held.emplace(header, std::move(value));
  party.held->first.merge_count = merge_count;
  ApplyHeld(header.key, shard, 0, false, now);
}

void GlobalServer::ApplyHeld(Key key, Shard& shard, NodeId first, bool progress, Time now) {
  while (true) {
    for (auto each = shard.parties.lower_bound(first); each != shard.parties.end(); ++each) {
      auto& [id, party] = *each;
      if (!party.held || TooFarAhead(shard, party)) continue;
      progress = true;
      if (!ApplyNow(id, key, shard, party, now)) return;
    }
    if (!progress) break;
    progress = false;
    first = 0;
  }
  CheckParties(key, shard);
}

bool GlobalServer::TooFarAhead(const Shard& shard, const Progress& party) const {
  Round slowest = party.round;
  for (const auto& [id, other] : shard.parties) {
    if (Counts(id, other)) slowest = std::min(slowest, other.round);
  }
  return party.round - slowest > rules_.staleness_bound;
}

bool GlobalServer::ApplyNow(NodeId peer, Key key, Shard& shard, Progress& party, Time now) {
  auto [header, value] = *std::exchange(party.held, std::nullopt);
  const std::uint64_t staleness = shard.updates - party.seen;
  NodeStats& counts = node_.counts();
  counts.staleness_sum += staleness;
  counts.staleness_max = std::max(counts.staleness_max, staleness);
  ++party.round;
  party.seen = ++shard.updates;
  const GradientSource from{header.merge_count, peer, (header.flags & kAbsent) != 0};
  const auto finish = [=, this, &shard, header = header, round = party.round](Time at) {
    Finish(header, round, header.merge_count, shard.weights.value(), {&peer, 1}, at);
  };
  if (Update(header, shard, std::move(value), optimizer_, from, true)) {
    finish(now);
    return true;
  }
  WhenUpdated(shard, [=, this, &shard](Time at) {
    finish(at);
    ApplyHeld(key, shard, peer + 1, true, at);
  });
  return false;
}

void GlobalServer::AddWaitsOfTheFast(Key key, const Shard& shard, Waits& waits) const {
  Round slowest = UINT32_MAX;
  bool held = false;
  for (const auto& [id, party] : shard.parties) {
    if (Counts(id, party)) slowest = std::min(slowest, party.round);
    held = held || party.held.has_value();
  }
  if (!held) return;
  Wait wait{.kind = Wait::Kind::kPush, .whom = {}, .key = key, .round = slowest + 1};
  for (const auto& [id, party] : shard.parties) {
    if (Counts(id, party) && party.round == slowest) wait.whom.push_back(id);
  }
  waits.Add(wait);
}

}  // namespace geomx
