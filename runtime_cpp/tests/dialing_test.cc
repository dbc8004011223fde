// Calls of a peer that has said nothing yet, when the link to it ends.
#include "io/sessions.h"

#include "tests/check.h"
#include "tests/loops.h"
#include "tests/stranger.h"

namespace geomx::io {
namespace {

constexpr NodeId kPeer = 7, kSelf = 1;

// An owner without a node.
struct Nobody final : Sessions::Handler {
  Sessions::Verdict Judge(Session&) override { return Sessions::Verdict::kNobody; }
  void OnGreeting() override {}
  void OnConnected(Session&) override {}
  void OnHeard(Session&) override {}
  void OnFrame(Session&, Frame) override {}
  std::shared_ptr<std::byte> Place(const Session&, const Header&, Time) override { return nullptr; }
  void OnWritable(Session&) override {}
  void OnLost(PeerLink&) override {}
  void OnUnreachable(NodeId, const std::string&) override {}
  void OnTurnedAway(NodeId, const std::string&, bool) override {}
  void OnRefused(const std::string&, const std::string&) override {}
};

}  // namespace

// The peer's machine may be gone without a word, and its end of a call with it: nothing else would end that.
TEST(dialing_ends_calls_with_the_link) {
  for (const bool for_good : {false, true}) {
    const Port port = Bind(kOwnHost, 0);
    Poller poller;
    Nobody owner;
    Sessions sessions(std::move(Bind(kOwnHost, 0).listener), "token", nullptr, poller, owner);
    sessions.Dial(kPeer, kSelf, "", port.address, kNever);
    Fd fd;
    const Time deadline = Now() + 20 * kSecond;
    while (!fd && Now() < deadline) {
      sessions.Tick(Now());
      for (const epoll_event& event : poller.Wait(Now() + kMillisecond)) {
        sessions.Dispatch(event.data.u64, event.events);
      }
      fd = Fd(accept4(port.listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    }
    CHECK(fd);
    const timeval patience{.tv_sec = 2, .tv_usec = 0};
    setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    Stranger silent(std::move(fd));
    for (int i = 0; i < 20; ++i) {  // the hello leaves
      for (const epoll_event& event : poller.Wait(Now() + kMillisecond)) {
        sessions.Dispatch(event.data.u64, event.events);
      }
    }
    const auto hello = silent.Hear();
    CHECK(hello && hello->header.kind == Kind::kHello);
    if (for_good) {
      sessions.CloseLink(sessions.LinkOf(kPeer), "at fault");
    } else {
      sessions.Drop(kPeer, "lost");
    }
    sessions.Sweep();
    std::byte byte{};
    CHECK_EQ(recv(silent.fd(), &byte, 1, 0), 0);  // closed
  }
}

}  // namespace geomx::io
