// The simulation's driver: all nodes of an experiment, in virtual time, over the fluid WAN model.
//
// Fabric is the simulator's counterpart of a live process's Loop. It takes messages from nodes when
// the model's connections become free, delivers them after the path's delay, and charges the receiving
// endpoint for its work. It makes no protocol decisions. SimPy owns the clock: `Advance` runs until
// the time that SimPy allows, or until an event that the simulated applications must handle.
//
// Endpoints: a node handles one message at a time. Handling costs, by `Costs`, the receiving and the
// work of the protocol (decode, aggregate, update, encode); the resulting messages are sent when that
// time has passed. Nodes on one machine share its cores (see cores.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/link.h"
#include "core/node.h"
#include "core/recorded_node.h"
#include "core/standby.h"
#include "fabric/agenda.h"
#include "fabric/cores.h"
#include "fabric/costs.h"
#include "fabric/notice.h"
#include "fabric/pool.h"
#include "fabric/span.h"
#include "fabric/traffic.h"
#include "fabric/trainer.h"
#include "net/bandwidth_schedule.h"
#include "net/flows.h"
#include "net/link.h"

namespace geomx {

class Fabric {
 public:
  // `seed` drives losses and jitter. At most `max_spans` spans are kept. `fifo`: edges are FIFO queues.
  explicit Fabric(std::uint64_t seed, std::size_t max_spans = 0, bool fifo = false);
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;

  // ---- building ----
  // Time 0 of the schedule is the start of the run.
  net::EdgeId AddEdge(net::BandwidthSchedule schedule, Time delay);
  // Node ids must come in order from 0.
  void AddNode(NodeConfig config, std::shared_ptr<const Costs> costs);
  // Adds a link from `source` to `target`.
  void Connect(NodeId source, NodeId target, const net::LinkOptions& options);
  // `worker` trains: the fabric runs its loop (see trainer.h). REQUIRES: its role is kWorker.
  void Train(NodeId worker, std::shared_ptr<const TrainingPlan> plan,
             std::shared_ptr<const Pace> pace);
  // All nodes run on one machine with so many cores; 0: each has its own.
  void ShareCores(std::size_t count) { cores_ = Cores(count); }
  // Sets whether every new value at a trainer causes a notice.
  void ReportValues(bool report) { report_values_ = report; }

  // ---- running ----
  Trainer& trainer(NodeId worker) { return *endpoints_.at(worker).trainer; }
  Node& node(NodeId id) { return endpoints_.at(id).node->node(); }
  const Node& node(NodeId id) const { return endpoints_.at(id).node->node(); }
  // Call it after using a node directly (its worker's functions) at `now`; `key` and `round` if
  // that concerned a round of a tensor.
  void Touch(NodeId id, Time now, Key key = Span::kNoKey, Round round = 0);
  // Runs events strictly before `limit` and stops after the first instant with notices. Returns the
  // time reached: that instant's, or `limit` (kNever: no event is left).
  Time Advance(Time limit);
  // Returns true if no event is left, nor a change of bandwidth that concerns what is under way.
  bool idle() { return Next(std::min(network_.NextEvent(), agenda_.next())) == kNever; }
  std::vector<Notice> TakeNotices() { return std::exchange(notices_, {}); }

  // ---- faults (faults.cc) ----
  // Connections may break. Call it after building and before running.
  void ExpectFaults();
  // Stops all traffic between two nodes, in both directions, until Heal; messages under way are
  // lost. The nodes are not told. Cuts add up: each needs a Heal. Returns how often the connection has
  // broken while messages waited, since one arrived. Throws std::invalid_argument if no link connects
  // the two.
  std::uint32_t Cut(NodeId one, NodeId other, Time now);
  void Heal(NodeId one, NodeId other, Time now);
  // Heals a link whose connection never ended, as between nodes one of which was paused.
  void Reconnect(NodeId one, NodeId other, Time now);
  // Breaks the connection between two nodes and tells both; messages under way are lost. Returns what
  // Cut does.
  std::uint32_t Reset(NodeId one, NodeId other, Time now);
  // The node does not run for `duration`: its computation continues afterwards, and its timers are
  // late.
  void Pause(NodeId id, Time duration, Time now);

