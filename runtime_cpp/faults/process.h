// One process of a member: the driver of a node in virtual time.
//
// It implements the rules of the live driver (io/driver.h, io/sessions.h, io/dialing.cc, io/recovery.cc) over
// the connections of faults/network.h instead of sockets: it joins through the scheduler, dials and redials
// its peers, accepts or refuses callers by their incarnation, carries messages over links that outlive
// connections, records a journal, and continues from the journal of its predecessor.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/recorded_node.h"
#include "core/replay.h"
#include "faults/experiment.h"
#include "faults/network.h"

namespace geomx::faults {

inline constexpr NodeId kScheduler = 0;

// The journal of a node, which outlives the node's processes.
struct Journal final : JournalOut {
  void Add(std::span<const std::byte> body, const Payload& payload) override {
    records.emplace_back(std::vector<std::byte>(body.begin(), body.end()), payload);
  }
  void Commit() override { committed = records.size(); }
  // Keeps all committed records, and the fraction `written` of the others. Returns true if some are lost.
  bool Crash(double written);

  std::vector<std::pair<std::vector<std::byte>, Payload>> records;
  std::size_t committed = 0;
  // ---- contents of the first record ----
  bool begun = false;
  std::map<std::string, std::uint32_t> roster;  // incarnations by name
  std::uint32_t sent = 0, received = 0;         // messages to and from the scheduler before the node existed
};

// The environment of a process: time, the network, and callbacks that report what the process does.
class Surroundings {
 public:
  virtual Time now() const = 0;
  virtual Network& network() = 0;
  virtual check::Random& random() = 0;
  virtual NodeConfig Config(NodeId id) = 0;
  virtual std::uint32_t Incarnation(ProcessId process) = 0;  // 0: the process has ended, or was not counted yet
  // Performs an action on a process at a time, if the process still exists.
  virtual void Later(ProcessId process, Time at, std::function<void()> action) = 0;
  virtual void OnEvent(ProcessId process, const Event& event) = 0;
  // The process ends itself, because its node reported that it cannot continue.
  virtual void OnEnd(ProcessId process, const std::string& reason) = 0;
  // Reports that a law is broken.
  virtual void Fail(NodeId node, const std::string& what) = 0;
  // A message has left a node's queue.
  virtual void OnLeaving(ProcessId process, std::uint32_t incarnation, const Message& message) = 0;
  // A message has been delivered to a node that does not consider its sender lost.
  virtual void OnDelivered(ProcessId process, NodeId from, std::uint32_t incarnation,
                           const Message& message) = 0;

 protected:
  ~Surroundings() = default;
};

struct Counts {
  std::uint64_t repeats = 0;     // duplicate messages, which were dropped
  std::uint64_t calls = 0;
  std::uint64_t recovered = 0;   // processes that continued from a journal
  std::uint64_t messages = 0;
  std::size_t most_kept = 0;     // maximum number of messages that one end of a link kept
  std::size_t most_queued = 0;   // maximum number of messages that were queued for a connection
};

class Process : public Replay::Handler {
 public:
  // `journal`: null if the process records none.
  Process(Surroundings& world, const Experiment& experiment, ProcessId id, Journal* journal, Counts& counts);

  // Continues from the journal if that contains a node. Otherwise the scheduler's node is created at once,
  // and those of others after they have joined.
  void Begin();

  // ---- the network ----
  void OnConnected(const ConnectionPtr& connection);
  void OnArrival(const ConnectionPtr& connection, End end);
  void OnEnded(const ConnectionPtr& connection);
  void OnDatagram(NodeId from, std::uint32_t incarnation, const Message& message);

  // ---- the application, and launchers ----
  bool runs() const { return node_ != nullptr && running_; }
  RecordedNode* node() { return node_.get(); }
  bool late() const { return late_; }
  std::uint32_t incarnation() const { return own_incarnation_; }
  // Of the process at the other end of the link, which may be a newer one than this process was told of.
  std::uint32_t incarnation(NodeId peer) { return linked_[peer]; }
  bool stopped() const { return node_ != nullptr && node_->stopped(); }
  // Handles the node's events, sends its messages and sets its timer. Call it after every call of the node.
  void Follow();
  void ReportEnded(NodeId member, const std::string& reason);

  const ProcessId id;

