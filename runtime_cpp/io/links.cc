// Links: the connection that carries each of them, and the end of the previous one. See sessions.h.
#include <algorithm>
#include <utility>
#include <vector>

#include "core/event.h"
#include "io/sessions.h"

namespace geomx::io {
namespace {

constexpr Time kLingerTime = 2 * kSecond;
constexpr int kLooksPerProbe = 5;
constexpr std::size_t kMostWaiting = 16'384;  // callers that are to be judged later

}  // namespace

std::string Sessions::Contradiction(LinkOutcome outcome) {
  return outcome == LinkOutcome::kForgot
             ? "messages that one of the two had received are missing: a journal was cut short or lost"
             : "it has received messages that were never sent";
}

PeerLink& Sessions::LinkOf(NodeId peer) {
  PeerLink& link = links_[peer];
  link.peer = peer;
  return link;
}

bool Sessions::Knows(NodeId peer) const {
  const auto found = links_.find(peer);
  return found != links_.end() && found->second.made;
}

Session* Sessions::Find(NodeId peer) const {
  const auto found = links_.find(peer);
  return found == links_.end() ? nullptr : found->second.session;
}

std::uint32_t Sessions::Connections(NodeId peer) const {
  const auto found = links_.find(peer);
  return found == links_.end() ? 0 : found->second.connections;
}

void Sessions::Identify(NodeId peer) {
  for (Dialing& dialing : dialing_) {
    if (dialing.peer == kUnknownPeer) dialing.peer = peer;
  }
  for (const auto& [id, session] : sessions_) {
    if (session->dialed && session->peer == kUnknownPeer) session->peer = peer;
  }
  auto link = links_.extract(kUnknownPeer);
  if (link.empty()) return;
  link.key() = link.mapped().peer = peer;
  links_.insert(std::move(link));
}

void Sessions::Drop(NodeId peer, const std::string& reason) {
  PeerLink& link = LinkOf(peer);
  EndCalls(peer, reason);
  Replace(link, false);
  link.closed = true;
  link.lost_why = reason;
  link.frames = {};
}

void Sessions::Leave(NodeId peer, const std::string& reason) {
  PeerLink& link = LinkOf(peer);
  EndCalls(peer, reason);
  Replace(link, false);
  link.closed = false;
  link.lost_at = Now();
  link.lost_why = reason;
}

void Sessions::Renew(NodeId peer) {
  const auto found = links_.find(peer);
  if (found == links_.end()) return;
  Replace(found->second, false);
  for (const auto& [id, session] : sessions_) {
    if (session->link == &found->second) session->link = nullptr;
  }
  links_.erase(found);
}

void Sessions::SetLimits(const Limits& limits) {
  // Peers may have been silent until now, for as long as a slow one kept them from starting.
  const bool counts_from_now = limits_.probe == kNever;
  limits_ = limits;
  look_at_ = limits_.probe == kNever ? kNever : 0;
  EachPeer([&](Session& session) {
    if (counts_from_now) session.heard = Now();
    TuneConnection(session.fd.get(), congestion_, limits_.kernel);
  });
}

// ---- callers ---------------------------------------------------------------------------------

void Sessions::Settle(Session& session, Verdict verdict) {
  if (verdict == Verdict::kImpostor) {
    return Refuse(session, "its certificate is that of " + session.certified.Names() +
                               ", and it calls itself " +
                               (session.name.empty() ? "node " + std::to_string(session.peer)
                                                     : session.name));
  }
  if (verdict == Verdict::kNobody) {
    return Refuse(session, session.name.empty() ? "not a peer of this node"
                                                : "its network has no node of that name");
  }
  if (verdict == Verdict::kEarly) return Refuse(session, "the run has not started yet", false);
  if (verdict == Verdict::kClosed) {
    return Refuse(session, "a run without faults.on_loss=continue takes in no members later");
  }
  if (verdict == Verdict::kTaken) return Refuse(session, "a node of that name takes part already");
  if (verdict == Verdict::kOccupied) {  // until its process is known to be gone
    return Refuse(session, "a node of that name takes part already", false);
  }
  if (verdict == Verdict::kLate) return Refuse(session, "another process has taken its place");
  if (verdict == Verdict::kPeer) return Welcome(session);
  strangers_.Remove(session.id);
  waiting_.Add(session.id, session.host);
  session.deadline = kNever;
  session.state = Session::State::kWaiting;
  if (DismissEarlier(session) > kMostWaiting) return Refuse(session, "too many callers wait", false);
  Watch(session);
}

// Only the latest call of each caller waits.
std::size_t Sessions::DismissEarlier(const Session& session) {
  std::vector<Session*> earlier;
  std::size_t waiting = 0;
  for (const auto& [id, other] : sessions_) {
    const bool waits = other->state == Session::State::kWaiting && !other->closed;
    waiting += waits ? 1 : 0;
    if (!waits || id == session.id) continue;
    if (other->peer == session.peer && other->name == session.name) earlier.push_back(other.get());
  }
  for (Session* other : earlier) Refuse(*other, "it has called again since", false);
  return waiting - earlier.size();
}

// The caller is a peer: it may continue after an earlier connection.
void Sessions::Welcome(Session& session) {
  PeerLink& link = LinkOf(session.peer);
  if (link.closed) {
    return Refuse(session, link.lost_why.starts_with(kTakenForLost)
                               ? link.lost_why
                               : "the connection with it was ended for good");
  }
  Message answer;
  answer.header.kind = Kind::kHello;
  Greeting greeting;
  handler_.OnGreeting();
  const LinkOutcome outcome = link.frames.Answer(session.greeting, greeting);
  if (outcome == LinkOutcome::kMismatch) return Refuse(session, Contradiction(outcome));
  strangers_.Remove(session.id);
  if (outcome == LinkOutcome::kLate) return Refuse(session, "it has called again since", false);
  PutGreeting(greeting, answer.header);
  const std::string proof = session.handshake->Prove(token_, Caller::kNo, answer.header);
  answer.payload = Payload::Copy(PackStrings({proof}));
  Replace(link, true);
  if (!WriteAlone(session.fd.get(), session.tls.get(), std::move(answer))) {
    return Close(session, "its hello cannot be answered");
  }
  Attach(session, link);
}

// A newer connection carries the link from now on. The caller does not know that yet and would take
// the end of this one for a loss, so it may `linger`, unread, until the caller closes it.
void Sessions::Replace(PeerLink& link, bool linger) {
  if (link.session == nullptr) return;
  Session& old = *std::exchange(link.session, nullptr);
  if (Now() - old.heard > kSecond / 2) {
    link.lost_at = old.heard;
    link.lost_why = "nothing was heard over it";
  }
  old.link = nullptr;
  if (!linger) return Close(old, "replaced by another");
  old.state = Session::State::kReplaced;
  old.deadline = Now() + kLingerTime;
  replaced_.push_back(old.id);
  Watch(old);
}

void Sessions::Attach(Session& session, PeerLink& link) {
  session.state = Session::State::kPeer;
  waiting_.Remove(session.id);
  session.handshake.reset();
  session.deadline = kNever;
  session.heard = Now();
  session.link = &link;
  link.session = &session;
  link.made = true;
  ++link.connections;
  session.reader.set_max_payload(kMaxRecordsBytes);
  session.reader.set_place([this, &session](const Header& header, Time arrives) {
    return handler_.Place(session, header, arrives);
  });
  TuneConnection(session.fd.get(), congestion_, limits_.kernel);
  Watch(session);
  ReadAgain(session);
  handler_.OnConnected(session);
}

void Sessions::CloseLink(PeerLink& link, const std::string& reason) {
  link.closed = true;
  EndCalls(link.peer, reason);
  if (link.session != nullptr) return Close(*link.session, reason);
  link.lost_why = reason;
  handler_.OnLost(link);
}

void Sessions::Recheck() {
  std::vector<std::uint64_t> waiting;
  for (const auto& [id, session] : sessions_) {
    if (session->state == Session::State::kWaiting && !session->closed) waiting.push_back(id);
  }
  std::sort(waiting.begin(), waiting.end());
  for (const std::uint64_t id : waiting) {
    Session& session = *sessions_.at(id);
    if (!session.closed) Settle(session, handler_.Judge(session));
  }
}

// ---- time ------------------------------------------------------------------------------------

// If nothing arrives from a caller, it may receive nothing either: closes the connection, so that
// it calls again.
void Sessions::TickSilent(Time now) {
  look_at_ = now + limits_.probe / kLooksPerProbe;
  std::vector<Session*> silent;
  EachPeer([&](Session& session) {
    if (session.dialed || !session.reading || session.heard + limits_.silence > now) return;
    silent.push_back(&session);
  });
  for (Session* session : silent) Close(*session, "silence");
}

void Sessions::TickReplaced(Time now) {
  while (!replaced_.empty()) {
    Session* oldest = FindById(replaced_.front());
    if (oldest != nullptr && oldest->deadline > now) return;
    if (oldest != nullptr) Close(*oldest, "replaced by another");
    replaced_.pop_front();
  }
}

}  // namespace geomx::io