  // The node's process dies: its connections break, its state is lost, and the scheduler is told,
  // as a launcher does when a process ends.
  void Kill(NodeId id, const std::string& reason, Time now);
  // A new process of a killed node joins the run, without the state of the old one. The caller must
  // call Train again for a worker.
  void Restart(NodeConfig config, Time now);
  // ---- standbys (standby.cc) ----
  // `standby`, a node of that role, gets the journal of a global server, whose configuration is given
  // once more, and takes its place when it is lost. REQUIRES: ExpectFaults was called.
  void StandBy(NodeConfig config, NodeId standby);
  // The path of the link from `source` to `target` once the standby of one of them has taken its place.
  void Detour(NodeId source, NodeId target, const net::LinkOptions& options);

  // A worker that has finished training leaves.
  void Leave(NodeId worker, Time now);

  // ---- programs that change the network, and traffic of others (traffic.cc) ----
  // They throw std::invalid_argument for a value out of range or an unknown edge, link or transfer.
  // From `now` on the edge carries at most `bytes_per_s`; its schedule ends.
  void SetCapacity(net::EdgeId edge, double bytes_per_s, Time now);
  // While an edge is down nothing passes; then it has the bandwidth that it would have had by then.
  void SetEdgeUp(net::EdgeId edge, bool up, Time now);
  // An edge's delay for links and transfers that are added or changed from now on.
  void SetDelay(net::EdgeId edge, Time delay) { network_.SetDelay(edge, delay); }
  // Messages that leave from now on take another way, or one with other delays and losses.
  void ChangeLink(NodeId source, NodeId target, const net::LinkOptions& options, Time now);
  // `bytes` over a connection of their own; ends with kTransferred. Its number may be given to
  // another transfer once this one has ended or was cancelled.
  TransferId StartTransfer(const TransferOptions& options, double bytes, Time now);
  void ChangeTransfer(TransferId id, const TransferOptions& options, Time now);
  // Returns the bytes that have left. No notice follows.
  double CancelTransfer(TransferId id, Time now);
  double TransferLeft(TransferId id, Time now) const;
  double TransferRate(TransferId id) const;
  // From now on a worker's computing takes `computing` times as long, and the work of any node on
  // messages `work` times.
  void Stretch(NodeId id, double computing, double work);

  // ---- a model of the network in Python (own_model.cc) ----
  // Messages leave and arrive when that model says so. Call it before building.
  void Delegate();
  std::vector<net::ModelCall> TakeModelCalls() { return network_.TakeCalls(); }
  // The link and the lane of a connection; no link: it is a transfer's.
  std::pair<const LinkStats*, Lane> LinkOf(net::ConnectionId connection) const;
  const net::FlowNetwork& network() const { return network_; }
  // The last byte of a connection's message has left. It arrives after the delay of its path, or
  // when MessageArrived is called, or never.
  enum class Ending : std::uint8_t { kArrives, kHeld, kLost };
  void MessageLeft(net::ConnectionId connection, Ending ending, Time now);
  // The first of the connection's messages that are held has arrived.
  void MessageArrived(net::ConnectionId connection, Time now);
  void MessageRate(net::ConnectionId connection, double rate, Time now) {
    network_.SetRate(connection, rate, now);
  }

  // As of the last event before `now`: bytes/s on an edge, what it could carry, and, by EdgeId, what
  // waits at senders to cross each.
  double Load(net::EdgeId edge) const { return network_.Load(edge); }
  double Capacity(net::EdgeId edge, Time now);
  std::vector<double> EdgesQueued(Time now) const;
  // Messages and transfers under way.
  std::vector<ActiveFlow> Flows(Time now) const;
  // Bytes that have been sent over each edge, by EdgeId.
  std::vector<Carried> EdgesCarried(Time now) const;

