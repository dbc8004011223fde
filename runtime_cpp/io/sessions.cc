#include "io/sessions.h"

#include <sys/resource.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "core/event.h"
#include "core/member_list.h"

namespace geomx::io {
namespace {

constexpr std::uint64_t kListener = 16;  // smaller ids are the owner's
constexpr Time kHelloTime = 8 * kSecond;  // TLS, hello and proof, over paths that are long or lose packets
constexpr int kAcceptsPerEvent = 64;
constexpr Time kAcceptPause = 100 * kMillisecond;
constexpr std::size_t kReadBudget = 1024 * 1024;  // then other connections get their turn

// The reason why no further connection can be accepted.
std::string NoDescriptors() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return "too many open files: this process may have " + std::to_string(limit.rlim_cur) +
         " (ulimit -n)";
}

}  // namespace

Sessions::Sessions(Fd listener, std::string token, std::unique_ptr<Tls> tls, Poller& poller,
                   Handler& handler)
    : listener_(std::move(listener)),
      token_(std::move(token)),
      tls_(std::move(tls)),
      poller_(poller),
      handler_(handler),
      next_id_(kListener + 1),
      jitter_(std::random_device()()),
      mark_(std::random_device()() | 1) {
  poller_.Add(listener_.get(), kListener, EPOLLIN);
}

Session& Sessions::Make(Fd fd, Session::State state) {
  auto session = std::make_unique<Session>();
  session->id = next_id_++;
  session->fd = std::move(fd);
  session->state = state;
  Session& made = *session;
  made.interest = state == Session::State::kConnecting ? EPOLLOUT : EPOLLIN;
  poller_.Add(made.fd.get(), made.id, made.interest);
  sessions_.emplace(made.id, std::move(session));
  return made;
}

Session* Sessions::FindById(std::uint64_t id) {
  const auto found = sessions_.find(id);
  return found == sessions_.end() || found->second->closed ? nullptr : found->second.get();
}

// ---- readiness -------------------------------------------------------------------------------

void Sessions::Watch(Session& session) {
  if (session.shaking) return;
  std::uint32_t interest = 0;
  if (session.state == Session::State::kWaiting || session.state == Session::State::kReplaced) {
    interest = EPOLLRDHUP;
  } else {
    if (session.reading) interest |= EPOLLIN;
    if (session.writing) interest |= EPOLLOUT;
  }
  if (IsCut(session.peer)) interest = 0;
  if (interest == session.interest || session.closed) return;
  session.interest = interest;
  poller_.Change(session.fd.get(), session.id, interest);
}

void Sessions::SetReading(Session& session, bool on) {
  session.reading = on;
  Watch(session);
  if (on) ReadAgain(session);
}

void Sessions::SetWriting(Session& session, bool on) {
  session.writing = on;
  Watch(session);
}

bool Sessions::Dispatch(std::uint64_t id, std::uint32_t events) {
  if (id == kListener) {
    Accept();
    return true;
  }
  if (id < kListener) return false;
  Session* session = FindById(id);
  if (session == nullptr) return true;
  if (session->state == Session::State::kConnecting) {
    FinishConnect(*session);
    return true;
  }
  if (session->shaking) {
    Shake(*session);
    return true;
  }
  if (session->state == Session::State::kWaiting || session->state == Session::State::kReplaced) {
    Close(*session, "connection closed");
    return true;
  }
  // A broken connection is readable: the error comes out of read(), after what was received.
  const bool broken = (events & (EPOLLERR | EPOLLHUP)) != 0;
  if (IsCut(session->peer)) {  // ignored; a closed one would be reported without end
    if (broken) Close(*session, "connection reset");
    return true;
  }
  if ((events & EPOLLIN) != 0 || broken) Read(*session);
  const bool carries = session->state == Session::State::kPeer;
  if ((events & EPOLLOUT) != 0 && !session->closed && carries) handler_.OnWritable(*session);
  if (broken && !session->closed && !session->reading) Close(*session, "connection reset");
  return true;
}

// ---- strangers -------------------------------------------------------------------------------

// No descriptor is left: makes room, and pauses to let other processes do the same.
void Sessions::PauseAccepting() {
  // Either group may be a flood; the other one's callers need not go for it.
  const Strangers& some = waiting_.size() > strangers_.size() ? waiting_ : strangers_;
  if (!some.empty()) Refuse(*sessions_.at(some.Victim("")), NoDescriptors(), false);
  accept_at_ = Now() + kAcceptPause;
  poller_.Change(listener_.get(), kListener, 0);
}

