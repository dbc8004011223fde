// The driver's dealings with the network: who may talk with this node, what arrives and when it
// counts as arrived, and how messages leave. See driver.h.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "io/driver.h"

namespace geomx::io {
namespace {

constexpr std::size_t kWriteBytes = 256 * 1024;       // of one system call; the kernel takes less
constexpr std::size_t kChosenAhead = 16 * 1024;       // messages are chosen while less is pending
constexpr std::size_t kFlushBudget = 1024 * 1024;     // then others have their turn
constexpr std::size_t kMaxPending = 4 * 1024 * 1024;  // left the model, not taken by the socket
constexpr std::size_t kMaxHeld = 64 * 1024 * 1024;    // of one connection, not yet handled
constexpr Time kRateAge = 100 * kMillisecond;         // of a measured delivery rate

// What keeps the run together is not part of what is emulated: it leaves and arrives at once.
bool OutOfBand(Kind kind) {
  switch (kind) {
    case Kind::kHello:
    case Kind::kJoin:
    case Kind::kRoster:
    case Kind::kReady:
    case Kind::kStart:
    case Kind::kHeartbeat:
    case Kind::kBye:
    case Kind::kStop:
    case Kind::kDead: return true;
    default: return false;
  }
}

}  // namespace

// ---- connections -----------------------------------------------------------------------------

Sessions::Verdict Driver::Judge(NodeId caller) {
  if (closing_) return Verdict::kNobody;
  if (!node_) return Verdict::kNotYet;
  return node_->FindPeer(caller) != nullptr ? Verdict::kPeer : Verdict::kNobody;
}

void Driver::OnConnected(Session& session) {
  if (session.peer == kUnknownPeer) {
    const Address mine = IsWildcard(address_)
                             ? WithPort(LocalAddress(session.fd.get()), address_)
                             : address_;
    Message join;
    join.header.kind = Kind::kJoin;
    join.header.source = self_;
    join.payload =
        Payload::Copy(PackStrings({name_, std::to_string(kWireVersion), Format(mine)}));
    join.header.payload_bytes = static_cast<std::uint32_t>(join.payload.size());
    session.writer.Push(std::move(join), 0, Now());
  }
  dirty_.insert(session.peer);
  CheckReady();
}

void Driver::OnLost(Session& session, const std::string& reason) {
  if (closing_) return;
  if (node_) {
    node_->HandleLinkDown(session.peer, reason, Now());
    DrainEvents();
  } else if (!joined_) {
    join_deadline_ = kNever;
    board_.SetJoinError("the scheduler at " + join_address_ + " ended the connection (" + reason +
                        "): check that token, node and version are those of its run");
  } else {
    board_.Fail("scheduler", reason);
  }
}

void Driver::OnUnreachable(NodeId peer, const std::string& reason) {
  if (node_) {
    node_->HandleLinkDown(peer, reason, Now());
    DrainEvents();
  } else {
    join_deadline_ = kNever;
    board_.SetJoinError("cannot join the run: " + reason);
  }
}

// ---- arriving --------------------------------------------------------------------------------

void Driver::OnFrame(Session& session, Frame frame) {
  if (!node_) return BeforeTheNode(session, frame.message);
  if (frame.message.header.source != session.peer) {
    return sessions_.Close(session, "broke the protocol: speaks for another node");
  }
  if (frame.arrives == 0) return Handle(session.peer, frame.message);
  session.held += frame.message.wire_bytes();
  if (session.held > kMaxHeld) sessions_.SetReading(session, false);
  Hold({.at = frame.arrives,
        .from = session.peer,
        .session = session.id,
        .message = std::move(frame.message)});
}

// The scheduler's answer to a join comes before this node knows what it will be.
void Driver::BeforeTheNode(Session& session, const Message& message) {
  std::vector<std::byte> scratch;
  const Kind kind = message.header.kind;
  if (session.peer != kUnknownPeer || (kind != Kind::kRoster && kind != Kind::kDead)) return;
  const auto words = UnpackStrings(message.payload.Contiguous(scratch), 2);
  if (!words) return sessions_.Close(session, "a malformed answer");
  if (kind == Kind::kDead) return board_.Fail((*words)[0], (*words)[1]);
  Joined joined{.experiment = (*words)[0], .roster = {}};
  const std::string& lines = (*words)[1];
  for (std::size_t at = 0; at < lines.size();) {
    const std::size_t tab = lines.find('\t', at);
    const std::size_t end = lines.find('\n', at);
    if (end == std::string::npos || tab >= end) {
      return sessions_.Close(session, "a malformed roster");
    }
    joined.roster[lines.substr(at, tab - at)] = lines.substr(tab + 1, end - tab - 1);
    at = end + 1;
  }
  joined_ = true;
  join_deadline_ = kNever;
  board_.SetJoined(std::move(joined));
}

void Driver::Hold(Held held) {
  held.order = order_++;
  held_bytes_ += held.message.wire_bytes();
  held_bytes_max_ = std::max(held_bytes_max_, held_bytes_);
  held_.push_back(std::move(held));
  std::push_heap(held_.begin(), held_.end(), Later{});
}

void Driver::ReleaseHeld(Time now) {
  while (!held_.empty() && held_.front().at <= now) {
    std::pop_heap(held_.begin(), held_.end(), Later{});
    Held held = std::move(held_.back());
    held_.pop_back();
    const std::size_t bytes = held.message.wire_bytes();
    if (ingress_ && !held.passed_ingress) {
      held.passed_ingress = true;
      held.at = ingress_->Pass(held.from, bytes, held.at);
      if (held.at > now) {
        held_.push_back(std::move(held));
        std::push_heap(held_.begin(), held_.end(), Later{});
        continue;
      }
    }
    held_bytes_ -= bytes;
    if (Session* session = sessions_.FindById(held.session)) {
      session->held -= bytes;
      if (!session->reading && session->held < kMaxHeld / 2) sessions_.SetReading(*session, true);
    }
    Handle(held.from, held.message);
  }
}

// ---- leaving ---------------------------------------------------------------------------------

void Driver::Pump() {
  const Time now = Now();
  AdvanceShaper(now);
  if (node_) {
    for (const NodeId peer : node_->TakeDirty()) dirty_.insert(peer);
  }
  for (auto each = pacing_.begin(); each != pacing_.end();) {
    if (each->second > now) {
      ++each;
      continue;
    }
    dirty_.insert(each->first);
    each = pacing_.erase(each);
  }
  for (const NodeId peer : std::exchange(dirty_, {})) PumpPeer(peer, now);
}

void Driver::PumpPeer(NodeId peer, Time now) {
  Session* session = sessions_.Find(peer);
  if (session == nullptr) return;
  if (shaper_ && shaper_->Shapes(peer, Lane::kReliable)) {
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
      [&](NodeId peer, Lane lane) { return NextShaped(peer, lane); });
}

std::optional<Message> Driver::NextShaped(NodeId peer, Lane lane) {
  Session* session = sessions_.Find(peer);
  while (session != nullptr && session->writer.pending_bytes() <= kMaxPending) {
    auto message = node_->PollTransmit(peer, lane);
    if (!message) break;
    const Kind kind = message->header.kind;
    if (closing_ && !OutOfBand(kind)) continue;
    Count(peer, *message);
    if (!OutOfBand(kind)) return message;
    session->writer.Push(std::move(*message), 0, Now());
    dirty_.insert(peer);
  }
  return std::nullopt;
}

// A message's last byte has left the emulated network interface.
void Driver::Leave(Shaper::Sent sent) {
  trace_.Add(SpanName(sent.message, sent.peer), "send", sent.started, sent.left);
  if (sent.lost) {
    ++lost_messages_;
    return;
  }
  Session* session = sessions_.Find(sent.peer);
  if (session == nullptr) return;
  const auto& address = outlets_.at(sent.peer).address;
  if (sent.lane == Lane::kBestEffort && address && Datagrams::Fits(sent.message)) {
    datagrams_.Send(*address, sent.message, sent.arrives);
    return;
  }
  session->writer.Push(std::move(sent.message), sent.arrives, sent.left);
  dirty_.insert(sent.peer);
}

std::optional<Message> Driver::NextUnshaped(NodeId peer) {
  if (!node_ || (shaper_ && shaper_->Shapes(peer, Lane::kReliable))) return std::nullopt;
  while (auto message = node_->PollTransmit(peer, Lane::kReliable)) {
    if (closing_ && !OutOfBand(message->header.kind)) continue;
    Count(peer, *message);
    return message;
  }
  return std::nullopt;
}

void Driver::Flush(Session& session) {
  const bool shaped = shaper_ && shaper_->Shapes(session.peer, Lane::kReliable);
  const auto done = [&](const Message& message, Time started) {
    if (shaped || !node_) return;
    Outlet& outlet = outlets_[session.peer];
    const Time now = Now();
    outlet.counts.busy += now - std::max(started, outlet.busy_until);
    outlet.busy_until = now;
    if (IsData(message.header)) {
      trace_.Add(SpanName(message, session.peer), "send", started, now);
    }
  };
  std::size_t written = 0;
  while (written < kFlushBudget) {
    while (session.writer.pending_bytes() < kChosenAhead) {
      auto message = NextUnshaped(session.peer);
      if (!message) break;
      session.writer.Push(std::move(*message), 0, Now());
    }
    if (session.writer.empty()) {
      if (session.writing) sessions_.SetWriting(session, false);
      if (!shaped && node_) PumpDatagrams(session, Now());
      return;
    }
    const long taken = session.writer.Write(session.fd.get(), kWriteBytes, done);
    if (taken < 0) return sessions_.Close(session, ErrorText(errno));
    if (taken == 0) break;
    written += static_cast<std::size_t>(taken);
  }
  if (!session.writing) sessions_.SetWriting(session, true);
}

void Driver::OnWritable(Session& session) {
  Flush(session);
  dirty_.insert(session.peer);  // the model may have waited for the socket
}

// On a real network best-effort messages leave when no other is waiting, at the pace at which the
// connection to the same peer has lately delivered.
void Driver::PumpDatagrams(Session& session, Time now) {
  if (closing_) return;
  const NodeId peer = session.peer;
  Outlet& outlet = outlets_[peer];
  while (node_->HasMessage(peer, Lane::kBestEffort)) {
    if (now - outlet.pace_set >= kRateAge) {
      outlet.pacer.SetRate(DeliveryRate(session.fd.get()));
      outlet.pace_set = now;
    }
    if (!outlet.pacer.Allows(now)) {
      pacing_[peer] = outlet.pacer.NextAt();
      return;
    }
    auto message = node_->PollTransmit(peer, Lane::kBestEffort);
    Count(peer, *message);
    outlet.pacer.Spend(message->wire_bytes());
    trace_.Add(SpanName(*message, peer), "send", now, now);
    if (outlet.address && Datagrams::Fits(*message)) {
      datagrams_.Send(*outlet.address, *message, 0);
    } else {
      session.writer.Push(std::move(*message), 0, now);
      dirty_.insert(peer);
    }
  }
}

void Driver::Count(NodeId peer, const Message& message) {
  LinkCounts& counts = outlets_[peer].counts;
  if (IsData(message.header)) {
    counts.bytes += message.wire_bytes();
    ++counts.messages;
  } else {
    counts.control_bytes += message.wire_bytes();
  }
}

std::string Driver::SpanName(const Message& message, NodeId peer) const {
  const Header& header = message.header;
  const Peer* target = node_->FindPeer(peer);
  return std::string(KindName(header.kind)) + " key " + std::to_string(header.key) + " round " +
         std::to_string(header.round) + " to " + (target ? target->name : "?");
}

}  // namespace geomx::io