  // ---- repetition (repeat.cc) ----
  // Returns true if the state is now that of the mark; nothing if there is no mark or a part cannot
  // describe its state. Call it when all notices have been taken.
  std::optional<bool> Recurs(Time now);
  // Marks the state of the last call of Recurs, which was at `now`.
  void Mark(Time now);
  // Counts everything since the mark `times` more times, without simulating it. The clock and the
  // nodes' rounds do not change, as nothing depends on their absolute values. REQUIRES: Recurs(now).
  void Repeat(std::uint64_t times, Time now);

  // ---- for trainers ----
  void WakeAt(NodeId worker, Time time) { agenda_.Add(time, Own(Action::Kind::kWake, worker)); }
  void Notify(Notice notice) { notices_.push_back(std::move(notice)); }
  void AddSpan(const Span& span) { spans_.Add(span); }

  // ---- inspection ----
  std::vector<LinkStats> Links() const;
  // The time that each node has spent on messages, by its costs.
  std::vector<Time> Worked() const;
  // How long each edge had a message under way, by EdgeId.
  std::vector<Time> EdgesBusy() const { return network_.EdgesBusy(network_.now()); }
  const SpanLog& spans() const { return spans_; }
  std::uint64_t processed() const { return processed_; }   // messages delivered
  std::uint64_t happened() const { return happened_; }     // events simulated
  std::uint64_t lost_messages() const { return lost_; }
  std::uint64_t solves() const { return network_.solves(); }

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;
  static constexpr std::uint32_t kTransfers = 1u << 31;  // marks transfers in connection_owner_
  // Messages that were delivered and not handled yet: indices into `messages_`.
  struct Waiting {
    std::uint32_t first = kNone, last = kNone;
  };
  // A standby's copy of a global server, and of its ends of links.
  struct Copy;
  // In the order of use: the first cache line is enough for most messages.
  struct alignas(64) Endpoint {
    std::unique_ptr<RecordedNode> node;
    std::shared_ptr<const Costs> costs;
    Time busy_until = 0;
    Time worked = 0;                       // total, on messages
    Time timer = kNever;                   // the node's deadline that is scheduled
    Waiting waiting;
    std::uint32_t life = 0;                // counts its processes; events of earlier ones are void
    bool release_due = false;              // a release event is scheduled
    bool dead = false;                     // its process has died
    bool moved = false;                    // its standby has taken its place
    std::unique_ptr<Trainer> trainer;      // of workers that train
    std::shared_ptr<Copy> copy;            // of standbys: of the node that they stand by
    double stretch = 1.0;                  // see Stretch
    std::vector<std::pair<NodeId, std::uint32_t>> links;  // outgoing: (target, index), ascending
    Time paused_until = 0;
    Time late = 0;                         // pauses during the present computation
    std::vector<NodeId> unreached;         // after it has moved: peers that are not connected yet
  };
  // State of a link's sending end, where connections may break.
  struct Broken {
    geomx::Link<Message> link;  // its outbox, and the arrivals of the other direction
    std::uint32_t connection = 0;  // its number: messages of earlier ones are lost
    std::uint32_t remake = 0;      // counts attempts to make another; only the latest counts
    std::uint32_t fruitless = 0;  // see Cut; at the link of the pair that was added first
    int cuts = 0;
    Time cut_at = 0;
    bool down = false;  // there is no connection
  };
  // One direction between two nodes. Each lane is a connection of the network model. Most messages
  // need the first two cache lines and the end of `options`.
  struct alignas(64) Link {
    net::ConnectionId lanes[2];
    std::uint32_t in_flight[2] = {0, 0};  // places in `messages_`
    Time started[2] = {0, 0};
    Time active_since = 0;
    Time delay = 0;
    Time last_delivery = 0;
    int active = 0;
    bool gives_way = false;  // the sender holds datagrams back for other messages
    bool pacing = false;     // datagrams wait for an event on the agenda
    LinkStats stats;
    std::unique_ptr<Broken> broken;  // null where connections do not break
    net::LinkOptions options;  // fields that every message needs come last
    // Of a link of a global server that has a standby: its path from then on.
    struct Detour {
      net::LinkOptions options;
      net::ConnectionId lanes[2];
      bool due[2] = {false, false};  // as soon as nothing is on its way on the old one
    };
    std::unique_ptr<Detour> detour;
    net::Pacer pacer;  // of datagrams
    std::deque<std::pair<std::uint32_t, Time>> queued;  // behind the datagram in flight, and since when
    double queued_bytes = 0.0;
  };
  // A message on its way, from the sender's queue until handled.
  struct alignas(64) Passing {
    Message message;
    std::uint32_t next = kNone;  // the next message that waits at the same endpoint
    std::uint32_t link = 0, connection = 0;  // that carried it, where connections may break
    std::uint32_t lives = 0;  // of the processes at both ends when it left; see Lives
  };
  static_assert(sizeof(Passing) == 128, "large simulations read every line of it from memory");
  struct Action {
    enum class Kind : std::uint8_t { kDeliver, kRelease, kTimer, kWake, kPace, kRemake, kTell,
                                    kOpen, kTransferred };
    Kind kind;
    NodeId node;
    // kDeliver: the message's index in `messages_`; kPace, kRemake: the link; kTell: the receiver;
    // kOpen, kTransferred: the transfer.
    std::uint32_t which = 0;
    // kRemake: see Broken; kRelease, kTimer, kWake: the node's life; kOpen, kTransferred: see Transfer.
    std::uint32_t count = 0;
  };

