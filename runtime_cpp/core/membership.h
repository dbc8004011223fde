// A node's part in the membership of a run: start, heartbeats, suspicion, leaving, stop.
//
//   joining --start--> running --Leave, everything answered: bye--> left --stop--> stopped
//
// From the start on, each end of every link sends a heartbeat after each interval in which it has sent
// nothing else, and thus at least one message in any two intervals. Either end therefore notices when the
// other, or the path between them, falls silent. A peer that is silent for `failure_timeout` is suspect;
// once it has been silent for `patience` as well, it counts as lost. A broken connection alone is no
// reason, as a new one is made meanwhile. Time in which this node itself did not run does not count as
// silence of others.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>

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
  bool leaving() const { return leaving_; }  // Leave was called, and something is unanswered
  bool left() const { return left_; }        // Leave was called

  // All members are connected, and there are no heartbeats (simulation): only broken connections
  // count.
  void AssumeStarted() { started_ = true; }
  // All members are connected: heartbeats begin (live).
  void Start(Time now);
  // Heartbeats begin, although the node does not start yet (live).
  void Beat(Time now);
  // Heartbeats are due now: this process goes on for another, whose clock may have drifted from its own.
  void BeatNow(Time now) {
    if (next_beat_ != kNever) next_beat_ = std::min(next_beat_, now);
  }
  void Stop() { stopped_ = true; }
  void Ready(Time now);
  void BeginIteration(Round iteration);

  // Sends bye as soon as nothing is unanswered.
  void Leave();
  // Call it after something was answered.
  void SayByeIfAnswered() {
    if (leaving_ && !role_->Unanswered()) SayBye();
  }
  // Sends bye to parents and to the members of overlays: this node will send no more contributions.
  void TellFinished();
  // Reports to the scheduler that a round cannot end: `waiting` waits for round `round` of a key,
  // but `left` took part in `reached` rounds and has left. Reports once, as that ends the run.
  void EndRound(NodeId left, Round reached, NodeId waiting, Key key, Round round);

  // ---- links; see the functions of these names in Node ----
  void Hear(NodeId from, Time now) {
    if (!contacts_.empty()) Hear(contacts_.find(from), now);
  }
  void HandleLinkLost(NodeId peer, const std::string& reason, Time now);
  void HandleLinkMade(NodeId peer, Time now);
  // Passed on to the role until the run has stopped.
  void HandleLinkDown(NodeId peer, const std::string& reason, Time now) {
    if (!stopped_) role_->OnLinkDown(peer, reason, now);
  }
  // `peer` may fall silent from now on.
  void HandleBye(NodeId peer) { contacts_.erase(peer); }
  // Returns true if `epoch` is newer than the last change, and records it.
  bool Advance(std::uint32_t epoch) {
    if (epoch <= epoch_) return false;
    epoch_ = epoch;
    return true;
  }
  std::uint32_t epoch() const { return epoch_; }  // of the last change that is known here
  // `peer` is lost and will be silent, or (`back`) has come back.
  void HandleChange(NodeId peer, bool back, Time now);
  // Returns true if `peer` has been silent for longer than `failure_timeout`.
  bool Suspects(NodeId peer) const {
    const auto found = contacts_.find(peer);
    return found != contacts_.end() && (found->second.suspect || found->second.lost);
  }
  // How often it has fallen silent for so long, in this process's life.
  std::uint32_t Suspicions(NodeId peer) const {
    const auto found = suspicions_.find(peer);
    return found == suspicions_.end() ? 0 : found->second;
  }
  // How long `peer` may be silent before it counts as lost.
  Time Bearable(NodeId peer) const;
  // Time since the last message from `peer`; 0 if it is not watched.
  Time Silence(NodeId peer, Time now) const;

  Time NextTimeout() const { return stopped_ ? kNever : next_beat_; }
  // Sends heartbeats that are due, and checks for silent peers.
  void HandleTimeout(Time now);

  void Exchange(Archive& archive) {
    archive(started_, beating_, stopped_, leaving_, left_, ended_round_, epoch_, next_beat_, contacts_);
  }

 private:
  // A peer whose silence counts.
  struct Contact {
    Time heard = 0;
    std::string broken = {};  // why there is no connection; empty: there is one
    bool suspect = false;
    bool lost = false;  // and reported

    void Exchange(Archive& archive) { archive(heard, broken, suspect, lost); }
  };

  void Hear(std::map<NodeId, Contact>::iterator from, Time now);
  void SayBye();
  void SendHeartbeats();
  void LookForSilence(Time now);
  bool IsDispensable(NodeId id) const;
  std::string Reason(const Contact& contact, Time silent_for) const;

  NodeState& state_;
  std::optional<Overlay>& overlay_;
  std::unique_ptr<RoleLogic>& role_;
  bool started_ = false;
  bool beating_ = false;  // heartbeats are exchanged
  bool stopped_ = false;
  bool leaving_ = false;
  bool left_ = false;
  bool ended_round_ = false;  // EndRound has reported
  std::uint32_t epoch_ = 0;
  Time next_beat_ = kNever;
  std::map<NodeId, Contact> contacts_;
  std::map<NodeId, std::uint32_t> suspicions_;  // for reports
};

}  // namespace geomx
