// Connections: accepting, dialing, identifying callers, and reconnecting.
//
// A caller says hello with its node id and proves that it knows the run's token, within a few seconds;
// until then it is a stranger:
//
//     calling                                    called
//     hello (greeting, nonce, name)   ---->
//                                     <----      challenge (nonce)
//     proof                           ---->
//                                     <----      hello (greeting, proof), or dead (reason)
//
// See proof.h; strangers.h says how many strangers there may be, and which go when there are more.
// Anything else from a stranger closes its connection and has no other effect. A caller that is
// proven before this node knows its peers is kept unread until it does. A refusal says whether
// calling again makes sense.
//
// A PeerLink outlasts its connections (core/link.h). The end that dialed calls again for as long as
// the run lasts: when a connection breaks, when no answer arrives, and in parallel to a silent
// connection, as TCP itself would retry at ever longer intervals. The newest connection that was
// answered carries the link.
//
// With TLS no message is exchanged before both ends have verified certificates; a caller can then
// only be the node that its certificate names.
//
// Received frames go to the owner, which also does the sending (PeerLink::frames). Single-threaded.
// A closed session stays in memory until Sweep().
#pragma once

#include <array>
#include <cerrno>
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
#include "io/proof.h"
#include "io/socket.h"
#include "io/strangers.h"
#include "io/tcp.h"

namespace geomx::io {

// The id under which a node dials its scheduler before it knows the scheduler's id.
inline constexpr NodeId kUnknownPeer = UINT32_MAX;

struct Session;

// The link to one peer, over all its connections.
struct PeerLink {
  NodeId peer = kUnknownPeer;
  FrameLink frames;
  Session* session = nullptr;  // the connection that carries it; null: none at present
  bool made = false;           // there has been a connection
  std::uint32_t connections = 0;  // of this process
  bool closed = false;         // for good
  std::uint32_t recorded = 0;  // messages received by the other end, as of the journal
  std::size_t delayed_bytes = 0;  // of messages that wait to be handled, from all its connections
  Time lost_at = 0;            // when the last one ended
  std::string lost_why;
};

struct Session {
  // kConnecting: TCP, TLS. kGreeting: waits for the answer to its hello. kStranger: waits for the
  // caller's hello. kWaiting: to be judged. kPeer: carries a link. kReplaced: a newer one does; its
  // caller will close it.
  enum class State { kConnecting, kGreeting, kStranger, kWaiting, kPeer, kReplaced };

  std::uint64_t id = 0;
  Fd fd;
  State state = State::kStranger;
  NodeId peer = kUnknownPeer;
  std::string address;       // of a caller, as is the next
  std::string host;
  std::string name;          // of a caller that is kUnknownPeer, as it does not know its id
  std::unique_ptr<TlsStream> tls;
  bool shaking = false;      // in the TLS handshake
  Certified certified;       // with TLS: the other end's certified identity
  FrameReader reader{0};
  PeerLink* link = nullptr;  // the link that it carries
  Greeting greeting;         // of a caller
  std::unique_ptr<Handshake> handshake;  // until the connection carries a link
  bool dialed = false;       // by this node
  Time heard = 0;            // when bytes last arrived
  Time deadline = kNever;    // of a hello, or of an answer to it
  bool reading = true;
  bool writing = false;      // to be told when the socket is writable
  Time limit_at = 0;         // when to adapt the kernel's unsent data next
  bool closed = false;
  std::uint32_t interest = 0;
};

class Sessions {
 public:
  // kTaken: another process of that name takes part. kOccupied: the same, for now. kLate: a newer
  // process has replaced it.
  enum class Verdict { kPeer, kNotYet, kNobody, kImpostor, kTaken, kOccupied, kLate, kEarly, kClosed };

  // The silence of a connection after which its caller makes another (probe), and after which the
  // called end closes it (silence); the longest time between two calls (redial); the silence after
  // which the kernel gives up (kernel).
  struct Limits {
    Time probe = kNever, silence = kNever, redial = kSecond, kernel = kNever;
  };

