// The live counterpart of the simulation's Fabric: one thread that moves messages between a core Node
// and the network, in real time.
//
// In every cycle it passes arrived messages, the application's requests and expired timers to the
// node, and then sends the messages that the node has queued: to a writable socket (real network)
// or to the model of the network (shaper.h). The next message is always chosen as late as possible.
// The driver makes no decision of the protocol.
//
// Memory is bounded: a connection is not read while too many of its messages wait to be handled,
// and messages are taken from the node only as fast as they leave.
//
// Thread safety: Post from anywhere; everything else on the loop's thread, or after it has ended.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <exception>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/plugin_failure.h"
#include "core/recorded_node.h"
#include "core/replay.h"
#include "core/round_times.h"
#include "core/standby.h"
#include "core/worker.h"
#include "io/run_status.h"
#include "io/completion_thread.h"
#include "io/journal_file.h"
#include "io/mailbox.h"
#include "io/notice.h"
#include "io/poller.h"
#include "io/sessions.h"
#include "io/shaper.h"
#include "io/trace.h"
#include "io/udp.h"
#include "io/watch.h"

namespace geomx::io {

// Counts of the messages that a node has sent to one peer.
struct LinkCounts {
  Traffic data[kDirections];  // training traffic (IsData)
  std::uint64_t control_bytes = 0;
  Time busy = 0;

  // Of values that were queued and have left since this process began.
  struct Values {
    std::uint64_t count = 0;
    Time time = 0;  // from the queue of the first slice to the last byte of the last slice
  };
  Values values[kDirections];

  void Exchange(Archive& archive) { archive(data[0], data[1], control_bytes, busy); }
};

// A link as it is now.
struct LinkState {
  bool connected = false;
  std::uint32_t connections = 0;   // that have carried it
  Time silent = 0;                 // since bytes last arrived on the present one
  std::uint64_t queued_bytes = 0;  // that wait to leave
  bool suspect = false;            // silent for longer than it may be
  std::uint32_t suspicions = 0;    // how often it was
};

// What a server's rounds have waited for (core/round_times.h).
struct RoundReport {
  std::map<std::string, double> phases;                // seconds, by name
  std::map<std::string, RoundTimes::Child> children;   // by the child's name
};

struct Report {
  std::map<std::string, LinkCounts> links;  // by the peer's name, as is the next one
  std::map<std::string, LinkState> states;
  NodeStats node;
  std::optional<RoundReport> rounds;    // of a server
  std::map<std::string_view, Time> handled;  // time in which messages were handled, by the category of their span
  Datagrams::Counts datagrams;
  std::uint64_t lost_messages = 0;    // by the emulated network
  std::uint64_t refused_callers = 0;  // callers that were not members
  std::uint64_t held_bytes_max = 0;   // most bytes that waited to be handled
  std::uint64_t spans_dropped = 0;
  std::uint64_t paced_pushes = 0;  // pushes with a given earliest time
  Time behind = 0;                 // sum of their delays after it
};

// Where the application of a worker was, as the journal of its killed process says.
struct Resumed {
  bool noted = false;              // whether there is a note
  std::vector<std::string> notes;  // all, in order
  std::vector<std::string> state;  // of the latest note, as are the next two
  std::map<Key, Round> rounds;     // submitted
  std::map<Key, Buffer> values;    // that had arrived
  // Calls since that note, which must not be made again.
  std::map<std::pair<RecordKind, std::uint32_t>, std::uint32_t> done;
};

using ReadyCallback = std::function<void(std::span<const float>)>;

class Driver final : private Sessions::Handler, private Replay::Handler {
 public:
  // `tls` encrypts everything that is sent; null: no encryption.
  Driver(Port port, const std::string& token, std::unique_ptr<Tls> tls, RunStatus& status);
  ~Driver() override = default;

  // Returns false once the thread has ended.
  bool Post(Mailbox::Task task) { return mailbox_.Post(std::move(task)); }
  void ThreadMain();

