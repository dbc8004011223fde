// One process of a member: the driver of a node in virtual time.
//
// It does what the live driver does (io/driver.h, io/sessions.h, io/dialing.cc, io/recovery.cc), over
// connections of faults/network.h instead of sockets: joins through the scheduler, calls its peers and calls
// again, judges callers by their incarnation, moves messages over links that outlive connections, keeps a
// journal, and continues from one.
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

// A journal on a disk, which outlives its processes.
struct Journal final : JournalOut {
  void Add(std::span<const std::byte> body, const Payload& payload) override {
    records.emplace_back(std::vector<std::byte>(body.begin(), body.end()), payload);
  }
  void Commit() override { committed = records.size(); }
  // What a crash leaves: all that was committed, and a share of the rest.
  void Crash(double written);

  std::vector<std::pair<std::vector<std::byte>, Payload>> records;
  std::size_t committed = 0;
  // ---- what the first record holds ----
  bool begun = false;
  std::map<std::string, std::uint32_t> roster;  // incarnations by name
  std::uint32_t sent = 0, received = 0;         // messages to and from the scheduler before the node was there
};

// What a process does to the world around it.
class Surroundings {
 public:
  virtual Time now() const = 0;
  virtual Network& network() = 0;
  virtual check::Random& random() = 0;
  virtual NodeConfig Config(NodeId id) = 0;
  // Does something to this process later, if it is still there.
  virtual void Later(ProcessId process, Time at, std::function<void()> action) = 0;
  virtual void OnEvent(ProcessId process, const Event& event) = 0;
  // The process ends by itself, as its node is told to.
  virtual void OnEnd(ProcessId process, const std::string& reason) = 0;
  // A law is broken.
  virtual void Fail(NodeId node, const std::string& what) = 0;
  // A message has left a node's queue.
  virtual void OnLeaving(ProcessId process, std::uint32_t incarnation, const Message& message) = 0;
  // A whole message has been handed to a node that took it.
  virtual void OnDelivered(ProcessId process, NodeId from, std::uint32_t incarnation,
                           const Message& message) = 0;

 protected:
  ~Surroundings() = default;
};

struct Counts {
  std::uint64_t repeats = 0;     // messages that arrived once more
  std::uint64_t calls = 0;
  std::uint64_t recovered = 0;   // processes that continued from a journal
  std::uint64_t messages = 0;
  std::size_t most_kept = 0;     // messages that one end of a link kept
  std::size_t most_queued = 0;   // messages that waited for a connection
};

class Process : public Replay::Handler {
 public:
  // `journal`: null if it keeps none.
  Process(Surroundings& world, const Experiment& experiment, ProcessId id, Journal* journal, Counts& counts);

  // The scheduler's node is there at once; others join first; where there is a journal, it continues.
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
  std::uint32_t incarnation(NodeId peer) { return incarnations_[peer]; }
  bool stopped() const { return node_ != nullptr && node_->stopped(); }
  // Call it after anything was done to the node.
  void Follow();
  void ReportEnded(NodeId member, const std::string& reason);

  const ProcessId id;

 private:
  struct Peering {
    Link<Message> link;
    ConnectionPtr connection;      // which carries it; null: none
    bool made = false, closed = false;
    std::string why;               // it was closed
    bool dials = false;
    std::uint32_t looks = 0;       // number of the next look at whether a call is due
    Time next_try = 0, pause = 0;
    std::set<ConnectionPtr> calls;  // with a hello that was not answered
    std::uint32_t answered = 0;     // how many were: calls from before that are not needed any more
    Time heard = 0;
    bool sending = false;          // a message is leaving
    bool acknowledges = false;     // soon
    std::deque<Message> under_way;  // in the emulated network
    Time held_until = 0;            // when the last message from there arrives there
    std::size_t burst = 0;         // messages from the node's queue since the connection was made
    bool drained = false;          // the queue was empty since then
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
  void OnRenewed(NodeId peer, std::uint32_t incarnation, bool anew) override;
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
  std::map<NodeId, Waiting> waiting_;              // callers that are not known yet
  std::map<NodeId, std::uint32_t> incarnations_;   // of peers
  std::map<std::string, std::uint32_t> roster_;    // incarnations by name
  std::uint32_t own_incarnation_ = 0;
  std::uint32_t restarts_ = 0;                     // processes of this node before this one
  const std::uint32_t mark_;                       // of this process, in its calls
  std::map<NodeId, std::uint32_t> counted_;        // marks of the processes that were counted last
  std::map<std::pair<Time, std::uint64_t>, Replay::Held> held_;  // emulated: arrive later
  std::uint64_t order_ = 0;
  Time timer_ = kNever;
  bool join_said_ = false, late_ = false, ready_ = false, running_ = false;
  bool following_ = false;
  std::vector<NodeId> dirty_;
};

}  // namespace geomx::faults