  // The owner. Called from within Dispatch, Tick and Close.
  class Handler {
   public:
    virtual ~Handler() = default;
    // Looks up the id of a caller that gives its name, and counts its incarnations.
    virtual Verdict Judge(Session& caller) = 0;
    virtual void OnGreeting() = 0;  // before a hello with the count of received messages leaves
    virtual void OnConnected(Session& session) = 0;  // it carries a link
    virtual void OnHeard(Session& session) = 0;      // bytes have arrived
    virtual void OnFrame(Session& session, Frame frame) = 0;
    // The place for the payload of a message that begins to arrive, or null.
    virtual std::shared_ptr<std::byte> Place(const Session& session, const Header& header, Time arrives) = 0;
    virtual void OnWritable(Session& session) = 0;
    // The connection that carried the link has ended; for good, if the link is closed.
    virtual void OnLost(PeerLink& link) = 0;
    virtual void OnUnreachable(NodeId peer, const std::string& reason) = 0;  // not reached before the deadline
    // The other end has refused this node: with a message (`told`), or by closing the connection.
    virtual void OnTurnedAway(NodeId peer, const std::string& reason, bool told) = 0;
    virtual void OnRefused(const std::string& address, const std::string& reason) = 0;  // a stranger
  };

  // `tls`: for all connections; null: no encryption.
  Sessions(Fd listener, std::string token, std::unique_ptr<Tls> tls, Poller& poller,
           Handler& handler);

  // Calls `peer` and sends a hello as node `self`, or as `name` if this node does not know its id.
  // The first answer must arrive before `deadline`; after that the peer is called whenever there is
  // no connection. `late`: only a run that has started may answer.
  void Dial(NodeId peer, NodeId self, const std::string& name, const Address& address,
            Time deadline, bool late = false);
  // Sets the congestion control of new connections to peers.
  void SetCongestion(std::string name) { congestion_ = std::move(name); }
  void SetLimits(const Limits& limits);
  // Sets the id of the peer that was dialed as kUnknownPeer.
  void Identify(NodeId peer);
  // Ends the link with a process that is lost, for good; the owner knows, and is not told.
  void Drop(NodeId peer, const std::string& reason);
  // Ends the connection with a process of `peer`, and calls of it; the link goes on with another process.
  void Leave(NodeId peer, const std::string& reason);
  // Begins a new link to `peer`, whose process was replaced.
  void Renew(NodeId peer);
  // Judges callers again whose verdict was kNotYet.
  void Recheck();
  // Callers from this host are dismissed last, as a member is there.
  void Reserve(const Address& member) {
    strangers_.Reserve(HostOf(member));
    waiting_.Reserve(HostOf(member));
  }
  void StopListening();

  // The last error of a peer that is being dialed; empty if there is none.
  std::string Trying() const;

  // Returns true if there has been a connection to `peer`.
  bool Knows(NodeId peer) const;
  // Returns the connection that carries the link to `peer`, or null.
  Session* Find(NodeId peer) const;
  std::uint32_t Connections(NodeId peer) const;  // that have carried the link so far
  Session* FindById(std::uint64_t id);
  PeerLink& LinkOf(NodeId peer);
  // Stops all traffic between this node and `peer` until Heal is called as often as Cut. Connections stay
  // open and hold their data, and no call is made or answered (disturbances.cc). An open connection is
  // silent for longer (core/link.h); `round_trip` is its path's.
  void Cut(NodeId peer);
  void Heal(NodeId peer, Time round_trip);
  bool IsCut(NodeId peer) const { return !cuts_.empty() && cuts_.contains(peer); }
  // Breaks the connection that carries the link, for both ends.
  void Reset(NodeId peer);
  // Why reading from a connection or writing to it has failed, by errno.
  static std::string ErrorOf(const Session& session) {
    return errno == EPROTO && session.tls ? session.tls->error() : ErrorText(errno);
  }
  // Closes a connection; if it carried a link, another will be made.
  void Close(Session& session, const std::string& reason);
  // Closes a link for good, as its peer has announced to close it, or is at fault; see OnLost.
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

