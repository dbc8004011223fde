// Connections: accepting them, making them, finding out who calls, and making them again when they end.
//
// A caller must say hello with the run's token and its node id before anything else, within a few
// seconds; until then it is a stranger. There are at most 256 strangers, the oldest of them goes when
// another comes, and whatever a stranger sends beyond a correct hello ends its connection and nothing
// else. A caller that comes before this node knows its peers is kept unread until it does. The answer
// to a hello is a hello, after which messages may follow; or a refusal, which says whether there is any
// use in calling again.
//
// A PeerLink is what lasts: its messages go over whichever connection carries it (core/link.h). The end
// that dialed calls again for as long as the run lasts: when a connection breaks, when an answer does
// not come, and beside a connection over which nothing is heard, as TCP itself would wait ever longer
// before it tried again. The newest connection that was answered carries the link.
//
// With TLS nothing is said or heard before both ends have shown their certificates; a caller is then
// only whom its certificate names.
//
// What is read is handed up as frames; what is written is the owner's business (PeerLink::frames). One
// thread. A session that was closed stays in memory until Sweep().
#pragma once

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/message.h"
#include "io/poller.h"
#include "io/socket.h"
#include "io/tcp.h"

namespace geomx::io {

// What a node dials before it has been told its scheduler's id.
inline constexpr NodeId kUnknownPeer = UINT32_MAX;

struct Session;

// The way to one peer, over all connections that there are.
struct PeerLink {
  NodeId peer = kUnknownPeer;
  FrameLink frames;
  Session* session = nullptr;  // that carries it; null: none at present
  bool made = false;           // there has been one
  bool closed = false;         // there will not be another
  std::uint32_t recorded = 0;  // messages that the other end has received, as the journal knows
  Time lost_at = 0;            // when the last one ended
  std::string lost_why;
};

struct Session {
  // kConnecting: TCP, TLS. kGreeting: the answer to its hello is due. kStranger: its hello is. kWaiting:
  // to be judged. kPeer: it carries a link. kReplaced: another does; its caller will end it.
  enum class State { kConnecting, kGreeting, kStranger, kWaiting, kPeer, kReplaced };

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
  PeerLink* link = nullptr;  // that it carries
  Greeting greeting;         // of a caller
  bool dialed = false;       // by this node
  Time heard = 0;            // when bytes came last
  Time deadline = kNever;    // of a hello, or of an answer to it
  std::size_t delayed_bytes = 0;  // of its messages that wait to be handled
  bool reading = true;
  bool writing = false;      // wants to know when the socket takes more
  bool closed = false;
  std::uint32_t interest = 0;
};

class Sessions {
 public:
  // kTaken: a process of that name takes part. kLate: it was replaced by another.
  enum class Verdict { kPeer, kNotYet, kNobody, kImpostor, kTaken, kLate };

  // How long nothing may be heard over a connection until its caller makes another (probe), and until
  // the called end closes it (silence); how long calls are apart at most (redial); after how much silence
  // the kernel is to act (kernel).
  struct Limits {
    Time probe = kNever, silence = kNever, redial = kSecond, kernel = kNever;
  };

  // The owner. Calls come from inside Dispatch, Tick and Close.
  class Handler {
   public:
    virtual ~Handler() = default;
    // Finds the number of a caller that gives its name, and counts its incarnations.
    virtual Verdict Judge(Session& caller) = 0;
    virtual void OnGreeting() = 0;  // a hello is to leave, which says what has been received
    virtual void OnConnected(Session& session) = 0;  // it carries a link
    virtual void OnHeard(Session& session) = 0;      // bytes have come over it
    virtual void OnFrame(Session& session, Frame frame) = 0;
    virtual void OnWritable(Session& session) = 0;
    // No connection carries the link any more; none ever will, if it is closed.
    virtual void OnLost(PeerLink& link) = 0;
    virtual void OnUnreachable(NodeId peer, const std::string& reason) = 0;  // dialed in vain
    // The other end does not want this node; as it said itself, or it hung up without a word.
    virtual void OnTurnedAway(NodeId peer, const std::string& reason, bool told) = 0;
    virtual void OnRefused(const std::string& address, const std::string& reason) = 0;  // a stranger
  };

  // `tls`: of all connections; none: they are in the clear.
  Sessions(Fd listener, std::string token, std::unique_ptr<Tls> tls, Poller& poller,
           Handler& handler);

  // Calls `peer` and says hello as node `self`; by its name, if it does not know its number. The first
  // answer must come before `deadline`; after that it is called whenever there is no connection.
  void Dial(NodeId peer, NodeId self, const std::string& name, const Address& address,
            Time deadline);
  // Of connections to peers from now on.
  void SetCongestion(std::string name) { congestion_ = std::move(name); }
  void SetLimits(const Limits& limits);
  // The peer that was dialed as unknown is `peer`.
  void Identify(NodeId peer);
  // Forgets what was exchanged with a process that `peer`'s present one replaces.
  void Renew(NodeId peer);
  // Asks again about callers whose verdict was kNotYet.
  void Recheck();
  void StopListening();