  void Join(const Address& scheduler, NodeId self, const std::string& name, Time deadline,
            bool late);
  // With a `journal` the node is recorded, and continues from the records that it already holds.
  void Run(const NodeConfig& config, const std::map<NodeId, Address>& addresses,
           const std::optional<Shape>& shape, const std::string& congestion,
           Time connect_deadline, std::shared_ptr<JournalFile> journal);
  // Returns what a server holds, by its journal, which stays as it is: nothing is sent. Throws
  // JournalError as Run does.
  std::vector<SavedShard> Reopen(const NodeConfig& config, std::shared_ptr<JournalFile> journal);
  // Repeats what the process of a global server does (core/standby.h), with the configuration of its
  // node, until TakeOver.
  void StandBy(const NodeConfig& config, const std::map<NodeId, Address>& addresses,
               const std::optional<Shape>& shape, const std::string& congestion);
  std::optional<std::uint64_t> Repeat(const Message& records) { return standby_->Take(records, Now()); }
  // Takes the place of that process, as this incarnation of the node.
  void TakeOver(std::uint32_t incarnation);
  bool standing_by() const { return standby_ != nullptr; }
  std::int64_t order_due() const { return watch_.order_due(); }
  std::int64_t initial_due() const { return watch_.initial_due(); }
  // Whether all messages of this node but heartbeats had left, and were received, at the last look at its waits.
  bool settled() const { return settled_; }
  // On a member of the role kStandby: where its records go, and what is called when it is to take over.
  struct Keeper {
    std::function<void(Message records)> repeat;
    std::function<void(std::uint32_t incarnation)> take_over;
  };
  void SetKeeper(Keeper keeper) { keeper_ = std::move(keeper); }
  void Confirm(std::uint64_t batch);
  // The address that others are told instead of this one's.
  void Announce(const Address& address) { announced_ = address; }
  // Throws std::logic_error before Run.
  RecordedNode& node();
  // Sets the application's name of a key, for messages.
  void Name(Key key, std::string name) { key_names_[key] = std::move(name); }
  void Request(Key key);
  void Submit(Key key, Worker::Push push, Time not_before);
  void SendReport(NodeId host, std::uint32_t number, std::vector<double> values, Time not_before);
  void WhenReady(Key key, Round round, ReadyCallback callback);
  void Leave();
  const Resumed& resumed() const { return resumed_; }
  // See RecordedNode::Note.
  void Note(const std::string& text, const std::vector<std::string>& state);
  // Disturbances of the path to a peer, for scenarios; see sessions.h.
  void Cut(NodeId peer) { sessions_.Cut(peer); }
  void Heal(NodeId peer) { sessions_.Heal(peer, RoundTrip(peer)); }
  void Reset(NodeId peer) { sessions_.Reset(peer); }
  // On the scheduler: the process of a member is known to have ended.
  void ReportEnded(const std::string& name, const std::string& reason);
  // Scheduler: declares to all that the members which are not connected have never joined.
  void GiveUpOnMissing(const std::string& why);
  void BeginClose(std::string failed = {});  // peers are told what has `failed`

  std::vector<std::string> Missing() const;
  Report report() const;
  // See Node::ResidualNorm; 0 before Run.
  std::array<double, kDirections> ResidualNorms() const {
    if (!node_) return {};
    return {node_->ResidualNorm(Direction::kPush), node_->ResidualNorm(Direction::kPull)};
  }
  std::optional<RoundReport> Rounds() const;
  Trace& trace() { return trace_; }
  const Trace& trace() const { return trace_; }

 private:
  using Verdict = Sessions::Verdict;

