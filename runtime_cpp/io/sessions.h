// Connections: accepting them, making them, finding out who calls, and noticing that they end.
//
// A caller must say hello with the run's token and its node id before anything else, within a few
// seconds; until then it is a stranger. There are at most 256 strangers, the oldest of them goes when
// another comes, and whatever a stranger sends beyond a correct hello ends its connection and nothing
// else. A caller that comes before this node knows its peers is kept unread until it does.
//
// With TLS nothing is said or heard before both ends have shown their certificates; a caller is then
// only whom its certificate names.
//
// What is read is handed up as frames; what is written is the owner's business (session.writer). One
// thread. A session that was closed stays in memory until Sweep().
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/message.h"
#include "io/poller.h"
#include "io/socket.h"
#include "io/tcp.h"

namespace geomx::io {

// Whom a node dials before anybody has told it its scheduler's id.
inline constexpr NodeId kUnknownPeer = UINT32_MAX;

struct Session {
  enum class State { kConnecting, kStranger, kWaiting, kPeer };

  std::uint64_t id = 0;
  Fd fd;
  State state = State::kStranger;
  NodeId peer = kUnknownPeer;
  std::string address;       // of a caller
  std::string name;          // of one that does not know its number, and is kUnknownPeer
  std::unique_ptr<TlsStream> tls;
  bool shaking = false;      // hands, as TLS does first
  Certified certified;       // with TLS: whom the other end's certificate names
  FrameReader reader{0};
  FrameWriter writer;
  Time deadline = kNever;    // of a stranger's hello
  std::size_t delayed_bytes = 0;  // of its messages that wait to be handled
  bool reading = true;
  bool writing = false;      // wants to know when the socket takes more
  bool closed = false;
  std::uint32_t interest = 0;
};

class Sessions {
 public:
  enum class Verdict { kPeer, kNotYet, kNobody, kImpostor };

  // The owner. Calls come from inside Dispatch, Tick and Close.
  class Handler {
   public:
    virtual ~Handler() = default;
    virtual Verdict Judge(Session& caller) = 0;  // finds the number of one that gives its name
    virtual void OnConnected(Session& session) = 0;  // with a peer, whoever dialed
    virtual void OnFrame(Session& session, Frame frame) = 0;
    virtual void OnWritable(Session& session) = 0;
    virtual void OnLost(Session& session, const std::string& reason) = 0;  // a peer's connection
    virtual void OnUnreachable(NodeId peer, const std::string& reason) = 0;  // dialed in vain
    virtual void OnRefused(const std::string& address, const std::string& reason) = 0;  // a stranger
  };

  // `tls`: of all connections; none: they are in the clear.
  Sessions(Fd listener, std::string token, std::unique_ptr<Tls> tls, Poller& poller,
           Handler& handler);

  // Calls `peer`, again and again until `deadline`, and says hello as node `self`; by its name, if
  // it does not know its number.
  void Dial(NodeId peer, NodeId self, const std::string& name, const Address& address,
            Time deadline);
  // Of connections to peers from now on.
  void SetCongestion(std::string name) { congestion_ = std::move(name); }
  // The peer that was dialed as unknown is `peer`.
  void Identify(NodeId peer);
  // Asks again about callers whose verdict was kNotYet.
  void Recheck();
  void StopListening();

  // What is known of the way to a peer that is being dialed; empty if none is.
  std::string Trying() const;

  bool Knows(NodeId peer) const { return peers_.contains(peer); }
  Session* Find(NodeId peer);
  Session* FindById(std::uint64_t id);
  void Close(Session& session, const std::string& reason);
  void SetReading(Session& session, bool on);
  void SetWriting(Session& session, bool on);
  template <class Visit>
  void EachPeer(Visit visit) {
    for (const auto& [peer, session] : peers_) visit(*session);
  }

  // Events of the poller that concern connections. False if `id` is not one of ours.
  bool Dispatch(std::uint64_t id, std::uint32_t events);
  Time NextDeadline() const;
  void Tick(Time now);
  void Sweep();

  std::uint64_t refused() const { return refused_; }

 private:
  struct Dialing {
    NodeId peer = kUnknownPeer;
    NodeId self = 0;
    std::string name;
    Address address;
    Time began = 0;
    Time deadline = 0;
    Time next_try = 0;
    Time pause = 0;
    int tries = 0;
    std::uint64_t session = 0;  // 0: none under way
    std::string last_error;
  };

  Session& Make(Fd fd, Session::State state);  // throws std::runtime_error if it cannot be watched
  void Accept();
  void PauseAccepting();
  void Try(Dialing& dialing, Time now);        // dialing.cc, with the next two
  void FinishConnect(Session& session);
  void Greet(Session& session);
  Dialing* DialingOf(const Session& session);
  void TickDialing(Time now);
  void Shake(Session& session);
  void ReadAgain(const Session& session);
  ssize_t Receive(Session& session, std::span<std::byte> room, bool ahead);
  void Read(Session& session);
  void Fill(Session& session, std::size_t bytes);
  void Hello(Session& session, const Frame& frame);
  void Settle(Session& session, Verdict verdict);
  void Attach(Session& session);
  void Refuse(Session& session, const std::string& reason);  // and tell it why
  void Watch(Session& session);

  Fd listener_;
  std::string token_, congestion_ = "bbr";
  std::unique_ptr<Tls> tls_;
  Poller& poller_;
  Handler& handler_;
  std::uint64_t next_id_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Session>> sessions_;
  std::map<NodeId, Session*> peers_;
  std::set<std::uint64_t> strangers_;  // in the order in which they came
  std::vector<Dialing> dialing_;
  std::vector<std::uint64_t> closed_;
  std::set<std::uint64_t> again_;      // may hold bytes of which the poller does not know
  Time accept_at_ = kNever;            // listening is suspended until then
  std::uint64_t refused_ = 0;
  std::array<std::byte, 16 * 1024> scratch_;
};

}  // namespace geomx::io
