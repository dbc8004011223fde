// Dialing peers, repeatedly and with growing pauses, for as long as a link lasts. See sessions.h.
//
// Calls overlap: over a long or lossy path an answer may take several pauses, and a call that began
// before a path recovered may never be answered.
#include <algorithm>
#include <cerrno>
#include <stdexcept>
#include <utility>

#include "io/sessions.h"

namespace geomx::io {
namespace {

constexpr Time kCallTime = 10 * kSecond;  // TCP, TLS, and the answer to a hello
constexpr int kMostHungUp = 5;
constexpr Time kHungUpTime = 10 * kSecond;  // a flood of other callers may displace this one for so long

std::string Tenths(Time time) {
  const Time tenths = (time + 50 * kMillisecond) / (100 * kMillisecond);
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10);
}

}  // namespace

void Sessions::Dial(NodeId peer, NodeId self, const std::string& name, const Address& address,
                    Time deadline, bool late) {
  const Time now = Now();
  Dialing& dialing = dialing_.emplace_back();
  dialing.peer = peer;
  dialing.self = self;
  dialing.name = name;
  dialing.address = address;
  dialing.began = dialing.next_try = now;
  dialing.deadline = deadline;
  dialing.pause = kFirstPause;
  dialing.late = late;
}

// Peers are called while no connection carries the link, or while that is silent.
bool Sessions::IsCallDue(const Dialing& dialing, Time now) const {
  if (dialing.next_try > now || dialing.calls.size() >= kMostCalls) return false;
  const auto link = links_.find(dialing.peer);
  const Session* session = link == links_.end() ? nullptr : link->second.session;
  if (session == nullptr) return true;
  return limits_.probe != kNever && session->reading && now - session->heard >= limits_.probe;
}

// Pauses double, and each is drawn between half and all of that, so that nodes that lost a peer at
// the same time do not all call again at the same time.
void Sessions::Try(Dialing& dialing, Time now) {
  ++dialing.tries;
  const Time half = std::max<Time>(dialing.pause / 2, 1);
  dialing.next_try = now + half + static_cast<Time>(jitter_() % static_cast<std::uint64_t>(half));
  dialing.pause = std::min(2 * dialing.pause, limits_.redial);
  if (IsCut(dialing.peer)) {
    dialing.last_error = "no answer";
    dialing.refused = false;
    return;
  }
  Fd fd = Connect(dialing.address, LocalAddress(listener_.get()));
  if (!fd) {
    dialing.last_error = ErrorText(errno);
    dialing.refused = false;
    return;
  }
  try {
    Session& session = Make(std::move(fd), Session::State::kConnecting);
    session.peer = dialing.peer;
    session.dialed = true;
    session.deadline = now + kCallTime;
    dialing.calls.push_back(session.id);
  } catch (const std::runtime_error& error) {
    dialing.last_error = error.what();
  }
}

Sessions::Dialing* Sessions::DialingOf(NodeId peer) {
  for (Dialing& each : dialing_) {
    if (each.peer == peer) return &each;
  }
  return nullptr;
}

// Makes no more calls of `peer`, and ends those under way: one that was answered later would carry a link that is
// closed, and one to a machine that is gone would stay open.
void Sessions::EndCalls(NodeId peer, const std::string& reason) {
  for (Dialing& dialing : dialing_) {
    if (dialing.peer != peer) continue;
    for (const std::uint64_t id : std::exchange(dialing.calls, {})) {
      if (Session* call = FindById(id)) Close(*call, reason);
    }
  }
  std::erase_if(dialing_, [peer](const Dialing& dialing) { return dialing.peer == peer; });
}

// A call has failed. A refusal counts only if no other call was answered.
void Sessions::Failed(Session& session, const std::string& reason, Dialing::Answer final) {
  if (Find(session.peer) != nullptr) final = Dialing::Answer::kNone;
  if (Dialing* dialing = DialingOf(session.peer)) {
    std::erase(dialing->calls, session.id);
    dialing->last_error = reason;
    dialing->refused = false;
    if (final != Dialing::Answer::kNone) dialing->final = final;
  }
  Close(session, reason);
}

