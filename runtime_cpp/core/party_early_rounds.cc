// A party's rounds that close without workers that are late (NodeConfig::round_policy of a local server).
//
// They are rounds like those of global servers (early_rounds.cc), with four differences.
//
// A worker numbers its own pushes, and trains on from the value that it was given last. The local server
// knows the round of that value, which tells for which round a push is meant. A worker that begins may be given
// the shards of a tensor at different rounds, and counts on from the earliest of these (Worker::CountOn).
//
// After a round was closed and sent up, the party waits for an answer. A late push that comes meanwhile is
// answered with it, and the policy is asked about the next round when the answer is there.
//
// Where workers push parameters, a late worker has trained from an older value than the others, and what
// it contributes is what it has changed there: its parameters are moved by as much as the value has changed
// since. Likewise, weights that make the sum smaller apply to changes and not to parameters.
//
// A worker's last push is answered when no worker will push again and nothing is left of their contributions:
// all workers end with the same value, and nothing is left behind at the party when they leave. A worker that
// came back after the last round has nothing to push. If it waits at a barrier for such a worker, it is not waited for.
#include <algorithm>
#include <utility>

#include "core/server.h"
#include "core/state.h"

namespace geomx {

void Server::PushEarly(NodeId peer, const Header& header, Shard& shard, Buffer value, Time now) {
  Pace& pace = shard.paces[peer];
  const Round meant = pace.base + 1;
  const bool late = meant <= shard.round;
  const auto& answered = shard.answered;
  const bool twice = std::find(answered.begin(), answered.end(), peer) != answered.end();
  const bool next = pace.pushed == kAnyRound || header.round == pace.pushed + 1;
  if (!next || twice || shard.leaving.contains(peer) || (!late && shard.escalated)) {
    return FailRound(peer, header, pace.pushed + 1);
  }
  const Taken taken = TakeEarly(peer, header, meant, shard, std::move(value), now);
  if (taken == Taken::kRefused) return;
  pace.pushed = header.round;
  if (taken == Taken::kLate && pace.value) shard.bases.emplace(std::pair(peer, meant), pace.value);
  const bool leaves = (header.flags & kLast) != 0;
  if (leaves) {
    shard.leaving.insert(peer);
  } else if (shard.escalated) {
    AwaitAnswer(shard, peer);
  } else {
    shard.early->due.insert(peer);
  }
  if (shard.escalated) return CloseLast(now);
  CloseIfDue(shard, now);
  if (leaves) return AnswerLeaving(shard, now);
  if (taken == Taken::kInTime || shard.early->due.erase(peer) == 0) return;
  Give(shard, peer);
  Header answer = header;
  answer.flags = 0;
  SendResult(answer, shard.round + shard.lead, node_.config().quorum, shard.value, {&peer, 1}, now);
}

Buffer Server::TakePartySum(Shard& shard, std::uint32_t& merge_count) {
  const NodeConfig& config = node_.config();
  const auto bases = std::exchange(shard.bases, {});
  EarlyContributions& round = *shard.early;
  for (std::size_t i = 0; i < round.made.size(); ++i) {
    const auto base = bases.find({round.made[i].source, round.made[i].meant});
    const auto scale = config.parameter_scales.find(round.made[i].source);
    if (base == bases.end() || scale == config.parameter_scales.end() || !shard.value) continue;
    Buffer& value = round.values[i];
    const float factor = static_cast<float>(scale->second);
    for (std::size_t k = 0; k < value.size(); ++k) value[k] += factor * ((*shard.value)[k] - (*base->second)[k]);
  }
  EarlySum taken = TakeSum(shard);
  merge_count = taken.workers;
  MakeUp(taken.value, merge_count, config.quorum);
  if (!config.round_policy->Relative() && taken.lacks != 0 && shard.value) {
    double scales = 0;
    for (const auto& [worker, scale] : config.parameter_scales) scales += scale;
    const float factor = static_cast<float>(taken.lacks / config.quorum * scales);
    for (std::size_t k = 0; k < taken.value.size(); ++k) taken.value[k] += factor * (*shard.value)[k];
  }
  for (const NodeId worker : TakeDue(shard)) AwaitAnswer(shard, worker);
  return std::move(taken.value);
}

void Server::AnswerLeaving(Shard& shard, Time now) {
  if (shard.escalated || !shard.value || !IsOver(shard)) return;
  std::set<NodeId> leaving = std::exchange(shard.leaving, {});
  std::erase_if(leaving, [this](NodeId worker) { return !Present(worker); });
  SendResult(ShardHeader(Kind::kValue, shard.terms.info), shard.round + shard.lead, node_.config().quorum, shard.value,
             std::vector<NodeId>(leaving.begin(), leaving.end()), now);
}

void Server::Give(Shard& shard, NodeId worker) {
  Pace& pace = shard.paces[worker];
  pace.base = shard.round;
  if (!node_.config().parameter_scales.empty()) pace.value = shard.value;
}

void Server::ComeToBarrier(NodeId worker, Round barrier, Time now) {
  NoteBarrier(worker, barrier);
  if (early()) {
    for (auto& [id, shard] : shards_) Recheck(shard, now);
  }
  TellBarrier();
}

void Server::TellBarrier() {
  if (!node_.config().rounds.early || PresentChildren() == 0) return;
  Round least = UINT32_MAX;
  for (const NodeId child : node_.config().children) {
    if (Present(child)) least = std::min(least, BarrierOf(child));
  }
  if (least == told_) return;
  for (const auto& [id, shard] : shards_) {
    // A round that lacks its quorum is sent with what comes after the barrier.
    const bool stays = early() && !shard.escalated && MayClose(shard) && MayCloseEarly(shard) &&
                       shard.early->closes_at == kNever;
    if (least > 0 && Workers(shard) > 0 && !stays) return;
  }
  told_ = least;
  for (const NodeId parent : node_.config().parents) {
    Message message = ControlMessage(Kind::kBarrier, {}, least);
    message.header.priority = INT32_MIN;  // after queued contributions
    node_.Send(parent, std::move(message));
  }
}

bool Server::CanPush(NodeId worker, const SummedShard& shard) const {
  if (Returns(worker)) return false;
  const auto awaits = awaits_.find(worker);
  if (!shard.early->Ends() || awaits == awaits_.end() || awaits->second.empty()) return true;
  const auto& paces = static_cast<const Shard&>(shard).paces;
  const auto pace = paces.find(worker);
  if (pace == paces.end() || pace->second.pushed == kAnyRound) return true;
  return *awaits->second.begin() > pace->second.pushed;  // then its push is under way
}

void Server::AwaitAnswer(Shard& shard, NodeId worker) {
  std::multiset<Round>& awaits = awaits_[worker];
  const Round pushed = shard.paces.at(worker).pushed;
  waits_longer_ |= awaits.empty() || pushed < *awaits.begin();
  awaits.insert(pushed);
  shard.answered.push_back(worker);
}

void Server::EndWait(const Shard& shard, NodeId worker) {
  std::multiset<Round>& awaits = awaits_.at(worker);
  awaits.erase(awaits.find(shard.paces.at(worker).pushed));
}

void Server::FindAwaited() {
  awaits_.clear();
  for (const auto& [id, shard] : shards_) {
    for (const NodeId worker : shard.answered) {
      const auto pace = shard.paces.find(worker);
      if (pace == shard.paces.end()) throw StateError("an answer is due to a worker that has pushed nothing");
      awaits_[worker].insert(pace->second.pushed);
    }
  }
}

std::vector<NodeId> Server::TakeAnswered(Shard& shard) {
  for (const NodeId worker : shard.answered) EndWait(shard, worker);
  return std::exchange(shard.answered, {});
}

void Server::CloseLast(Time now) {
  if (!std::exchange(waits_longer_, false)) return;
  for (auto& [id, shard] : shards_) {
    if (!shard.escalated && shard.early->Ends()) CloseIfDue(shard, now);
  }
}

bool Server::Returns(NodeId worker) const {
  const auto found = lacks_.find(worker);
  if (found == lacks_.end() || !IsReturning(worker)) return false;
  std::vector<ShardId>& lacks = found->second;
  const auto waits = [&](const Shard& shard) {
    return shard.escalated && std::find(shard.waiting.begin(), shard.waiting.end(), worker) != shard.waiting.end();
  };
  while (!lacks.empty() && !waits(*shards_.Find(lacks.back()))) lacks.pop_back();
  return !lacks.empty();
}

void Server::NoteLack(NodeId worker, const ShardId& shard, Time now) {
  const bool could = !Returns(worker);
  lacks_[worker].push_back(shard);
  if (!could) return;
  for (auto& [id, other] : shards_) Recheck(other, now);
}

void Server::ForgetPushes(NodeId worker, Time now) {
  for (auto& [id, shard] : shards_) {
    shard.early->Forget(worker);
    if (std::erase(shard.answered, worker) > 0) EndWait(shard, worker);
    shard.leaving.erase(worker);
    shard.paces.erase(worker);
    Recheck(shard, now);  // the open round was the last because of it, and now has a deadline
  }
}

bool Server::HasEnded(const Shard& shard) const {
  const auto& children = node_.config().children;
  return std::all_of(children.begin(), children.end(), [&](NodeId child) {
    return !Present(child) || !WillPush(child, shard);
  });
}

}  // namespace geomx