 private:
  struct Peering {
    Link<Message> link;
    ConnectionPtr connection;      // that carries the link; null: none
    bool made = false, closed = false;
    std::string why;               // reason for which it was closed
    bool dials = false;
    std::uint32_t looks = 0;       // number of the latest planned check whether a call is due
    Time next_try = 0, pause = 0;
    std::set<ConnectionPtr> calls;  // whose hello has not been answered
    std::uint32_t answered = 0;     // number of answered calls; calls that began before the latest are dropped
    Time heard = 0;
    bool sending = false;          // a message is leaving
    bool acknowledges = false;     // an acknowledgement is planned
    std::deque<Message> under_way;  // in the emulated network
    Time held_until = 0;            // when the last message from the peer leaves the emulated network
    std::size_t burst = 0;         // messages from the node's queue since the connection was made
    bool drained = false;          // the queue has been empty since then
  };
  struct Waiting {
    ConnectionPtr connection;
    Greeting greeting;
  };
  enum class Verdict : std::uint8_t { kPeer, kNotYet, kNobody, kLate, kTaken, kOccupied };

  // ---- connections (process_links.cc) ----
  void Dial(NodeId peer);
  void LookLater(NodeId peer, Time at);
  void Look(NodeId peer);
  Verdict Judge(NodeId caller, Greeting& greeting);
  Verdict CountCaller(NodeId caller, Greeting& greeting);
  void Settle(const ConnectionPtr& connection, Greeting greeting);
  void Welcome(const ConnectionPtr& connection, NodeId caller, const Greeting& greeting);
  void Contradicts(const ConnectionPtr& connection, End end);
  void Refuse(const ConnectionPtr& connection, const std::string& reason, bool final);
  void OnAnswer(const ConnectionPtr& connection, const Packet& packet);
  void OnRefused(NodeId peer, const Packet& packet);
  void Replace(Peering& peering, bool linger);
  void Attach(NodeId peer, const ConnectionPtr& connection);
  void Detach(const ConnectionPtr& connection, const std::string& reason);
  void Recheck();
  void Drop(NodeId peer, const std::string& reason);
  void Renew(NodeId peer);
  void ForgetHeld(NodeId peer);
  void LookForSilence();

  // ---- messages ----
  void OnMessage(const ConnectionPtr& connection, NodeId peer, Packet packet);
  void Handle(NodeId from, const Message& message);
  void Acknowledge(NodeId peer);
  void Pump(NodeId peer);
  bool TakeNext(NodeId peer, Peering& peering);
  void Transmit(NodeId peer, Peering& peering);
  void SendDatagrams(NodeId peer);
  void ReleaseDue();
  void CheckBounds(NodeId peer, const Peering& peering);

  // ---- the node ----
  void SayJoin();
  void BeforeTheNode(const Message& message);
  void MakeNode();
  void BeginJournal();
  void CutJournal();
  void ExchangeOutside(Archive& archive);
  void Continue();
  void CheckReady();
  void Act(const Event& event);
  void ArmTimer();
  void OnTimer();
  std::vector<NodeId> PeersToCall() const;
  bool keeps_journal() const { return journal_ != nullptr; }
  void Wait(Time pause, void (Process::*then)());

  // ---- Replay::Handler ----
  void OnTaken(NodeId, const Message&) override {}
  void OnLinked(NodeId peer, Message message) override;
  void OnArrived(NodeId peer) override;
  void OnReceived(NodeId peer, std::uint32_t count) override;
  void OnRenewed(NodeId peer, const Renewal& renewal) override;
  void OnLinkMade(NodeId peer) override { peerings_[peer].made = true; }
  void OnLinkDown(NodeId peer, const std::string& reason) override;
  void OnReady() override { ready_ = true; }
  void OnSnapshot(Archive& archive) override { ExchangeOutside(archive); }
  void OnEvent(Event event, Time now) override;

  Surroundings& world_;
  const Experiment& experiment_;
  Journal* const journal_;
  Counts& counts_;
  std::unique_ptr<RecordedNode> node_;
  std::map<NodeId, Peering> peerings_;
  std::map<NodeId, Waiting> waiting_;              // callers that cannot be accepted or refused yet
  std::map<NodeId, std::uint32_t> incarnations_;   // of peers
  std::map<NodeId, std::uint32_t> linked_;         // of the processes at the other ends of links
  std::map<std::string, std::uint32_t> roster_;    // incarnations by name
  std::uint32_t own_incarnation_ = 0;
  std::uint32_t restarts_ = 0;                     // processes of this node before this one
  const std::uint32_t mark_;                       // identifies this process in its calls to the scheduler
  std::map<NodeId, std::uint32_t> counted_;        // marks of the processes that got an incarnation last
  std::map<std::pair<Time, std::uint64_t>, Replay::Held> held_;  // in the emulated network
  std::uint64_t order_ = 0;
  Time timer_ = kNever;
  bool join_said_ = false, late_ = false, ready_ = false, running_ = false;
  bool following_ = false;
  std::vector<NodeId> dirty_;
};

}  // namespace geomx::faults
