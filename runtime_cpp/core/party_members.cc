// A local server's part in workers that are lost and come back, and in the return of its whole party.
#include <algorithm>

#include "core/server.h"

namespace geomx {

void Server::TellPolicy() {
  const auto& children = node_.config().children;
  policy_->OnMembers(PresentChildren(), static_cast<std::uint32_t>(children.size()));
}

void Server::CloseWithout(NodeId child, Time now) {
  for (auto& [id, shard] : shards_) {
    std::erase(shard.waiting, child);
    Recheck(shard, now);
  }
  if (PresentChildren() > 0) return;
  apart_ = true;
  TellParents(0);
}

void Server::Recheck(Shard& shard, Time now) {
  if (shard.updating) {
    return Defer(shard, [this, &shard](Time at) { Recheck(shard, at); }), void();
  }
  if (shard.escalated) return;
  if (ServerRole::Complete(shard)) return Close(shard.given, shard, now);
  AnswerWaiting(shard, now);
}

void Server::Rejoin() {
  apart_ = begun_ = false;
  ++rejoined_;
  TellParents(PresentChildren());
  for (auto& [id, shard] : shards_) {
    shard.escalated = false;
    shard.lead = 0;
    shard.stale = shard.value != nullptr;
  }
}

void Server::TellParents(std::uint32_t workers) {
  for (const NodeId parent : node_.config().parents) {
    if (workers > 0) node_.Renew(parent);
    Message message = ControlMessage(Kind::kMembers);
    message.header.merge_count = workers;
    message.header.priority = INT32_MIN;  // after queued contributions
    node_.Send(parent, std::move(message));
  }
}

void Server::SkipTo(NodeId worker, Round round, Shard& shard, Time now) {
  if (!HasComeBack(worker) || shard.sum.merge_count() > 0 || round <= shard.round + 1) return;
  shard.round = round - 1;
  AnswerWaiting(shard, now);
}

void Server::AnswerWaiting(Shard& shard, Time now) {
  if (shard.waiting.empty() || shard.escalated || shard.stale || !shard.value) return;
  SkipEmptyRounds(shard);
  for (const NodeId child : std::vector(shard.waiting)) {
    if (MayHave(child, shard)) AnswerRequest(shard, child, shard.round, shard.value, now);
  }
}

}  // namespace geomx