  // What is known of the way to a peer that is being dialed; empty if none is.
  std::string Trying() const;

  // Whether there has been a connection to `peer`.
  bool Knows(NodeId peer) const;
  // The connection that carries the link to `peer`, if there is one.
  Session* Find(NodeId peer) const;
  Session* FindById(std::uint64_t id);
  PeerLink& LinkOf(NodeId peer);
  // Nothing passes between this node and `peer` until as many calls of Heal. Connections are not told:
  // what they carry waits, and no call is made or answered (disturbances.cc).
  void Cut(NodeId peer);
  void Heal(NodeId peer);
  bool IsCut(NodeId peer) const { return !cuts_.empty() && cuts_.contains(peer); }
  // Breaks the connection that carries the link, for both ends.
  void Reset(NodeId peer);
  // Ends a connection; another will be made where it carried a link.
  void Close(Session& session, const std::string& reason);
  // Ends a link for good, as its peer said that it closes, or is at fault; see OnLost.
  void CloseLink(PeerLink& link, const std::string& reason);
  void SetReading(Session& session, bool on);
  void SetWriting(Session& session, bool on);
  template <class Visit>
  void EachPeer(Visit visit) {
    for (auto& [peer, link] : links_) {
      if (link.session != nullptr) visit(*link.session);
    }
  }
  template <class Visit>
  void EachLink(Visit visit) {
    for (auto& [peer, link] : links_) visit(link);
  }

  // Events of the poller that concern connections. False if `id` is not one of ours.
  bool Dispatch(std::uint64_t id, std::uint32_t events);
  Time NextDeadline() const;
  void Tick(Time now);
  void Sweep();

  std::uint64_t refused() const { return refused_; }

 private:
  static constexpr Time kFirstPause = 20 * kMillisecond;
  static constexpr std::uint32_t kHelloBytes = 4096;
  static constexpr std::size_t kMostCalls = 8;  // of one peer at a time

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
    std::vector<std::uint64_t> calls;  // that are under way
    enum class Answer { kNone, kRefused, kHungUp, kCertificate };
    Answer final = Answer::kNone;      // that makes further calls useless
    int hung_up = 0;                   // calls that ended without a word
    std::string last_error;
  };

  Session& Make(Fd fd, Session::State state);  // throws std::runtime_error if it cannot be watched
  void Accept();
  void PauseAccepting();
  void Try(Dialing& dialing, Time now);        // dialing.cc, with the next two
  void FinishConnect(Session& session);
  void Greet(Session& session);
  void Answered(Session& session, const Frame& frame);
  void Failed(Session& session, const std::string& reason,
              Dialing::Answer final = Dialing::Answer::kNone);
  void HungUp(Session& session, const std::string& reason);
  Dialing* DialingOf(NodeId peer);
  bool IsCallDue(const Dialing& dialing, Time now) const;
  void TickDialing(Time now);
  void GiveUp(const Dialing& failed, Time now);
  void Shake(Session& session);
  void ReadAgain(const Session& session);
  ssize_t Receive(Session& session, std::span<std::byte> room, bool ahead);
  void Read(Session& session);
  void Fill(Session& session, std::size_t bytes);
  void Garbage(Session& session);
  void Hello(Session& session, const Frame& frame);
  static std::string Contradiction(LinkOutcome outcome);
  void Settle(Session& session, Verdict verdict);
  void Welcome(Session& session);
  void Replace(PeerLink& link, bool linger);
  void DismissEarlier(const Session& session);
  void Attach(Session& session, PeerLink& link);
  // And tells it why. `useless`: there is no use in calling again.
  void Refuse(Session& session, const std::string& reason, bool useless = true);
  void TickSilent(Time now);
  void TickReplaced(Time now);
  void Watch(Session& session);

  Fd listener_;
  std::string token_, congestion_ = "bbr";
  std::unique_ptr<Tls> tls_;
  Poller& poller_;
  Handler& handler_;
  std::uint64_t next_id_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Session>> sessions_;
  std::map<NodeId, PeerLink> links_;
  std::map<NodeId, int> cuts_;  // how many there are, by peer
  Limits limits_;
  Time look_at_ = kNever;  // for connections that are silent; now and then, as bytes come all the time
  std::minstd_rand jitter_;
  std::set<std::uint64_t> strangers_;  // in the order in which they came
  std::vector<Dialing> dialing_;
  std::vector<std::uint64_t> closed_;
  std::deque<std::uint64_t> replaced_;  // by deadline
  std::set<std::uint64_t> again_;      // may hold bytes of which the poller does not know
  Time accept_at_ = kNever;            // listening is suspended until then
  std::uint64_t refused_ = 0;
  std::array<std::byte, 16 * 1024> scratch_;
};

}  // namespace geomx::io
