// The driver's send path: messages leave through the model of the network or directly into a
// socket. See driver.h.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "core/out_of_band.h"
#include "io/driver.h"
#include "net/hold.h"

namespace geomx::io {
namespace {

constexpr std::size_t kWriteBytes = 256 * 1024;       // of one system call; the kernel takes less
constexpr std::size_t kChosenAhead = 16 * 1024;       // messages are chosen while less is pending
constexpr std::size_t kChosenForStandby = 1024 * 1024;  // the same where they wait for a standby
constexpr std::size_t kFlushBudget = 1024 * 1024;     // then other connections get their turn
constexpr Time kLimitPause = 20 * kMillisecond;       // between two looks at a full connection
constexpr Time kLongestHold = 5 * kMillisecond;       // between two looks at a queue
constexpr std::size_t kMaxPending = 4 * 1024 * 1024;  // bytes that left the model, but are not in the socket

}  // namespace

bool Driver::BypassesModel(const Message& message) const {
  return IsOutOfBand(message.header.kind, node_->config().role == Role::kScheduler);
}

void Driver::Pump() {
  for (auto each = pacing_.begin(); each != pacing_.end();) {
    if (each->second > Now()) {
      ++each;
      continue;
    }
    dirty_.insert(each->first);
    each = pacing_.erase(each);
  }
  // Sending may find a connection broken, and the node then queues more messages.
  for (std::vector<NodeId> queued;;) {
    const Time now = Now();
    AdvanceShaper(now);
    if (node_) {
      Replicate();
      node_->TakeDirty(queued);
      dirty_.insert(queued.begin(), queued.end());
    }
    if (dirty_.empty()) return;
    for (const NodeId peer : std::exchange(dirty_, {})) PumpPeer(peer, now);
  }
}

void Driver::PumpPeer(NodeId peer, Time now) {
  Session* session = sessions_.Find(peer);
  if (session == nullptr) return;
  if (shaper_ && shaper_->Shapes(peer, Lane::kReliable)) {
    // Heartbeats bypass the model while it is busy: an emulated outage is not silence.
    while (!sessions_.IsCut(peer) && node_->HasHeartbeat(peer)) {
      auto beat = node_->PollTransmit(peer, Lane::kReliable);
      Count(peer, *beat);
      session->link->frames.Push(std::move(*beat), 0, now);
    }
    for (const Lane lane : {Lane::kReliable, Lane::kBestEffort}) {
      if (!closing_ && !shaper_->Idle(peer, lane)) continue;
      if (auto message = NextShaped(peer, lane)) {
        shaper_->Start(peer, lane, std::move(*message), now);
      }
    }
  }
  Flush(*session);
}

void Driver::AdvanceShaper(Time now) {
  if (!shaper_) return;
  shaper_->Advance(
      now, [&](Shaper::Sent sent) { Leave(std::move(sent)); },
      [&](NodeId peer, Lane lane) {
        auto message = NextShaped(peer, lane);
        if (!message && lane == Lane::kReliable) dirty_.insert(peer);  // datagrams may have waited
        return message;
      });
}

std::optional<Message> Driver::NextShaped(NodeId peer, Lane lane) {
  Session* session = sessions_.Find(peer);
  if (sessions_.IsCut(peer)) return std::nullopt;
  if (lane == Lane::kBestEffort && !closing_ && node_->HasMessage(peer, lane)) {
    if (const Time until = shaper_->HeldUntil(peer, Now()); until > 0) {
      if (until != kNever) pacing_[peer] = until;
      return std::nullopt;
    }
  }
  while (session != nullptr && session->link->frames.pending_bytes() <= kMaxPending) {
    auto message = node_->PollTransmit(peer, lane);
    if (!message) break;
    const bool at_once = BypassesModel(*message);
    const bool dropped = closing_ && !at_once;
    node_->Took(peer, lane, *message,
                dropped ? Fate::kDropped : at_once ? Fate::kLinked : Fate::kUnderWay);
    if (dropped) continue;
    Count(peer, *message);
    if (!at_once) return message;
    session->link->frames.Push(std::move(*message), 0, Now());
    dirty_.insert(peer);
  }
  return std::nullopt;
}

// A message's last byte has left the emulated network interface.
void Driver::Leave(Shaper::Sent sent) {
  NoteSent(sent.message, sent.peer, sent.started, sent.left);
  const bool datagram = sent.lane == Lane::kBestEffort;
  PeerLink& link = sessions_.LinkOf(sent.peer);
  const auto& address = outlets_.at(sent.peer).address;
  const bool lost = sent.lost || (datagram && sessions_.IsCut(sent.peer));
  const bool alone = datagram && address && Datagrams::Fits(sent.message) && !link.frames.gated();
  const bool dropped = lost || link.closed || sent.outdated;
  node_->Left(sent.peer, sent.lane, dropped || alone ? Fate::kDropped : Fate::kLinked);
  lost_messages_ += lost ? 1 : 0;
  if (dropped) return;
  if (alone) {
    node_->Commit();
    datagrams_.Send(sent.peer, *address, sent.message, sent.arrives);
    return;
  }
  link.frames.Push(std::move(sent.message), sent.arrives, sent.left);
  dirty_.insert(sent.peer);
}

std::optional<Message> Driver::NextUnshaped(NodeId peer) {
  if (!node_ || (shaper_ && shaper_->Shapes(peer, Lane::kReliable))) return std::nullopt;
  while (auto message = node_->PollTransmit(peer, Lane::kReliable)) {
    const bool dropped = closing_ && !BypassesModel(*message);
    node_->Took(peer, Lane::kReliable, *message, dropped ? Fate::kDropped : Fate::kLinked);
    if (dropped) continue;
    Count(peer, *message);
    if (IsData(message->header)) {
      Outlet& outlet = outlets_[peer];
      const auto before = std::exchange(outlet.priority, message->header.priority);
      outlet.ordered |= before.has_value() && before != outlet.priority;
    }
    return message;
  }
  return std::nullopt;
}

// Returns true if writing has to wait, as messages differ in priority and the path is busy for longer than
// net/hold.h allows.
bool Driver::Holds(Session& session) {
  if (!outlets_[session.peer].ordered) return false;
  const Time queued = BusyFor(session.fd.get());
  if (queued <= net::kQueuedAhead) return false;
  const Time until = Now() + std::clamp(queued - net::kQueuedAhead, kMillisecond / 4, kLongestHold);
  Time& at = pacing_.try_emplace(session.peer, until).first->second;
  at = std::min(at, until);
  return true;
}

void Driver::Flush(Session& session) {
  if (sessions_.IsCut(session.peer)) return;
  FrameLink& frames = session.link->frames;
  const bool shaped = shaper_ && shaper_->Shapes(session.peer, Lane::kReliable);
  const auto done = [&](const Message& message, Time started) {
    if (shaped || !node_) return;
    Outlet& outlet = outlets_[session.peer];
    const Time now = Now();
    outlet.counts.busy += now - std::max(started, outlet.busy_until);
    outlet.busy_until = now;
    if (!BypassesModel(message)) NoteSent(message, session.peer, started, now);
  };
  std::size_t written = 0;
  while (written < kFlushBudget) {
    while (frames.pending_bytes() < (frames.gated() ? kChosenForStandby : kChosenAhead) ||
           (frames.gated() && node_->HasHeartbeat(session.peer))) {
      auto message = NextUnshaped(session.peer);
      if (!message) break;
      frames.Push(std::move(*message), 0, Now());
    }
    if (frames.blocked()) {
      if (session.writing) sessions_.SetWriting(session, false);
      if (!shaped && node_ && frames.empty()) PumpDatagrams(session, Now());
      return;
    }
    if (node_ && !shaped && Holds(session)) {
      if (session.writing) sessions_.SetWriting(session, false);
      return;
    }
    if (node_ && !frames.gated()) node_->Commit();
    const long taken =
        frames.Write(session.fd.get(), session.tls.get(), kWriteBytes, done);
    if (taken < 0) return sessions_.Close(session, Sessions::ErrorOf(session));
    if (taken == 0) {
      if (const Time now = Now(); session.limit_at <= now) {
        session.limit_at = now + kLimitPause;
        LimitUnsent(session.fd.get());
      }
      break;
    }
    written += static_cast<std::size_t>(taken);
  }
  if (!session.writing) sessions_.SetWriting(session, true);
}

void Driver::OnWritable(Session& session) {
  Flush(session);
  dirty_.insert(session.peer);  // the model may have waited for the socket
}

// On a real network best-effort messages leave when no reliable message is waiting, here or in a
// queue of the network, and paced (net/pacer.h).
void Driver::PumpDatagrams(Session& session, Time now) {
  const NodeId peer = session.peer;
  if (closing_ || !node_->HasMessage(peer, Lane::kBestEffort)) return;
  if (session.link->frames.gated() && !node_->replicator()->settled()) return;
  Outlet& outlet = outlets_[peer];
  const Progress progress = ProgressOf(session.fd.get());
  if (progress.standing > 0.0) {
    const double left_s = progress.standing / std::max(progress.delivered, net::Pacer::kSlowest);
    pacing_[peer] = now + std::clamp(Nanoseconds(left_s), kMillisecond, net::Pacer::kAge);
    return;
  }
  while (node_->HasMessage(peer, Lane::kBestEffort)) {
    if (!outlet.pacer.Allows(now, [&] { return progress.delivered; })) {
      pacing_[peer] = outlet.pacer.NextAt();
      return;
    }
    auto message = node_->PollTransmit(peer, Lane::kBestEffort);
    Count(peer, *message);
    outlet.pacer.Spend(message->wire_bytes());
    NoteSent(*message, peer, now, now);
    const bool alone = outlet.address && Datagrams::Fits(*message);
    node_->Took(peer, Lane::kBestEffort, *message, alone ? Fate::kDropped : Fate::kLinked);
    if (alone) {
      node_->Commit();
      datagrams_.Send(peer, *outlet.address, *message, 0);
    } else {
      session.link->frames.Push(std::move(*message), 0, now);
      dirty_.insert(peer);
    }
  }
}

void Driver::Count(NodeId peer, const Message& message) {
  LinkCounts& counts = outlets_[peer].counts;
  if (IsData(message.header)) {
    counts.data[static_cast<int>(DirectionOf(message.header))].Add(message.wire_bytes());
  } else {
    counts.control_bytes += message.wire_bytes();
  }
}

void Driver::NoteSent(const Message& message, NodeId peer, Time started, Time left) {
  const Header& header = message.header;
  if (message.queued_us > 0 && header.slice + 1 == header.slices && IsData(header)) {
    LinkCounts::Values& values = outlets_[peer].counts.values[static_cast<int>(DirectionOf(header))];
    ++values.count;
    values.time += kMicrosecond * (Micros(left) - message.queued_us);
  }
  if (trace_.Full()) return;
  const Peer* target = node_->FindPeer(peer);
  trace_.Add({.category = "send",
              .key = header.key,
              .round = header.round,
              .kind = header.kind,
              .peer = target ? target->name : "?",
              .channel = header.channel,
              .shard = header.shard,
              .bytes = static_cast<std::uint32_t>(message.wire_bytes()),
              .start = started,
              .duration = left - started});
}

}  // namespace geomx::io