// The other end has closed a call without an answer to its hello. Once may be chance; if it happens
// every time, the peer probably expects something else, such as TLS.
void Sessions::HungUp(Session& session, const std::string& reason) {
  Dialing* dialing = DialingOf(session.peer);
  const bool enough = dialing != nullptr && ++dialing->hung_up >= kMostHungUp &&
                      Now() - dialing->began >= kHungUpTime && !Knows(session.peer);
  Failed(session, reason, enough ? Dialing::Answer::kHungUp : Dialing::Answer::kNone);
}

void Sessions::FinishConnect(Session& session) {
  if (session.shaking) return Shake(session);
  int error = 0;
  socklen_t length = sizeof error;
  if (getsockopt(session.fd.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
  if (error != 0) return Failed(session, ErrorText(error));
  if (!tls_) return Greet(session);
  session.tls = tls_->Call(session.fd.get());
  session.shaking = true;
  Shake(session);
}

// The call was answered: the connection carries the link, unless a later one does.
void Sessions::Carry(Session& session, const Greeting& answer) {
  PeerLink& link = LinkOf(session.peer);
  const LinkOutcome outcome = link.frames.Answered(answer);
  if (outcome == LinkOutcome::kLate) return Failed(session, "it has answered a later call");
  if (outcome == LinkOutcome::kMismatch || outcome == LinkOutcome::kForgot) {
    return Failed(session, Contradiction(outcome), Dialing::Answer::kHungUp);
  }
  Replace(link, false);
  if (Dialing* dialing = DialingOf(session.peer)) {
    std::erase(dialing->calls, session.id);
    dialing->pause = kFirstPause;
    dialing->hung_up = 0;
    // Calls that have not sent a hello are not needed; any other one will carry the link if it is
    // answered.
    for (const std::uint64_t id : std::vector(dialing->calls)) {
      Session* other = FindById(id);
      if (other == nullptr || other->state == Session::State::kGreeting) continue;
      Failed(*other, "another call was answered");
    }
    dialing->last_error.clear();
  }
  Attach(session, link);
}

std::string Sessions::Trying() const {
  for (const Dialing& dialing : dialing_) {
    if (Knows(dialing.peer)) continue;
    return Format(dialing.address) + " (" + std::to_string(dialing.tries) + " attempts, last: " +
           (dialing.last_error.empty() ? "no answer" : dialing.last_error) + ")";
  }
  return {};
}

void Sessions::TickDialing(Time now) {
  for (std::size_t i = 0; i < dialing_.size();) {
    Dialing& dialing = dialing_[i];
    for (const std::uint64_t id : std::vector(dialing.calls)) {
      Session* call = FindById(id);
      if (call == nullptr) {
        std::erase(dialing.calls, id);
      } else if (call->deadline <= now) {
        Failed(*call, "no answer");
      }
    }
    const bool in_vain = !Knows(dialing.peer) && dialing.deadline <= now;
    if (!in_vain && dialing.final == Dialing::Answer::kNone) {
      if (IsCallDue(dialing, now)) Try(dialing, now);
      ++i;
      continue;
    }
    const Dialing failed = std::move(dialing);
    dialing_.erase(dialing_.begin() + static_cast<std::ptrdiff_t>(i));
    GiveUp(failed, now);
  }
}

void Sessions::GiveUp(const Dialing& failed, Time now) {
  for (const std::uint64_t id : failed.calls) {
    if (Session* session = FindById(id)) Close(*session, "not connected");
  }
  const auto final = failed.final;
  if (final == Dialing::Answer::kRefused || final == Dialing::Answer::kHungUp) {
    return handler_.OnTurnedAway(failed.peer, failed.last_error, final == Dialing::Answer::kRefused);
  }
  handler_.OnUnreachable(
      failed.peer,
      (failed.refused ? "refused by " : "no connection to ") + Format(failed.address) + " in " +
          Tenths(now - failed.began) + " s (" +
          std::to_string(failed.tries) + " attempts, last: " +
          (failed.last_error.empty() ? "no answer" : failed.last_error) +
          (failed.last_error == ErrorText(EMFILE)
               ? "): raise the number of files that this process may open (ulimit -n)"
           : final == Dialing::Answer::kCertificate
               ? "): check that both ends have certificates of one authority"
           : failed.refused
               ? ")"
               : "): check that it runs there and that TCP gets through to that port"));
}

}  // namespace geomx::io
