// Common rounds that close without parties that are late (GlobalRounds::quorum, deadline).
//
// A round closes when all parties that take part have contributed to it or, if the quorum has, after
// the deadline. A party whose push comes after its round has closed is late: it is answered at once with
// the current value, and its contribution is added to the open round. Two reasons: parties push all
// shards and wait for all answers, so if late ones waited, each party could wait for a shard to which
// the others have contributed already; and the answer brings the party to the round of the others. A
// party may therefore have two contributions in a round, or more, if it was lost and has come back.
#include <algorithm>

#include "core/global_server.h"
#include "kernels/sums.h"

namespace geomx {

void GlobalServer::PushWithQuorum(NodeId peer, Header header, Shard& shard, Buffer value, Time now) {
  const Round meant = header.round;
  if (meant == 0 || meant > shard.round + 1) return FailRound(peer, header, shard.round + 1);
  const bool late = meant <= shard.round;
  // A correct party is late once in a round, then waits for the answer to its next push.
  if (late ? shard.due.contains(peer) || !shard.late.insert(peer).second : shard.due.contains(peer)) {
    return node_.Fail(peer, "pushed twice in one round");
  }
  value = node_.sums().Decoded(header, std::move(value));  // layouts may differ between rounds
  header.round = shard.round + 1;
  if (!late && !shard.sum.Has(peer)) {
    if (!Contribute(peer, header, shard, std::move(value))) return;
  } else {
    if (!IsAcceptable(peer, header, shard, value)) return;
    shard.extra[peer].push_back({meant, header.merge_count, std::move(value)});
    NoteContribution(peer, header, shard);
  }
  if ((header.flags & kLast) != 0) {
    shard.finished.insert(peer);
  } else {
    shard.finished.erase(peer);
  }
  shard.due.insert(peer);
  CloseIfDue(shard, now);
  if (!late || shard.due.erase(peer) == 0) return;  // to be answered when its round closes, or answered
  header.flags = 0;
  SendResult(header, shard.round, node_.config().quorum, shard.weights.value(), {&peer, 1}, now);
}

void GlobalServer::CloseIfDue(Shard& shard, Time now) {
  if (!IsOpen(shard)) return;
  std::uint32_t contributed = 0, possible = 0;
  bool waits = false;
  for (const NodeId party : node_.config().children) {
    const bool has = shard.sum.Has(party), counts = has || shard.extra.contains(party);
    const bool takes_part = TakesPart(party, shard.round + 1) && !shard.finished.contains(party);
    contributed += counts;
    possible += counts || takes_part;
    waits = waits || (takes_part && !has);
  }
  if (contributed >= std::min(rules_.quorum, possible) && shard.closes_at == kNever) {
    shard.closes_at = now + rules_.deadline;
    closing_.emplace(shard.closes_at, IdOf(shard));
  }
  if (!waits || shard.closes_at <= now) Close(shard.given, shard, now);
}

void GlobalServer::OnTimeout(Time now) {
  while (NextTimeout() <= now) {
    Shard& shard = *shards_.Find(closing_.begin()->second);
    Close(shard.given, shard, now);
  }
}

// The last contributions may be late ones, which are answered already.
void GlobalServer::OnStop(Time now) {
  if (rules_.quorum == 0) return;
  for (auto& [id, shard] : shards_) {
    if (IsOpen(shard)) Close(shard.given, shard, now);
  }
}

std::uint32_t GlobalServer::Workers(const Shard& shard) {
  std::uint32_t workers = shard.sum.merge_count();
  for (const auto& [party, extras] : shard.extra) {
    for (const Extra& extra : extras) workers += extra.merge_count;
  }
  return workers;
}

// Contributions are added in the order of node ids, then those that the round has in addition.
Buffer GlobalServer::TakeSum(Shard& shard) {
  closing_.erase({std::exchange(shard.closes_at, kNever), IdOf(shard)});
  Buffer sum = shard.sum.Take();
  for (auto& [party, extras] : shard.extra) {
    for (Extra& extra : extras) {
      const float* const terms[] = {extra.value.data()};
      if (sum.empty()) {
        sum = std::move(extra.value);
      } else {
        kernels::Add(sum.data(), terms, 1, sum.size());
      }
    }
  }
  shard.extra.clear();
  shard.late.clear();
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

}  // namespace geomx