void Sessions::Accept() {
  for (int i = 0; i < kAcceptsPerEvent; ++i) {
    Address caller;
    caller.length = sizeof caller.storage;
    auto* from = reinterpret_cast<sockaddr*>(&caller.storage);
    Fd fd(accept4(listener_.get(), from, &caller.length, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd) {
      if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM) return;
      return PauseAccepting();
    }
    const std::string host = HostOf(caller);
    if (strangers_.Full(host)) {
      Refuse(*sessions_.at(strangers_.Victim(host)), "too many strangers", false);
    }
    Session* made = nullptr;
    try {
      made = &Make(std::move(fd), Session::State::kStranger);
    } catch (const std::runtime_error& error) {
      ++refused_;
      handler_.OnRefused(Format(caller), error.what());
      return PauseAccepting();
    }
    Session& session = *made;
    session.reader.set_max_payload(kHelloBytes);
    session.deadline = Now() + kHelloTime;
    session.address = Format(caller);
    session.host = host;
    strangers_.Add(session.id, host);
    if (tls_) {
      session.tls = tls_->Answer(session.fd.get());
      session.shaking = true;
    }
  }
}

// Continues a TLS handshake, at either end.
void Sessions::Shake(Session& session) {
  strangers_.Advance(session.id, Strangers::Said::kSomething);
  const TlsStream::Step step = session.tls->Handshake();
  switch (step) {
    case TlsStream::Step::kWantsRead:
    case TlsStream::Step::kWantsWrite: {
      const std::uint32_t interest = step == TlsStream::Step::kWantsRead ? EPOLLIN : EPOLLOUT;
      if (interest == session.interest) return;
      session.interest = interest;
      return poller_.Change(session.fd.get(), session.id, interest);
    }
    case TlsStream::Step::kLost:
    case TlsStream::Step::kRefused: {
      const std::string reason = session.tls->error();
      if (!session.dialed) return Close(session, reason);
      // The same certificate would fail again: calling again is useless.
      return Failed(session, reason,
                    step == TlsStream::Step::kRefused ? Dialing::Answer::kCertificate
                                                      : Dialing::Answer::kNone);
    }
    case TlsStream::Step::kDone: break;
  }
  session.shaking = false;
  strangers_.Advance(session.id, Strangers::Said::kHello);
  session.certified = session.tls->Peer();
  if (session.state == Session::State::kConnecting) return Greet(session);
  Watch(session);
  ReadAgain(session);
}

void Sessions::Refuse(Session& session, const std::string& reason, bool useless) {
  if (!session.closed && !session.shaking) {
    Message message;
    message.header.kind = Kind::kDead;
    message.header.source = kUnknownPeer;
    message.header.round = useless ? 1 : 0;
    message.payload = Payload::Copy(PackStrings({"", reason}));
    WriteAlone(session.fd.get(), session.tls.get(), std::move(message));
    // Closing a connection with unread bytes resets it, and the reason may not arrive.
    Receive(session, scratch_, false);
  }
  if (useless && !session.closed && session.state == Session::State::kWaiting) {
    ++refused_;  // it called before this node knew its peers
    handler_.OnRefused(session.address, reason);
  }
  Close(session, reason);
}

void Sessions::StopListening() {
  poller_.Remove(listener_.get());
  listener_.Reset();
  accept_at_ = kNever;
  dialing_.clear();
}

// ---- reading ---------------------------------------------------------------------------------

// Bytes that TLS has already decrypted do not make the socket readable.
void Sessions::ReadAgain(const Session& session) {
  if (session.tls && !session.closed && !IsCut(session.peer)) again_.insert(session.id);
}

// Reads into `room` and, with `ahead`, further bytes into the scratch buffer.
ssize_t Sessions::Receive(Session& session, std::span<std::byte> room, bool ahead) {
  if (session.tls) return session.tls->Read(room);
  const iovec pieces[2] = {{room.data(), room.size()}, {scratch_.data(), scratch_.size()}};
  return readv(session.fd.get(), pieces, ahead ? 2 : 1);
}

void Sessions::Read(Session& session) {
  std::size_t budget = kReadBudget;
  while (budget > 0 && session.reading && !session.closed) {
    // Bytes after a hello must stay in the socket until the caller is accepted.
    const bool ahead = session.state == Session::State::kPeer;
    const std::span<std::byte> room = session.reader.Room();
    const ssize_t got = Receive(session, room, ahead);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) {
      const std::string reason = got == 0 ? "connection closed" : ErrorOf(session);
      return session.state == Session::State::kGreeting ? HungUp(session, reason)
                                                        : Close(session, reason);
    }
    const auto bytes = static_cast<std::size_t>(got);
    session.heard = Now();
    if (session.state == Session::State::kStranger) {
      strangers_.Advance(session.id, Strangers::Said::kSomething);
    }
    if (session.state == Session::State::kPeer) handler_.OnHeard(session);
    const bool drained = !session.tls && bytes < room.size() + (ahead ? scratch_.size() : 0);
    const std::size_t direct = std::min(bytes, room.size());
    Fill(session, direct);
    std::span<const std::byte> rest = std::span(scratch_).first(bytes - direct);
    while (!rest.empty() && !session.closed) {
      const std::span<std::byte> next = session.reader.Room();
      const std::size_t count = std::min(next.size(), rest.size());
      std::memcpy(next.data(), rest.data(), count);
      rest = rest.subspan(count);
      Fill(session, count);
    }
    if (drained || session.state == Session::State::kWaiting ||
        session.state == Session::State::kReplaced) {
      return;
    }
    budget -= std::min(budget, bytes);
  }
  if (session.reading) ReadAgain(session);
}

