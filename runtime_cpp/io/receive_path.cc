// The driver's receive path: which callers are peers, what arrives, and when it counts as arrived. See
// driver.h.
#include <algorithm>
#include <utility>

#include "io/driver.h"

namespace geomx::io {
namespace {

constexpr std::size_t kMaxDelayed = 64 * 1024 * 1024;  // of one connection, not yet handled

}  // namespace

// ---- connections -----------------------------------------------------------------------------

Sessions::Verdict Driver::Judge(Session& caller) {
  if (closing_) return Verdict::kNobody;
  if (!node_) return Verdict::kNotYet;
  if (caller.peer == kUnknownPeer) {
    for (const Peer& each : node_->config().peers) {
      if (each.name == caller.name) caller.peer = each.id;
    }
  }
  const Peer* peer = node_->FindPeer(caller.peer);
  if (peer == nullptr) return Verdict::kNobody;
  return Genuine(caller, *peer) ? Verdict::kPeer : Verdict::kImpostor;
}

bool Driver::Genuine(const Session& session, const Peer& peer) const {
  return !session.tls || session.certified.name == peer.name;
}

// Datagrams to and from a peer live as long as the connection whose keys they use.
void Driver::SealDatagrams(Session& session) {
  if (session.tls) datagrams_.SetSeal(session.peer, session.tls->MakeSeal());
}

void Driver::OnConnected(Session& session) {
  if (session.tls) {
    const Peer* peer = node_ ? node_->FindPeer(session.peer) : nullptr;
    const bool right = peer ? Genuine(session, *peer) : session.certified.scheduler;
    if (!right) {
      return sessions_.Close(session, "its certificate is that of " + session.certified.name +
                                          ", and not of " + (peer ? peer->name : "a scheduler"));
    }
    if (peer != nullptr) SealDatagrams(session);
  }
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

void Driver::OnRefused(const std::string& address, const std::string& reason) {
  status_.AddRefusal(address + ": " + reason);
}

void Driver::OnLost(Session& session, const std::string& reason) {
  datagrams_.SetSeal(session.peer, nullptr);
  if (closing_) return;
  if (node_) {
    node_->HandleLinkDown(session.peer, reason, Now());
    DrainEvents();
  } else if (!joined_) {
    join_deadline_ = kNever;
    status_.SetJoinError("the scheduler at " + join_address_ + " ended the connection (" + reason +
                        "): check that token, node, version and certificate are of its run");
  } else {
    status_.Fail("scheduler", reason);
  }
}

void Driver::OnUnreachable(NodeId peer, const std::string& reason) {
  if (node_) {
    node_->HandleLinkDown(peer, reason, Now());
    DrainEvents();
  } else {
    join_deadline_ = kNever;
    status_.SetJoinError("cannot join the run: " + reason);
  }
}

// ---- arriving --------------------------------------------------------------------------------

void Driver::OnFrame(Session& session, Frame frame) {
  if (!node_) return BeforeTheNode(session, frame.message);
  Header& header = frame.message.header;
  if (header.kind == Kind::kDead && header.source == kUnknownPeer) {
    std::vector<std::byte> scratch;
    const auto words = UnpackStrings(frame.message.payload.Contiguous(scratch), 2);
    return sessions_.Close(session, words ? "it refused the connection: " + (*words)[1]
                                          : "a malformed refusal");
  }
  if (header.kind == Kind::kJoin && header.source == kUnknownPeer) header.source = session.peer;
  if (header.source != session.peer) {
    return sessions_.Close(session, "broke the protocol: speaks for another node");
  }
  if (frame.arrives == 0) return Handle(session.peer, frame.message);
  session.delayed_bytes += frame.message.wire_bytes();
  if (session.delayed_bytes > kMaxDelayed) sessions_.SetReading(session, false);
  Delay({.at = frame.arrives,
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
  if (kind == Kind::kDead && (*words)[0].empty()) {
    join_deadline_ = kNever;
    return status_.SetJoinError("the scheduler at " + join_address_ + " refused this node (" +
                               (*words)[1] +
                               "): check that token, node, version and certificate are of its run");
  }
  if (kind == Kind::kDead) return status_.Fail((*words)[0], (*words)[1]);
  Joined joined{.experiment = (*words)[0], .roster = {}};
  const std::string& lines = (*words)[1];
  for (std::size_t at = 0; at < lines.size();) {
    const std::size_t tab = lines.find('\t', at);
    const std::size_t end = lines.find('\n', at);
    if (end == std::string::npos || tab >= end) {
      return sessions_.Close(session, "a malformed roster");
    }
    const bool fresh =
        joined.roster.emplace(lines.substr(at, tab - at), lines.substr(tab + 1, end - tab - 1))
            .second;
    if (!fresh) return sessions_.Close(session, "a roster that names a node twice");
    at = end + 1;
  }
  joined_ = true;
  join_deadline_ = kNever;
  status_.SetJoined(std::move(joined));
}

void Driver::Delay(Delayed message) {
  message.order = order_++;
  delayed_bytes_ += message.message.wire_bytes();
  delayed_bytes_max_ = std::max(delayed_bytes_max_, delayed_bytes_);
  delayed_.push_back(std::move(message));
  std::push_heap(delayed_.begin(), delayed_.end(), Later{});
}

void Driver::ReleaseDelayed(Time now) {
  while (!delayed_.empty() && delayed_.front().at <= now) {
    std::pop_heap(delayed_.begin(), delayed_.end(), Later{});
    Delayed due = std::move(delayed_.back());
    delayed_.pop_back();
    const std::size_t bytes = due.message.wire_bytes();
    delayed_bytes_ -= bytes;
    if (due.session == 0) {
      datagrams_.Release(due.from, bytes);
    } else if (Session* session = sessions_.FindById(due.session)) {
      session->delayed_bytes -= bytes;
      if (!session->reading && session->delayed_bytes < kMaxDelayed / 2) sessions_.SetReading(*session, true);
    }
    Handle(due.from, due.message);
  }
}

}  // namespace geomx::io