  struct Outlet {  // state of sending to one peer
    std::optional<Address> address;  // for datagrams
    LinkCounts counts;
    Time busy_until = 0;
    net::Pacer pacer;
    std::optional<std::int32_t> priority;  // of the last data
    bool ordered = false;                  // priorities differ, so an urgent message may come
  };
  static constexpr std::uint64_t kGoneSession = UINT64_MAX;  // of messages that the previous process received
  struct Delayed {  // read from the socket, but arrives later in the emulated network
    Time at = 0;
    std::uint64_t order = 0;
    NodeId from = 0;
    std::uint64_t session = 0;
    Message message;
  };
  struct Later {
    bool operator()(const Delayed& a, const Delayed& b) const {
      return a.at != b.at ? a.at > b.at : a.order > b.order;
    }
  };
  // driver.cc: the cycle, the node, the application
  void Cycle();
  void TakeTasks(std::vector<Mailbox::Task> tasks) {
    std::move(tasks.begin(), tasks.end(), std::back_inserter(tasks_));
  }
  void RunTasks();
  Time NextDeadline();
  void RunSubmissions(Time now);
  void SubmitNow(Key key, Worker::Push push, Time now);
  void Handle(NodeId from, const Message& message);
  // After the node has handled a round of a key since `begin`: traces it, registers its device
  // work, and acts on its events.
  void Follow(Key key, Round round, Time begin);
  void ResumeNode(std::exception_ptr failed, Key key, Round round);
  void WatchDevice(const DeviceWork::Ends& ends, Key key, Round round,
                   const std::function<void()>& after);
  void DrainEvents();
  // Ends the link with a peer that broke the protocol.
  void Break(NodeId peer, const std::string& how) {
    sessions_.CloseLink(sessions_.LinkOf(peer), std::string(kBrokeProtocol) + how);
  }
  void Act(Event& event, Time now);
  void ActOnMember(Event& event, Time now);
  void NoteMember(Event event, Time now);
  void Without(const Event& event);
  void With(const Event& event);
  Outlet& Locate(const Event& event);
  // Writes a line for the user (io/notice.h).
  void Tell(Severity severity, const std::string& text) const { Notice(severity, name_, text); }
  void ForgetMessages(NodeId peer);
  void CheckReady();
  void FailCallbacks();

  // standby.cc
  void BeginReplicating();
  void Replicate();
  void StopReplicating();
  void LetLeave();
  void Moved(const Event& event);

  // snapshot.cc
  // `state`: of the worker's latest note.
  void CutJournal(const std::vector<std::string>& state = {});
  void ExchangeOutside(Archive& archive);
  void OnSnapshot(Archive& archive) override;

  // recovery.cc
  void BeginJournal();
  void WriteBegin(JournalOut& out);
  void ReadJournal(Replay& replay);
  void Recover();
  void GoOn(Replay& replay);
  void RecordReceived();
  std::vector<NodeId> PeersToCall() const;
  void CallPeers();
  void SetPeers(const NodeConfig& config, const std::map<NodeId, Address>& addresses);
  void OnBegin(const JournalBegin& begin) override;
  void OnTaken(NodeId peer, const Message& message) override;
  void OnLinked(NodeId peer, Message message) override;
  void OnArrived(NodeId peer) override;
  void OnReceived(NodeId peer, std::uint32_t count) override;
  void OnRenewed(NodeId peer, const Renewal& renewal) override;
  void OnLinkMade(NodeId peer) override;
  void OnLinkDown(NodeId peer, const std::string& reason) override;
  void OnReady() override;
  void OnEvent(Event event, Time now) override;
  void OnVerb(RecordKind kind, std::uint32_t number) override;
  void OnNote(std::string text, std::vector<std::string> state) override;

  // waits.cc
  void LookAtWaits(Time now);
  bool AllSettled();
  std::vector<Wait> ListWaits() const;
  std::string KeyName(Key key) const;

  // receive_path.cc
  Verdict Judge(Session& caller) override;
  bool Genuine(const Session& session, const Peer& peer) const;
  Verdict JudgeIncarnation(Session& caller);
  bool IsUnannounced(const Peer& peer);
  Verdict CountCaller(Session& caller);
  bool RemembersNothing(NodeId peer) const;
  bool IsMissing(NodeId peer) const;
  void SayJoin(Session& session);
  void OnGreeting() override;
  void OnConnected(Session& session) override;
  void OnHeard(Session& session) override;
  std::shared_ptr<std::byte> Place(const Session& session, const Header& header, Time arrives) override;
  void OnFrame(Session& session, Frame frame) override;
  void OnRefused(const std::string& address, const std::string& reason) override;
  void SealDatagrams(Session& session);
  void BeforeTheNode(Session& session, const Message& message);
  bool TakeRoster(const std::string& lines, Joined& joined);
  void Delay(Delayed message);
  void Keep(Delayed message);
  void ReleaseDelayed(Time now);

