// A node's part in the membership of a run: start, heartbeats, leaving, stop.
//
//   joining --start--> running --Leave, everything answered: bye--> left --stop--> stopped
//
// Members send heartbeats to the scheduler, which sends them to all. A peer that is silent for
// `failure_timeout` counts as a broken connection. Time in which this node itself did not run does not
// count as silence of others.
#pragma once

#include <map>
#include <memory>
#include <optional>

#include "core/node_state.h"
#include "core/overlay.h"
#include "core/role.h"
#include "core/types.h"

namespace geomx {

class Membership {
 public:
  // All of them outlive this.
  Membership(NodeState& state, std::optional<Overlay>& overlay, std::unique_ptr<RoleLogic>& role)
      : state_(state), overlay_(overlay), role_(role) {}

  bool started() const { return started_; }
  bool stopped() const { return stopped_; }
  bool leaving() const { return leaving_; }  // wants to, and something is unanswered
  bool left() const { return left_; }        // wants to, or has

  // All members are connected; without heartbeats (simulation).
  void AssumeStarted() { started_ = true; }
  // The same live: heartbeats begin.
  void Start(Time now);
  void Stop() { stopped_ = true; }
  void Hear(NodeId from, Time now) {
    if (state_.config.heartbeat_interval > 0) last_heard_[from] = now;
  }
  void Ready(Time now);

  // Says bye as soon as nothing is unanswered.
  void Leave();
  // To be called after something was answered.
  void SayByeIfAnswered() {
    if (leaving_ && !role_->Unanswered()) SayBye();
  }
  // Says bye to parents and to the members of overlays: nothing more comes from here.
  void TellFinished();
  // `waiting` waits for round `round` of a key, but `left`, without which it cannot end, took part in
  // `reached` rounds and has left: reports the loss to the scheduler, once, as that ends the run.
  void EndRound(NodeId left, Round reached, NodeId waiting, Key key, Round round);

  // Passed on to the role until the run has stopped.
  void HandleLinkDown(NodeId peer, const std::string& reason, Time now) {
    if (!stopped_) role_->OnLinkDown(peer, reason, now);
  }

  Time NextTimeout() const { return stopped_ ? kNever : next_heartbeat_; }
  // Sends heartbeats that are due, and looks for peers that fell silent.
  void HandleTimeout(Time now);

 private:
  void SayBye();
  void SendHeartbeats();
  void CheckHeartbeats(Time now);

  NodeState& state_;
  std::optional<Overlay>& overlay_;
  std::unique_ptr<RoleLogic>& role_;
  bool started_ = false;
  bool stopped_ = false;
  bool leaving_ = false;
  bool left_ = false;
  bool ended_round_ = false;  // reported that a round will never be complete
  Time next_heartbeat_ = kNever;
  std::map<NodeId, Time> last_heard_;
};

}  // namespace geomx
