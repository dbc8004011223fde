// A local server's part in workers that are lost and come back, and in the return of its whole party.
#include <algorithm>

#include "core/server.h"

namespace geomx {

void Server::OnMember(NodeId member, bool back, Time now) {
  if (!node_.IsChild(member)) return;
  if (back) {
    ForgetLeft(member);
    ForgetBarrier(member);
    Await(member);
    for (auto& [id, shard] : shards_) shard.firsts.erase(member);
    if (early()) ForgetPushes(member, now);
  } else {
    CloseWithout(member, now);
  }
  TellBarrier();
  TellPolicy();
}

void Server::TellPolicy() {
  const auto& children = node_.config().children;
  policy_->OnMembers(PresentChildren(), static_cast<std::uint32_t>(children.size()));
}

void Server::CloseWithout(NodeId child, Time now) {
  for (auto& [id, shard] : shards_) {
    std::erase(shard.waiting, child);
    Recheck(shard, now);
  }
  if (PresentChildren() > 0) return TellBarrier();
  apart_ = true;
  told_ = 0;
  undecided_.clear();
  TellParents(0);
}

void Server::Recheck(Shard& shard, Time now) {
  if (shard.updating) {
    return Defer(shard, [this, &shard](Time at) { Recheck(shard, at); }), void();
  }
  if (shard.escalated) return;
  if (early()) {
    CloseIfDue(shard, now);
    AnswerLeaving(shard, now);
    return AnswerWaiting(shard, now);
  }
  if (ServerRole::Complete(shard)) return Close(shard.given, shard, now);
  AnswerWaiting(shard, now);
}

void Server::Rejoin(Time now) {
  apart_ = false;
  begun_.reset();
  ++rejoined_;
  TellParents(PresentChildren());
  if (MustAgree()) undecided_.insert(node_.config().parents.begin(), node_.config().parents.end());
  first_ = 0;
  for (auto& [id, shard] : shards_) {
    shard.escalated = false;
    TakeAnswered(shard);
    shard.leaving.clear();
    shard.lead = 0;
    shard.stale = shard.value != nullptr;
    if (early()) CloseIfDue(shard, now);  // cancels a deadline, as a stale shard stays open
  }
}

bool Server::MustAgree() const {
  const NodeConfig& config = node_.config();
  return config.parents.size() > 1 && config.rounds.together && !config.rounds.early;
}

void Server::OnAdmitted(NodeId parent, const Header& header) {
  if (header.key != rejoined_ || undecided_.erase(parent) == 0) return;
  first_ = std::max(first_, header.round);
  if (!undecided_.empty()) return;
  TellParents(PresentChildren(), first_);
  for (auto& [id, shard] : shards_) {
    if (shard.waiting.empty()) continue;
    const NodeId child = shard.waiting.front();
    Ask(child, shard.asked[child], shard);
  }
}

void Server::TellParents(std::uint32_t workers, Round first) {
  for (const NodeId parent : node_.config().parents) {
    if (workers > 0 && first == 0) node_.Renew(parent);
    Message message = ControlMessage(Kind::kMembers, {}, first);
    message.header.merge_count = workers;
    if (workers > 0 && MustAgree()) message.header.key = rejoined_;
    message.header.priority = INT32_MIN;  // after queued contributions
    node_.Send(parent, std::move(message));
  }
}

void Server::AnswerWaiting(Shard& shard, Time now) {
  if (shard.waiting.empty() || shard.escalated || shard.stale || !shard.value) return;
  SkipEmptyRounds(shard);
  for (const NodeId child : std::vector(shard.waiting)) {
    if (!MayHave(child, shard)) continue;
    if (early()) {
      Give(shard, child);
      shard.paces[child].pushed = kAnyRound;
    }
    AnswerRequest(shard, child, shard.round, shard.value, now);
  }
}

}  // namespace geomx
