#include "core/membership.h"

#include <algorithm>
#include <string>
#include <utility>

namespace geomx {

void Membership::Start(Time now) {
  started_ = true;
  if (state_.config.heartbeat_interval <= 0) return;
  next_heartbeat_ = now;
  for (const NodeId id : state_.peers.ids()) last_heard_[id] = now;
}

void Membership::Ready(Time now) {
  last_heard_[*state_.config.scheduler] = now;
  state_.peers.Send(*state_.config.scheduler, ControlMessage(Kind::kReady));
}

void Membership::Leave() {
  leaving_ = left_ = true;
  SayByeIfAnswered();
}

void Membership::SayBye() {
  leaving_ = false;
  if (state_.config.scheduler) {
    state_.peers.Send(*state_.config.scheduler, ControlMessage(Kind::kBye));
  }
  TellFinished();
}

void Membership::TellFinished() {
  for (const NodeId parent : state_.config.parents) {
    state_.peers.Send(parent, ControlMessage(Kind::kBye));
  }
  if (!overlay_) return;
  for (const NodeId sibling : overlay_->Siblings()) {
    state_.peers.Send(sibling, ControlMessage(Kind::kBye));
  }
}

void Membership::EndRound(NodeId left, Round reached, NodeId waiting, Key key, Round round) {
  if (std::exchange(ended_round_, true)) return;
  const Peer* member = state_.peers.Find(waiting);  // null: this node itself
  const std::string reason = "it left after round " + std::to_string(reached) + " of key " +
                             std::to_string(key) + " while " +
                             (member ? member->name : state_.config.name) + " waits for round " +
                             std::to_string(round) +
                             ": every worker must push every key equally often";
  state_.peers.Send(*state_.config.scheduler,
                    ControlMessage(Kind::kDead, {state_.peers.Find(left)->name, reason}));
}

// ---- heartbeats ------------------------------------------------------------------------------

void Membership::HandleTimeout(Time now) {
  if (stopped_ || next_heartbeat_ > now) return;
  const Time late = now - next_heartbeat_;
  if (late > state_.config.heartbeat_interval) {
    // This node did not run (it was stopped, or its machine slept): what arrived meanwhile is still
    // to be read.
    for (auto& [id, heard] : last_heard_) heard = std::min(now, heard + late);
  }
  next_heartbeat_ = now + state_.config.heartbeat_interval;
  SendHeartbeats();
  CheckHeartbeats(now);
}

void Membership::SendHeartbeats() {
  if (state_.config.scheduler) {
    state_.peers.Send(*state_.config.scheduler, ControlMessage(Kind::kHeartbeat));
    return;
  }
  for (const NodeId id : state_.peers.ids()) {
    state_.peers.Send(id, ControlMessage(Kind::kHeartbeat));
  }
}

void Membership::CheckHeartbeats(Time now) {
  const auto& scheduler = state_.config.scheduler;
  for (const NodeId id : state_.peers.ids()) {
    if (scheduler && *scheduler != id) continue;  // members watch their scheduler
    Time& heard = last_heard_.try_emplace(id, now).first->second;
    if (now - heard <= state_.config.failure_timeout) continue;
    heard = now;  // report once per timeout, not once per beat
    HandleLinkDown(id,
                   "nothing heard for " +
                       std::to_string(state_.config.failure_timeout / kMillisecond) + " ms",
                   now);
  }
}

}  // namespace geomx
