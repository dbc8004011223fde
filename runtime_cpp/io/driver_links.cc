// The driver's part in links: loss and recovery, acknowledgements, and their end. See driver.h.
#include <algorithm>
#include <string>
#include <utility>

#include "io/driver.h"

namespace geomx::io {
namespace {

constexpr Time kCloseTime = kSecond / 2;
constexpr Time kLongestFarewell = 30 * kSecond;       // after a run has stopped
constexpr Time kLongestProbe = 3 * kSecond / 2;
constexpr std::size_t kLastWords = 64 * 1024;
constexpr std::size_t kUnacknowledged = 1024 * 1024;  // bytes received before an acknowledgement is due
constexpr Time kAcknowledgeAfter = 20 * kMillisecond;

}  // namespace

// ---- peers ---------------------------------------------------------------------------------------

void Driver::SetPeers(const NodeConfig& config, const std::map<NodeId, Address>& addresses) {
  self_ = config.id;
  name_ = config.name;
  watch_.SetPatience(config.failure_timeout);
  // What was said to the scheduler before this node knew its id.
  if (const auto join = outlets_.extract(kUnknownPeer); config.scheduler && !join.empty()) {
    outlets_[*config.scheduler].counts = join.mapped().counts;
  }
  for (const Peer& peer : config.peers) {
    Outlet& outlet = outlets_[peer.id];
    const auto found = addresses.find(peer.id);
    if (found != addresses.end()) {
      outlet.address = found->second;
      sessions_.Reserve(found->second);
    }
    const auto incarnation = roster_incarnations_.find(peer.name);
    if (incarnation != roster_incarnations_.end()) incarnations_[peer.id] = incarnation->second;
  }
}

void Driver::CallPeers() {
  const NodeConfig& config = node_->config();
  for (const NodeId peer : PeersToCall()) {
    if (sessions_.LinkOf(peer).closed) continue;
    const auto& address = outlets_.at(peer).address;
    if (!address && config.continues) continue;  // it will be announced
    if (!address) throw std::invalid_argument(name_ + ": the roster lacks a peer");
    sessions_.LinkOf(peer).frames.SetIncarnation(roster_incarnations_[name_]);
    sessions_.Dial(peer, self_, name_, *address, connect_deadline_);
  }
  sessions_.Recheck();
  CheckReady();
}

// ---- loss and recovery -----------------------------------------------------------------------

// Writes a line to the log if there was a connection before.
void Driver::TellMade(PeerLink& link) {
  const Time lost_at = std::exchange(link.lost_at, 0);
  if (lost_at == 0 || closing_) return;
  const Time away = (Now() - lost_at) / (10 * kMillisecond);  // in hundredths of a second
  const std::string hundredths = std::to_string(100 + away % 100).substr(1);
  Tell(Severity::kInfo, name_ + " is connected to " + NameOf(link.peer) + " again, " + std::to_string(away / 100) +
         "." + hundredths + " s after the last connection ended: " + link.lost_why);
}

void Driver::OnLost(PeerLink& link) {
  datagrams_.SetSeal(link.peer, nullptr);
  if (closing_) return;
  if (!node_ && link.closed) return CannotJoin(link.lost_why, false);
  if (!node_) {
    scheduler_lost_ = Now();
    scheduler_lost_why_ = link.lost_why;
    return;
  }
  if (link.closed) {
    node_->HandleLinkDown(link.peer, link.lost_why, Now());
  } else {
    node_->HandleLinkLost(link.peer, link.lost_why, Now());
  }
  DrainEvents();
}

// The link to `peer` is down for good: this node does not connect to it again.
void Driver::GiveUp(NodeId peer, const std::string& reason) {
  OnLinkDown(peer, reason);
  node_->HandleLinkDown(peer, reason, Now());
  DrainEvents();
}

void Driver::OnUnreachable(NodeId peer, const std::string& reason) {
  if (node_) return GiveUp(peer, reason);
  join_deadline_ = kNever;
  status_.SetJoinError("cannot join the run: " + reason);
}

void Driver::OnTurnedAway(NodeId peer, const std::string& reason, bool told) {
  if (!node_) return CannotJoin(reason, told);
  if (told && reason.starts_with(kTakenForLost)) {  // training goes on without this process
    status_.Fail(name_, reason);
    return FailCallbacks();
  }
  GiveUp(peer, (told ? "it refused the connection: " : "") + reason);
}

void Driver::CannotJoin(const std::string& reason, bool told) {
  if (joined_) return status_.Fail("scheduler", reason);
  join_deadline_ = kNever;
  status_.SetJoinError("the scheduler at " + join_address_ +
                       (told ? " refused this node (" : " ended the connection (") + reason +
                       "): check that token, node, version and certificate are of its run");
}

// ---- acknowledgements ------------------------------------------------------------------------

// Acknowledgements mostly travel with other messages. Without any, a heartbeat carries them: after
// a moment, or when the sender keeps many bytes.
void Driver::Acknowledge(PeerLink& link) {
  const std::size_t bytes = link.frames.unacknowledged();
  if (bytes == 0) return;
  if (bytes >= kUnacknowledged) return SayArrived(link);
  if (acknowledge_at_ == kNever) acknowledge_at_ = Now() + kAcknowledgeAfter;
}

void Driver::AcknowledgeAll() {
  acknowledge_at_ = kNever;
  sessions_.EachLink([&](PeerLink& link) {
    if (link.frames.unacknowledged() > 0) SayArrived(link);
  });
}

void Driver::SayArrived(PeerLink& link) {
  if (!link.frames.empty() || link.session == nullptr) return;  // queued messages carry it
  Message beat;
  beat.header.kind = Kind::kHeartbeat;
  beat.header.source = self_;
  Count(link.peer, beat);
  link.frames.Push(std::move(beat), 0, Now());
  dirty_.insert(link.peer);
}

// ---- silence, and the end --------------------------------------------------------------------

void Driver::BeginClose(std::string failed) {
  if (closing_) return;
  failed_ = std::move(failed);
  closing_ = true;
  close_deadline_ = Now() + kCloseTime;
  if (node_ && node_->stopped()) {  // disconnected peers must learn of it too
    const NodeConfig& config = node_->config();
    const Time bearable = std::max(config.failure_timeout, config.patience);
    // Peers that still wait for a node that was restarted after the end call at once.
    const Time longest = restarted_at_the_end_ ? 2 * config.redial : kLongestFarewell;
    close_deadline_ = Now() + std::max(kCloseTime, std::min(bearable, longest));
  }
  sessions_.EachPeer([&](Session& session) { dirty_.insert(session.peer); });
}

bool Driver::Flushed() {
  const bool stopped = node_ && node_->stopped();
  bool flushed = dirty_.empty();
  sessions_.EachLink([&](PeerLink& link) {
    if (link.closed || !link.made) return;
    if (link.session == nullptr && !stopped) return;
    flushed = flushed && (stopped ? link.frames.settled() : link.frames.empty());
  });
  return flushed;
}

// Silence counts only once peers send heartbeats (core/membership.h).
void Driver::WatchLinks(bool running) {
  const NodeConfig& config = node_->config();
  Sessions::Limits limits{.redial = config.redial, .kernel = config.failure_timeout};
  if (running && config.heartbeat_interval > 0) {
    limits.probe = std::max(3 * config.heartbeat_interval,
                            std::min(config.failure_timeout / 4, kLongestProbe));
    limits.silence = config.failure_timeout;
  }
  sessions_.SetLimits(limits);
}

Time Driver::RoundTrip(NodeId peer) const {
  if (shaper_ && shaper_->Shapes(peer, Lane::kReliable)) return shaper_->RoundTrip(peer);
  const Session* session = sessions_.Find(peer);
  return session != nullptr ? RoundTripOf(session->fd.get()) : 0;
}

std::string Driver::NameOf(NodeId peer) const {
  const Peer* known = node_ ? node_->FindPeer(peer) : nullptr;
  return known ? known->name : "the scheduler at " + join_address_;
}

// Tells the other end not to wait for another connection.
void Driver::SayClosing(Session& session) {
  Message closing = failed_.empty() ? ControlMessage(Kind::kClosing) : ControlMessage(Kind::kClosing, {failed_});
  closing.header.source = self_;
  closing.header.payload_bytes = static_cast<std::uint32_t>(closing.payload.size());
  session.link->frames.Push(std::move(closing), 0, Now());
  session.link->frames.Write(session.fd.get(), session.tls.get(), kLastWords,
                             [](const Message&, Time) {});
  sessions_.Close(session, "closed here");
}

}  // namespace geomx::io