void Sessions::Fill(Session& session, std::size_t bytes) {
  switch (session.reader.Filled(bytes)) {
    case FrameReader::Outcome::kMore: return;
    case FrameReader::Outcome::kError: return Garbage(session);
    case FrameReader::Outcome::kFrame: break;
  }
  Frame frame = session.reader.Take();
  if (session.state == Session::State::kStranger) {
    return session.handshake ? Proven(session, frame) : Hello(session, frame);
  }
  if (session.state == Session::State::kGreeting) return Answered(session, frame);
  switch (session.link->frames.Take(frame)) {
    case FrameLink::Arrival::kMismatch:
      return CloseLink(*session.link, std::string(kBrokeProtocol) +
                                          "has received messages that were never sent");
    case FrameLink::Arrival::kRepeat: return;
    case FrameLink::Arrival::kNew: break;
  }
  if (frame.message.header.kind == Kind::kClosing) {
    return CloseLink(*session.link, WhyClosing(frame.message));
  }
  handler_.OnFrame(session, std::move(frame));
}

// The reason that a peer gives which closes its connections, if it gives one.
std::string Sessions::WhyClosing(const Message& closing) {
  std::vector<std::byte> scratch;
  auto words = UnpackStrings(closing.payload.Contiguous(scratch), 1);
  if (!words || !IsLine(words->front())) return "connection closed";
  Shorten(words->front());
  return std::string(kFailed) + words->front();
}

// The other end sends no messages, or of another version: calling again is useless.
void Sessions::Garbage(Session& session) {
  const std::string reason = session.reader.error();
  switch (session.state) {
    case Session::State::kPeer: return CloseLink(*session.link, reason);
    case Session::State::kGreeting: return Failed(session, reason, Dialing::Answer::kHungUp);
    default: return Refuse(session, reason);
  }
}

// ---- ending ----------------------------------------------------------------------------------

void Sessions::Close(Session& session, const std::string& reason) {
  if (session.closed) return;
  session.closed = true;
  poller_.Remove(session.fd.get());
  session.fd.Reset();
  closed_.push_back(session.id);
  again_.erase(session.id);
  waiting_.Remove(session.id);
  if (strangers_.Remove(session.id)) {
    ++refused_;
    handler_.OnRefused(session.address, reason);
  }
  if (session.link == nullptr || session.link->session != &session) return;
  PeerLink& link = *session.link;
  link.session = nullptr;
  link.lost_at = Now();
  link.lost_why = reason;
  if (Dialing* dialing = DialingOf(link.peer)) {
    dialing->pause = kFirstPause;
    dialing->next_try = link.lost_at + static_cast<Time>(jitter_() % kFirstPause);
  }
  handler_.OnLost(link);
}

Time Sessions::NextDeadline() const {
  if (!again_.empty()) return 0;
  Time next = accept_at_;
  for (const auto& [peer, outage] : cuts_) next = std::min(next, outage.until);
  if (!strangers_.empty()) next = std::min(next, sessions_.at(strangers_.oldest())->deadline);
  if (!replaced_.empty()) {
    const auto oldest = sessions_.find(replaced_.front());
    next = oldest == sessions_.end() ? 0 : std::min(next, oldest->second->deadline);
  }
  for (const Dialing& dialing : dialing_) {
    const bool carried = Find(dialing.peer) != nullptr;
    if (!carried && dialing.calls.size() < kMostCalls) next = std::min(next, dialing.next_try);
    if (!Knows(dialing.peer)) next = std::min(next, dialing.deadline);
    for (const std::uint64_t id : dialing.calls) {
      const auto found = sessions_.find(id);
      if (found != sessions_.end()) next = std::min(next, found->second->deadline);
    }
  }
  return std::min(next, look_at_);
}

void Sessions::Tick(Time now) {
  if (accept_at_ <= now) {
    accept_at_ = kNever;
    poller_.Change(listener_.get(), kListener, EPOLLIN);
  }
  while (!strangers_.empty()) {
    Session& oldest = *sessions_.at(strangers_.oldest());
    if (oldest.deadline > now) break;
    Refuse(oldest, "no hello", false);
  }
  for (const std::uint64_t id : std::exchange(again_, {})) {
    Session* session = FindById(id);
    const bool read = session != nullptr && session->state != Session::State::kWaiting &&
                      session->state != Session::State::kReplaced;
    if (read) Read(*session);
  }
  TickCuts(now);
  TickReplaced(now);
  if (look_at_ <= now) TickSilent(now);
  TickDialing(now);
}

void Sessions::Sweep() {
  for (const std::uint64_t id : closed_) sessions_.erase(id);
  closed_.clear();
}

}  // namespace geomx::io