  // Handles the poller's events of connections. Returns false if `id` is not one of them.
  bool Dispatch(std::uint64_t id, std::uint32_t events);
  Time NextDeadline() const;
  void Tick(Time now);
  void Sweep();

  std::uint64_t refused() const { return refused_; }

 private:
  static constexpr Time kFirstPause = 20 * kMillisecond;
  static constexpr std::uint32_t kHelloBytes = 4096;
  static constexpr std::size_t kMostCalls = 8;  // of one peer at a time

  struct Outage {
    int cuts = 0;           // calls of Cut without Heal
    Time since = 0;
    Time until = kNever;    // when traffic passes again
  };

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
    std::vector<std::uint64_t> calls;  // under way
    enum class Answer { kNone, kRefused, kHungUp, kCertificate };
    bool late = false;
    bool refused = false;              // the last call was answered with a refusal
    Answer final = Answer::kNone;      // an answer after which calling again is useless
    int hung_up = 0;                   // calls that the other end closed without an answer
    std::string last_error;
  };

  Session& Make(Fd fd, Session::State state);  // throws std::runtime_error if it cannot be watched
  void Accept();
  void PauseAccepting();
  void Try(Dialing& dialing, Time now);        // dialing.cc, with the next two
  void FinishConnect(Session& session);
  void Greet(Session& session);                // greeting.cc, with the next
  void Answered(Session& session, const Frame& frame);
  void Carry(Session& session, const Greeting& answer);
  void Failed(Session& session, const std::string& reason,
              Dialing::Answer final = Dialing::Answer::kNone);
  void HungUp(Session& session, const std::string& reason);
  Dialing* DialingOf(NodeId peer);
  void EndCalls(NodeId peer, const std::string& reason);
  bool IsCallDue(const Dialing& dialing, Time now) const;
  void TickDialing(Time now);
  void GiveUp(const Dialing& failed, Time now);
  void Shake(Session& session);
  void ReadAgain(const Session& session);
  ssize_t Receive(Session& session, std::span<std::byte> room, bool ahead);
  void Read(Session& session);
  void Fill(Session& session, std::size_t bytes);
  static std::string WhyClosing(const Message& closing);
  void Garbage(Session& session);
  void Hello(Session& session, const Frame& frame);  // greeting.cc, with the next three
  void Proven(Session& session, const Frame& frame);
  bool Say(Session& session, Kind kind, std::initializer_list<std::string_view> strings);
  static std::string ChannelOf(const Session& session);
  static std::string Contradiction(LinkOutcome outcome);
  void Settle(Session& session, Verdict verdict);
  void Welcome(Session& session);
  void Replace(PeerLink& link, bool linger);
  // Returns how many callers wait.
  std::size_t DismissEarlier(const Session& session);
  void Attach(Session& session, PeerLink& link);
  // Closes a session and sends the reason. `useless`: calling again is useless.
  void Refuse(Session& session, const std::string& reason, bool useless = true);
  void TickCuts(Time now);  // disturbances.cc
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
  std::map<NodeId, Outage> cuts_;
  Limits limits_;
  Time look_at_ = kNever;  // when to look for silent connections next
  std::minstd_rand jitter_;
  const std::uint32_t mark_;  // of this process, in its calls; not 0
  Strangers strangers_;
  Strangers waiting_;  // those that are proven, and to be judged later: they go if descriptors run out
  std::vector<Dialing> dialing_;
  std::vector<std::uint64_t> closed_;
  std::deque<std::uint64_t> replaced_;  // by deadline
  std::set<std::uint64_t> again_;      // may hold decrypted bytes that the poller does not see
  Time accept_at_ = kNever;            // listening is suspended until then
  std::uint64_t refused_ = 0;
  std::array<std::byte, 16 * 1024> scratch_;
};

}  // namespace geomx::io
