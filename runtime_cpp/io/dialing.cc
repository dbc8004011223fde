// Making connections: again and again, with growing pauses, until somebody answers or time is up. See
// sessions.h.
#include <algorithm>
#include <cerrno>
#include <stdexcept>

#include "io/sessions.h"

namespace geomx::io {
namespace {

constexpr Time kFirstPause = 20 * kMillisecond;
constexpr Time kLongestPause = kSecond;

std::string Tenths(Time time) {
  const Time tenths = (time + 50 * kMillisecond) / (100 * kMillisecond);
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10);
}

}  // namespace

void Sessions::Dial(NodeId peer, NodeId self, const std::string& name, const Address& address,
                    Time deadline) {
  const Time now = Now();
  Dialing& dialing = dialing_.emplace_back();
  dialing.peer = peer;
  dialing.self = self;
  dialing.name = name;
  dialing.address = address;
  dialing.began = dialing.next_try = now;
  dialing.deadline = deadline;
  dialing.pause = kFirstPause;
}

void Sessions::Try(Dialing& dialing, Time now) {
  ++dialing.tries;
  dialing.next_try = now + dialing.pause;
  dialing.pause = std::min(2 * dialing.pause, kLongestPause);
  Fd fd = Connect(dialing.address, LocalAddress(listener_.get()));
  if (!fd) {
    dialing.last_error = ErrorText(errno);
    return;
  }
  try {
    Session& session = Make(std::move(fd), Session::State::kConnecting);
    session.peer = dialing.peer;
    dialing.session = session.id;
  } catch (const std::runtime_error& error) {
    dialing.last_error = error.what();
  }
}

Sessions::Dialing* Sessions::DialingOf(const Session& session) {
  for (Dialing& each : dialing_) {
    if (each.session == session.id) return &each;
  }
  return nullptr;
}

void Sessions::FinishConnect(Session& session) {
  if (session.shaking) return Shake(session);
  Dialing* dialing = DialingOf(session);
  int error = 0;
  socklen_t length = sizeof error;
  if (getsockopt(session.fd.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
  if (error != 0 || dialing == nullptr) {
    if (dialing != nullptr) {
      dialing->session = 0;
      dialing->last_error = ErrorText(error);
    }
    return Close(session, "not connected");
  }
  if (!tls_) return Greet(session);
  session.tls = tls_->Call(session.fd.get());
  session.shaking = true;
  Shake(session);
}

// The connection stands: the first message on it.
void Sessions::Greet(Session& session) {
  const Dialing* dialing = DialingOf(session);
  if (dialing == nullptr) return Close(session, "not connected");
  Message hello;
  hello.header.kind = Kind::kHello;
  hello.header.source = dialing->self;
  const bool nameless = dialing->self != kUnknownPeer;
  hello.payload =
      Payload::Copy(nameless ? PackStrings({token_}) : PackStrings({token_, dialing->name}));
  hello.header.payload_bytes = static_cast<std::uint32_t>(hello.payload.size());
  session.writer.Push(std::move(hello), 0, Now());
  session.state = Session::State::kPeer;
  dialing_.erase(dialing_.begin() + (dialing - dialing_.data()));
  Attach(session);
}

std::string Sessions::Trying() const {
  if (dialing_.empty()) return {};
  const Dialing& dialing = dialing_.front();
  return Format(dialing.address) + " (" + std::to_string(dialing.tries) + " attempts, last: " +
         (dialing.last_error.empty() ? "no answer" : dialing.last_error) + ")";
}

void Sessions::TickDialing(Time now) {
  for (std::size_t i = 0; i < dialing_.size();) {
    Dialing& dialing = dialing_[i];
    if (dialing.deadline > now) {
      if (dialing.session == 0 && dialing.next_try <= now) Try(dialing, now);
      ++i;
      continue;
    }
    const Dialing failed = std::move(dialing);
    dialing_.erase(dialing_.begin() + static_cast<std::ptrdiff_t>(i));
    if (Session* session = FindById(failed.session)) Close(*session, "not connected");
    handler_.OnUnreachable(
        failed.peer,
        "no connection to " + Format(failed.address) + " in " + Tenths(now - failed.began) + " s (" +
            std::to_string(failed.tries) + " attempts, last: " +
            (failed.last_error.empty() ? "no answer" : failed.last_error) +
            (failed.last_error == ErrorText(EMFILE)
                 ? "): raise the number of files that this process may open (ulimit -n)"
             : failed.deadline == 0
                 ? "): check that both ends have certificates of one authority"
                 : "): check that it runs there and that TCP gets through to that port"));
  }
}

}  // namespace geomx::io