  // driver_links.cc
  void OnLost(PeerLink& link) override;
  void OnUnreachable(NodeId peer, const std::string& reason) override;
  void OnTurnedAway(NodeId peer, const std::string& reason, bool told) override;
  void TellMade(PeerLink& link);
  void CannotJoin(const std::string& reason, bool told);
  void GiveUp(NodeId peer, const std::string& reason);
  void Acknowledge(PeerLink& link);
  void AcknowledgeAll();
  void SayArrived(PeerLink& link);
  void WatchLinks(bool running);
  std::string NameOf(NodeId peer) const;
  bool Flushed();
  void SayClosing(Session& session);

  // send_path.cc
  void OnWritable(Session& session) override;
  void Pump();
  void PumpPeer(NodeId peer, Time now);
  void PumpDatagrams(Session& session, Time now);
  void AdvanceShaper(Time now);
  bool BypassesModel(const Message& message) const;  // of the network; see core/out_of_band.h
  std::optional<Message> NextShaped(NodeId peer, Lane lane);
  std::optional<Message> NextUnshaped(NodeId peer);
  void Leave(Shaper::Sent sent);
  bool Holds(Session& session);
  Time RoundTrip(NodeId peer) const;  // of the emulated network, or else of the connection
  void Flush(Session& session);
  void Count(NodeId peer, const Message& message);
  // A message has left: traces it, and counts the time of a value whose last slice it is.
  void NoteSent(const Message& message, NodeId peer, Time started, Time left);

  RunStatus& status_;
  Poller poller_;
  Mailbox mailbox_;
  std::deque<Mailbox::Task> tasks_;  // taken from it
  Address address_;
  Datagrams datagrams_;
  Sessions sessions_;
  Trace trace_;

  std::string name_;          // of this node, once known
  std::string join_address_;  // of the scheduler, while joining
  Time join_deadline_ = kNever;
  bool joined_ = false;
  bool join_said_ = false;
  Time scheduler_lost_ = kNever;  // when its connection was lost, while joining
  std::string scheduler_lost_why_;
  Joined told_;  // the scheduler's message
  std::map<std::string, std::uint32_t> roster_incarnations_;
  std::map<NodeId, std::uint32_t> incarnations_;  // of each peer's current process
  std::set<NodeId> missed_;                       // members that have been lost
  std::map<NodeId, std::uint32_t> counted_;       // scheduler: marks of the processes counted last
  Time connect_deadline_ = kNever;  // of peers that are to be called
  NodeId self_ = kUnknownPeer;

  std::shared_ptr<JournalFile> journal_;  // or null
  Resumed resumed_;
  std::vector<std::string> notes_;  // of this process and those before it
  std::uint32_t restarts_ = 0;      // processes of this node before this one
  std::unique_ptr<RecordedNode> node_;
  std::unique_ptr<Standby> standby_;  // null: this process is in charge of its node
  Keeper keeper_;
  std::optional<Address> announced_;
  std::unique_ptr<Shaper> shaper_;
  bool ready_ = false;
  std::optional<Time> started_;
  bool closing_ = false;
  std::string failed_;  // why this process ends; empty: not by an error of its own
  Time close_deadline_ = kNever;
  bool restarted_at_the_end_ = false;  // the previous process had seen the run stop

  std::map<NodeId, Outlet> outlets_;
  std::set<NodeId> dirty_;          // peers that may have messages to send
  std::map<NodeId, Time> pacing_;   // peers for whom datagrams, or all messages, wait for their turn
  Time acknowledge_at_ = kNever;    // when to acknowledge what has arrived
  std::vector<Delayed> delayed_;    // heap
  std::uint64_t order_ = 0;
  std::size_t delayed_bytes_ = 0, delayed_bytes_max_ = 0;
  std::map<std::pair<Time, std::uint64_t>, std::function<void(Time)>> submissions_;
  std::unordered_map<Key, Time> last_submission_;
  std::uint64_t paced_pushes_ = 0;
  Time behind_ = 0;
  std::multimap<Key, std::pair<Round, ReadyCallback>> callbacks_;
  std::uint64_t lost_messages_ = 0;
  std::map<std::string_view, Time> handled_;  // see Report
  Watch watch_;
  std::atomic<bool> settled_ = false;
  std::map<Key, std::string> key_names_;
  std::map<std::uint32_t, NodeId> hosts_;  // of coordinators that have got reports
  CompletionThread completions_;           // of device work; destroyed first
};

}  // namespace geomx::io