  // An action of the node's present process.
  Action Own(Action::Kind kind, NodeId node) const;
  // What the next of `completed_`, and the next deliveries of this instant, will read (prefetch.cc).
  void PrefetchLeaving(std::size_t next) const;
  void PrefetchArrivals() const;
  void Run(const Action& action, Time now);
  void Left(net::ConnectionId connection, Time now);
  void Deliver(NodeId id, std::uint32_t message, Time now);
  void Forget(std::uint32_t message);
  void Serve(NodeId id, Time now);
  void Charge(NodeId id, Time now, double seconds, Key key, Round round);
  void Release(NodeId id, Time now);
  void Report(NodeId id, Event&& event, Time now);
  void Pump(NodeId id, Time now);
  bool Send(std::uint32_t link, Lane lane, Time now);
  std::uint32_t Take(std::uint32_t link, Lane lane, Time now);  // the sender's next message, or kNone
  void Put(Link& link, int lane, std::uint32_t message, Time since, Time now);  // on an idle lane
  bool SendDatagrams(std::uint32_t link, Time now);  // all that their pace allows
  void PutQueued(Link& link, Time now);  // the first of them that stands in queues, if any
  void Count(Link& link, const Message& message);
  // Moves the next message to leave over a link whose connections may break to `message`. Returns false
  // if there is none.
  bool NextOver(Link& link, Lane lane, Time now, Message& message);
  void ChooseAhead(Link& link, Time now);
  void Turn(Link& link, int lane);
  void Die(NodeId id, Time now);
  double Copied(NodeId id, const Message& message);
  void Replicate(NodeId id, Time now);
  void LetLeave(NodeId id, Time now);
  void TakeOver(NodeId id, Time now);
  void Reached(NodeId id, NodeId peer);
  // Counts the processes at both ends.
  std::uint32_t Lives(const Link& link) const;
  // Returns true if a message and its arrival are lost with its connection, with a process, or by a
  // cut.
  bool Swept(const Passing& passing) const;
  bool Arrives(const Passing& passing);
  std::pair<std::uint32_t, std::uint32_t> LinksBetween(NodeId one, NodeId other) const;  // there, back
  Time RoundTrip(NodeId one, NodeId other) const;
  void Sever(NodeId one, NodeId other, const std::string& reason, Time now);
  bool Uncut(NodeId one, NodeId other);
  std::uint32_t CountBreak(std::uint32_t there, std::uint32_t back);  // for Cut and Reset
  void RemakeAt(NodeId one, NodeId other, Time at);
  void RemakeAfter(NodeId one, NodeId other, Time pause, Time now);
  void Remake(const Action& action, Time now);
  void Tell(NodeId from, NodeId to, Time now);
  std::vector<NodeId> LinkedWith(NodeId id) const;
  // Returns true if `one` does not know yet that the current process of `other` takes part, and so
  // refuses its calls.
  bool Refuses(NodeId one, NodeId other) const;
  bool LosesScheduler(NodeId id, const std::string& lost, Time now) const;  // which is paused
  bool Void(const Action& action) const;  // returns true if it was for a process that is dead
  // Returns true if the node is paused; the action is then postponed.
  bool Postponed(const Action& action, Time now);
  // Returns true while the link's datagrams must wait for other traffic.
  bool MustWait(std::uint32_t link, Time now);
  Time Occupy(Endpoint& endpoint, Time now, Time cost);  // with work; when it starts
  // Returns true if a message may leave earlier when the edge's schedule gives it more bandwidth.
  bool Limits(net::EdgeId edge) const { return network_.Limits(edge) && !down_.contains(edge); }
  // The next instant at which anything happens; all but changes by schedules happens at `due` or later.
  Time Next(Time due);
  void FollowSchedules(Time now);  // time has passed until `now`
  void Limit(net::EdgeId edge, double bytes_per_s, Time now);
  void CarryFormerWay(std::uint32_t link, const std::vector<net::EdgeId>& path);
  net::ConnectionOptions ConnectionOf(const TransferOptions& transfer) const;
  void Open(const Action& action, Time now);
  void Sent(TransferId id, Time now);        // its last byte has left
  void Transferred(const Action& action);    // it has arrived
  void EndTransfer(TransferId id, double sent);
  void Carry(const std::vector<net::EdgeId>& path, Carried bytes);
  double Draw();

