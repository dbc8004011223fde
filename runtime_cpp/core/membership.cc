#include "core/membership.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace geomx {

void Membership::Start(Time now) {
  started_ = true;
  Beat(now);
}

void Membership::Beat(Time now) {
  if (state_.config.heartbeat_interval <= 0) return;
  beating_ = true;
  next_beat_ = now;
  for (const NodeId id : state_.peers.ids()) {
    if (!state_.peers.Away(id)) contacts_[id].heard = now;
  }
}

void Membership::Ready(Time now) {
  (void)now;
  state_.peers.Send(*state_.config.scheduler, ControlMessage(Kind::kReady));
}

void Membership::BeginIteration(Round iteration) {
  state_.peers.Send(*state_.config.scheduler, ControlMessage(Kind::kIteration, {}, iteration));
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

// ---- links -----------------------------------------------------------------------------------

void Membership::Hear(std::map<NodeId, Contact>::iterator from, Time now) {
  if (from == contacts_.end()) return;
  Contact& contact = from->second;
  contact.heard = now;
  contact.lost = false;
  if (!std::exchange(contact.suspect, false)) return;
  const NodeId peer = from->first;
  state_.Emit({.kind = Event::Kind::kHeard, .peer = peer, .text = state_.peers.Find(peer)->name});
}

// Without heartbeats (or before they begin) a healthy peer may be silent: only broken connections
// count.
void Membership::HandleLinkLost(NodeId peer, const std::string& reason, Time now) {
  if (state_.config.heartbeat_interval <= 0 || state_.peers.Find(peer) == nullptr) return;
  if (state_.peers.Away(peer)) return;  // it is lost already
  if (!beating_) {
    contacts_[peer].heard = now;
    next_beat_ = std::min(next_beat_, now + state_.config.heartbeat_interval);
  }
  const auto found = contacts_.find(peer);
  if (found != contacts_.end()) found->second.broken = reason;
}

void Membership::HandleLinkMade(NodeId peer, Time now) {
  Hear(peer, now);
  const auto found = contacts_.find(peer);
  if (found == contacts_.end()) return;
  found->second.broken.clear();
  if (beating_) return;
  contacts_.erase(found);
  if (contacts_.empty()) next_beat_ = kNever;
}

void Membership::HandleChange(NodeId peer, bool back, Time now) {
  contacts_.erase(peer);
  if (back && beating_) contacts_[peer].heard = now;
  if (!beating_ && contacts_.empty()) next_beat_ = kNever;
}

Time Membership::Silence(NodeId peer, Time now) const {
  const auto found = contacts_.find(peer);
  return found == contacts_.end() ? 0 : now - found->second.heard;
}

// ---- heartbeats ------------------------------------------------------------------------------

void Membership::HandleTimeout(Time now) {
  if (stopped_ || next_beat_ > now) return;
  const Time late = now - next_beat_;
  if (late > state_.config.heartbeat_interval) {
    // This node did not run (it was stopped, or its machine slept): messages that arrived meanwhile
    // are not read yet.
    for (auto& [id, contact] : contacts_) contact.heard = std::min(now, contact.heard + late);
  }
  next_beat_ = now + state_.config.heartbeat_interval;
  if (beating_) SendHeartbeats();
  LookForSilence(now);
}

void Membership::SendHeartbeats() {
  for (const NodeId id : state_.peers.ids()) {
    Peers::Neighbour& neighbour = state_.peers.Get(id);
    if (std::exchange(neighbour.spoken_to, false)) continue;
    if (neighbour.queue.HasHeartbeat()) continue;  // nothing leaves at present; one says as much as many
    state_.peers.Send(neighbour, ControlMessage(Kind::kHeartbeat));
  }
}

// Whether the run goes on without a peer as soon as it is suspect.
bool Membership::IsDispensable(NodeId id) const {
  const Role role = state_.peers.Find(id)->role;
  const bool continues = state_.config.continues && (role == Role::kWorker || role == Role::kServer);
  return continues || role_->Dispensable(id);
}

Time Membership::Bearable(NodeId peer) const {
  return std::max(state_.config.failure_timeout, IsDispensable(peer) ? 0 : state_.config.patience);
}

void Membership::LookForSilence(Time now) {
  std::vector<std::pair<NodeId, std::string>> lost;
  for (auto& [id, contact] : contacts_) {
    const Time silence = now - contact.heard;
    const Time bearable = Bearable(id);
    if (silence <= state_.config.failure_timeout || contact.lost) continue;
    contact.lost = silence > bearable;
    if (!contact.suspect) ++suspicions_[id];
    if (contact.lost) {
      lost.emplace_back(id, Reason(contact, bearable));
    } else if (!std::exchange(contact.suspect, true)) {
      state_.Emit({.kind = Event::Kind::kSuspect,
                   .peer = id,
                   .text = state_.peers.Find(id)->name,
                   .reason = Reason(contact, state_.config.failure_timeout)});
    }
  }
  for (const auto& [id, reason] : lost) HandleLinkDown(id, reason, now);
}

std::string Membership::Reason(const Contact& contact, Time silent_for) const {
  return "nothing heard for " + std::to_string(silent_for / kMillisecond) + " ms" +
         (contact.broken.empty() ? "" : " since its connection ended (" + contact.broken + ")");
}

}  // namespace geomx