  net::FlowNetwork network_;
  net::BandwidthSchedules schedules_;
  std::size_t under_way_ = 0;  // messages in the network; without any, schedules have no effect
  std::vector<Endpoint> endpoints_;
  Cores cores_;
  std::vector<Link> links_;
  std::vector<std::pair<std::uint32_t, Lane>> connection_owner_;
  Agenda<Action> agenda_;
  Pool<Passing> messages_;
  std::vector<Notice> notices_;
  bool report_values_ = false;
  std::vector<net::ConnectionId> completed_;
  std::vector<NodeId> dirty_;  // peers that the present node has messages for
  SpanLog spans_;
  std::uint64_t random_, processed_ = 0, happened_ = 0, lost_ = 0;
  bool faults_ = false;  // connections break
  bool programmed_ = false;  // what happens is not known in advance

  // ---- programs ----
  std::vector<Transfer> transfers_;              // by number
  std::vector<TransferId> free_transfers_;
  std::vector<net::ConnectionId> spare_;         // connections of transfers that have ended
  std::unordered_map<net::EdgeId, double> down_;  // edges that are down: bytes/s as they were up
  std::vector<Carried> carried_;                 // by edge: bytes of ended transfers and former ways
  std::unordered_map<std::uint32_t, Carried> carried_before_;  // by link: on its former ways

  // ---- a model in Python ----
  Ending ending_ = Ending::kArrives;  // of the message that is leaving
  std::unordered_map<net::ConnectionId, std::deque<Action>> held_;

  // ---- repetition ----
  struct Totals {
    Time time = 0;
    std::uint64_t processed = 0, spans = 0;
    std::vector<LinkStats> links;
    std::vector<Time> edges;   // busy
    std::vector<Time> worked;  // by node
    std::vector<NodeStats> nodes;
  };
  Digest Describe(Time now);
  Digest::Level LevelOf(const Message& message) const;
  // The round of the whole run, including skipped repetitions.
  Round RoundOfRun(Round round, Digest::Level level) const {
    return round + skipped_rounds_[static_cast<int>(level)];
  }
  Round RoundOfRun(const Message& message) const {
    // Usually both levels have skipped equally many rounds, and the sender does not matter.
    if (skipped_rounds_[0] == skipped_rounds_[1]) return message.header.round + skipped_rounds_[0];
    return RoundOfRun(message.header.round, LevelOf(message));
  }
  Totals CountAll(Time now);
  std::optional<Digest> state_, marked_state_;  // as of Recurs, as of Mark
  Totals marked_;
  Round skipped_rounds_[2] = {0, 0};  // by level
  Time now_ = 0;
};

}  // namespace geomx
