// A Node is one member of the parameter-server tree: worker, local server, global server or
// scheduler. It does no I/O and reads no clock. The driver passes in messages, link changes and the
// time, and takes out messages, events and the next deadline:
//
//   simulation: Fabric (virtual time, SimPy's clock)      live: Loop (sockets, monotonic clock)
//
// Not thread-safe: one driver, one thread. docs/protocol.md has the messages and their order.
//
// Invariants
//   1. What a node sends depends only on the sequence of calls made to it, never on the time they
//      were made at, except heartbeats, their timeouts and the grace for best-effort slices.
//   2. One round of a shard is in flight per worker: a push waits until the value of the one before
//      has come. Nothing in here grows with the number of rounds.
//   3. Sums are made in the order of node ids (see aggregator.h).
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/aggregator.h"
#include "core/codec.h"
#include "core/coordinator.h"
#include "core/flat_map.h"
#include "core/inbox.h"
#include "core/message.h"
#include "core/node_config.h"
#include "core/optimizer.h"
#include "core/overlay.h"
#include "core/policy.h"
#include "core/send_queue.h"
#include "core/slicer.h"
#include "core/types.h"
#include "core/wait.h"
#include "kernels/workplace.h"

namespace geomx {

struct Event {
  enum class Kind : std::uint8_t {
    kRoster,      // everyone has joined; text = the experiment, names/addresses in `roster`
    kStarted,     // everyone is connected: go
    kValueReady,  // worker: the value of `key` after `round` is in
    kBarrier,     // worker: barrier `round` is complete
    kUpdated,     // global server: shard `shard` of `key` finished `round`
    kCommand,     // server: an instruction arrived (after the node itself has acted on it)
    kDead,        // a member was lost: `text` is its name, `reason` what was seen
    kStopped,     // everyone has finished
    kPeerError,   // `peer` broke the protocol: close the connection; `reason` says how
    kRefused,     // an instruction could not be carried out; `reason` says why
    kReply,       // coordinator `key` answered with `values`
    kNonFinite,   // worker: push `round` of `key` holds values that are NaN or infinite, as `text` says
  };
  Kind kind;
  NodeId peer = 0;
  Key key = 0;
  std::uint32_t shard = 0;
  Round round = 0;
  std::string text = {};
  std::string reason = {};
  std::vector<std::pair<std::string, std::string>> roster = {};  // (name, address)
  std::vector<double> values = {};
};

// What the node has done since it was last asked: the driver turns this into time (simulation) or
// reports it (live). Bytes are those of dense float32 values.
struct Work {
  struct Count {
    std::uint64_t times = 0;
    std::uint64_t bytes = 0;

    void Add(std::uint64_t more_bytes, std::uint64_t more_times = 1) {
      times += more_times;
      bytes += more_bytes;
    }
  };
  Count encode, decode, aggregate, update;
};

// Lasting counts, for reports.
struct NodeStats {
  std::uint64_t rounds = 0;          // shard rounds completed here
  std::uint64_t late_slices = 0;     // merged one round late
  std::uint64_t refused_slices = 0;  // duplicate or stale, or best effort and inconsistent
  std::uint64_t missing_slices = 0;  // absent when their round closed
  std::uint64_t dropped_slices = 0;  // stale before they were sent
  // Updates that others made between a party's last value and the use of its next push.
  std::uint64_t staleness_sum = 0;
  std::uint64_t staleness_max = 0;
  std::uint64_t non_finite_pushes = 0;  // of a worker: that held values that are NaN or infinite
};

// How the reason begins for which a node ends the connection with a peer at fault.
inline constexpr std::string_view kBrokeProtocol = "broke the protocol: ";

// Between the names of two members: what was lost is the connection between them.
inline constexpr std::string_view kBetween = " <-> ";

// The round of a `dead` that says no more than that the connection between two members has ended:
// whether one of them is gone is for the scheduler to find out.
inline constexpr Round kLinkEnded = 1;

class Node;

// The part of a node that its role decides. Implementations: worker.cc, server.cc,
// global_server.cc, scheduler.cc.
class RoleLogic {
 public:
  virtual ~RoleLogic() = default;
  // A whole value arrived from `peer`. `value` is empty if phantom.
  virtual void OnValue(NodeId peer, const Header& header, Buffer value, Time now) = 0;
  // Likewise, of a flow whose values are kept encoded.
  virtual void OnEncoded(NodeId peer, const Header& header, Buffer encoded, Time now) {
    (void)peer, (void)header, (void)encoded, (void)now;
  }
  virtual void OnControl(NodeId peer, const Message& message, Time now) = 0;
  virtual void OnLinkDown(NodeId peer, const std::string& reason, Time now);
  virtual void Describe(Digest& digest) const = 0;  // see Node::Describe
  virtual void OnTimeout(Time now) { (void)now; }
  virtual Time NextTimeout() const { return kNever; }
  // Whether something that was sent is still to be answered: a member does not leave before.
  virtual bool Unanswered() const { return false; }
  virtual void ListWaits(Waits& waits) const = 0;  // see Node::ListWaits

 protected:
  explicit RoleLogic(Node& node) : node_(node) {}
  Node& node_;
};

class Worker;
class DeviceValue;

class Node {
 public:
  explicit Node(NodeConfig config);
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  // ---- driver: in ----
  void HandleMessage(NodeId from, const Message& message, Time now);
  // The connection to `peer` cannot be used any more. Expected once it said bye or all stopped.
  void HandleLinkDown(NodeId peer, const std::string& reason, Time now);
  void HandleTimeout(Time now);
  // Tell the scheduler that this node is connected to all its peers (live).
  void Ready(Time now);
  // Everyone has joined and is connected: skip the handshake (simulation).
  void AssumeStarted();

  // ---- driver: out ----
  std::optional<Message> PollTransmit(NodeId peer, Lane lane);
  bool HasMessage(NodeId peer, Lane lane) const;
  // Peers for whom messages were queued since the last call, in order of first message: `dirty`
  // becomes these. What it has been is forgotten, but for its memory.
  void TakeDirty(std::vector<NodeId>& dirty) {
    dirty.clear();
    dirty.swap(dirty_);
    ++epoch_;
  }
  std::optional<Event> PollEvent();
  bool Quiet() const { return dirty_.empty() && next_event_ == events_.size(); }  // neither
  Time PollTimeout() const;  // kNever if none
  Work TakeWork();

  // ---- application ----
  // The worker's verbs. REQUIRES: role is kWorker.
  Worker& worker();
  // Send numbers to the coordinator `number` that lives on `host`. They leave behind everything that
  // is queued for `host` already, unless `priority` says otherwise.
  void Report(NodeId host, std::uint32_t number, std::span<const double> values,
              std::int32_t priority = INT32_MIN);
  // What a master that is no member says to a global server, through the process that runs it: the
  // initial value of a shard, as if a worker had sent it, and an instruction.
  // REQUIRES: role is kGlobalServer.
  void Initialise(const ShardInfo& shard, Buffer value, Time now);
  void Instruct(const std::string& text, Time now);
  // Leave in good order, once everything that was pushed is answered.
  void Leave(Time now);
  // What cannot go on before others act, once the run has started or on the scheduler; takes time in
  // proportion to the shards.
  std::vector<Wait> ListWaits() const;
  // The current global value of a shard. Null if there is none, or this is no global server.
  const Buffer* GlobalValue(Key key, std::uint32_t shard) const;

  // What this node will do depends on, besides what it is told.
  void Describe(Digest& digest) const;

  const NodeConfig& config() const { return config_; }
  NodeStats stats() const;
  bool stopped() const { return stopped_; }

  // ---- for role logic ----
  // Send one shard's value to `targets`, encoded, sliced and queued. `value` is null if phantom.
  void SendValue(std::span<const NodeId> targets, Direction direction, Header header,
                 const float* value, std::shared_ptr<const void> owner, Time now);
  // The same of a push of this node whose value lies on a device; it leaves as it arrives from there.
  void SendFrom(DeviceValue& device, NodeId target, const Header& header, const float* value,
                const std::shared_ptr<const void>& owner);
  // Send a push with what others gave this node on its way, to `target` instead of `root`. What the
  // codecs remember is what they would have remembered on the way to `root`.
  void SendMerged(NodeId root, NodeId target, const Header& header, const float* value,
                  std::shared_ptr<const void> owner, Buffer relayed);
  // The messages of a value, encoded and cut as for `peer`.
  std::vector<Message> Pack(NodeId peer, Direction direction, const Header& header,
                            const float* value, std::shared_ptr<const void> owner);
  // The message leaves for `target` in this node's name.
  void Queue(NodeId target, Message message);
  void SendControl(NodeId target, Kind kind, std::initializer_list<std::string_view> strings = {},
                   Round round = 0);
  // Ask `target` for the current value of the shard that `header` names.
  void SendRequest(NodeId target, Header header);
  void Emit(Event event) { events_.push_back(std::move(event)); }
  void ReportLoss(NodeId worker, float loss);
  // A reason for refusing `header` of `peer`: the shard has `elements` elsewhere.
  std::string SizesDiffer(const Header& header, NodeId peer, NodeId other,
                          std::uint32_t elements) const;
  Work& work() { return work_; }
  NodeStats& counts() { return stats_; }
  bool IsChild(NodeId id) const;
  // What is wrong with a push from a child that stands for `merge_count` workers; empty: nothing. With
  // an overlay a child may bring others' contributions with its own.
  std::string Miscount(NodeId child, std::uint32_t merge_count) const;
  // All who push to this node have left, so no round in which it takes part will be complete again.
  void TellFinished();
  // `waiting` waits for round `round` of a key, but `left`, without which it cannot end, took part in
  // `reached` rounds and has left: tell the scheduler. Said once, as it ends the run.
  void EndRound(NodeId left, Round reached, NodeId waiting, Key key, Round round);
  bool started() const { return started_; }
  // Everyone is connected: heartbeats begin.
  void HandleStarted(Time now);
  void set_stopped() { stopped_ = true; }
  const Peer* FindPeer(NodeId id) const;
  // A push from `header.source`, or a sum of such pushes, as a dense vector: what linear codecs made is
  // added up as it came, and decoded by this.
  Buffer Decoded(const Header& header, Buffer value);
  // Values of a shard that come from `peer` are passed on encoded from the next round on, if a device
  // can decode them.
  void KeepEncoded(NodeId peer, const ShardInfo& shard);
  // The codecs of such values.
  const CodecChain& Decoder(NodeId peer, const ShardInfo& shard);
  // Bytes of the vector that is added up for such a push.
  std::uint64_t AddedBytes(const Header& header);
  // Report at once, wherever the coordinator is: this node too.
  void Consult(NodeId host, std::uint32_t number, std::span<const double> values, Time now);

 private:
  // A peer, what is to be said to it, and how values travel there and back.
  struct Neighbour {
    const Peer* peer = nullptr;
    std::uint32_t stands_for = 0;  // a child: workers; otherwise 0
    bool parent = false;
    std::uint64_t dirty = 0;  // `epoch_` when it was last put into `dirty_`
    std::array<const LinkPlan*, kDirections> plans;
    SendQueue queue;
  };
  // What is done to a flow's values on their way.
  struct Handling {
    const LinkPlan* link;
    CodecChain chain = {};
    bool sums = false;  // values: what linear codecs made of pushes, added up, in that form
    bool keep = false;  // values: stay encoded
    std::vector<std::unique_ptr<Slicer>> slicers = {};
    Time close_at = kNever;  // when to stop waiting for best-effort slices
    std::uint64_t bytes = 0;               // of the round, as they crossed the wire
    std::vector<Message> messages = {};    // of the round, if they will be handed on
  };
  // One shard's traffic with one peer in one direction.
  struct Flow {
    Inbox inbox;
    std::unique_ptr<Handling> handling;  // null: as `plainly_`
  };
  // One encoding, for whom it will serve.
  struct Encoding {
    std::shared_ptr<Parts> parts;
    const Handling* handling = nullptr;  // which made them
  };
  struct FlowId {
    NodeId peer;
    Direction direction;
    bool plain;
    Key key;
    std::uint32_t shard;
    auto operator<=>(const FlowId&) const = default;
  };
  struct FlowIdHash {
    std::size_t operator()(const FlowId& id) const;
  };

  Flow& flow(const FlowId& id, const ShardInfo& shard);
  std::unique_ptr<Handling> MakeHandling(const FlowId& id, const ShardInfo& shard);
  Handling& handling(Flow& flow) { return flow.handling ? *flow.handling : plainly_; }
  Handling& outgoing(const FlowId& id, const ShardInfo& shard);
  // Null if there is no such peer.
  Neighbour* FindNeighbour(NodeId id);
  const Neighbour* FindNeighbour(NodeId id) const;
  Neighbour& neighbour(NodeId id);  // throws std::logic_error if there is none
  const LinkPlan& plan(NodeId peer, Direction direction) const;
  bool AnswersAreSums(NodeId peer, Direction direction) const;
  std::optional<Buffer> Settled(const Header& header, const Buffer& sum);
  void HandleTransfer(NodeId from, const Message& message, Time now);
  void CloseRound(const FlowId& id, Flow& flow, Time now);
  bool Expected(NodeId from, const Header& header) const;
  bool IsParent(NodeId id) const;
  std::uint64_t FrameRows(const Parts& encoded) const;
  std::uint64_t Bundle(const Handling& handling, const Parts& encoded) const;
  // The slices are valid until the next value is cut.
  const std::vector<Slice>& Cut(Handling& handling, const ShardInfo& shard, Round round,
                                const Parts& encoded, bool plain);
  void Encode(Handling& handling, const Header& header, const float* value,
              const std::shared_ptr<const void>& owner, Encoding& encoding);
  // Calls `take` with the messages of an encoded value, in order.
  template <class Take>
  void Slices(Handling& handling, Header header, bool phantom,
              const std::shared_ptr<Parts>& encoded, Take take);
  std::vector<Message> AllSlices(Handling& handling, const Header& header, bool phantom,
                                 const std::shared_ptr<Parts>& encoded);
  void Queue(Neighbour& target, Message message);
  void DropStale(Neighbour& target, const Header& header);
  // `from` sent what a correct peer would not. Best-effort messages are dropped and counted: the
  // connection is for those that a peer vouches for one by one.
  void Refuse(NodeId from, const Header& header, std::string reason);
  void SayBye();
  void HandleReport(NodeId from, const Message& message, Time now);
  std::string Stranger(NodeId id) const;
  bool SendReplies(std::uint32_t number, std::span<const Coordinator::Reply> replies);
  void HandleReply(NodeId from, std::uint32_t number, std::vector<double> values);
  void SendHeartbeats(Time now);
  void CheckHeartbeats(Time now);
  double LossRatio();

  NodeConfig config_;
  Handling plainly_;  // of all traffic that nothing encodes or slices: it has no state
  std::shared_ptr<Parts> dense_;  // of the last phantom value that nothing encoded
  std::vector<Slice> slices_;     // of the last value that was cut
  std::vector<NodeId> peers_;          // ascending
  std::vector<Neighbour> neighbours_;  // in the same order
  FlatMap<FlowId, Flow, FlowIdHash> flows_;
  std::vector<NodeId> dirty_;
  std::uint64_t epoch_ = 1;  // of `dirty_`
  std::vector<Event> events_;
  std::size_t next_event_ = 0;  // those before were polled
  std::map<std::pair<Time, std::uint64_t>, FlowId> closing_;  // rounds under a grace deadline
  std::uint64_t closing_sequence_ = 0;
  Time next_heartbeat_ = kNever;
  std::map<NodeId, Time> last_heard_;
  std::map<NodeId, float> losses_;
  std::optional<double> first_loss_;
  std::optional<double> loss_ratio_;  // of `losses_`, once it was asked for
  Work work_;
  NodeStats stats_;
  bool started_ = false;
  bool stopped_ = false;
  bool leaving_ = false;
  bool ended_round_ = false;  // said that one will never be complete
  bool left_ = false;
  bool linear_ = false;  // some flow's codecs are
  std::optional<Overlay> overlay_;
  std::unique_ptr<RoleLogic> logic_;
};

std::unique_ptr<RoleLogic> MakeServer(Node& node);
std::unique_ptr<RoleLogic> MakeGlobalServer(Node& node);
std::unique_ptr<RoleLogic> MakeScheduler(Node& node);
const Buffer* GlobalValueOf(const RoleLogic& logic, Key key, std::uint32_t shard);

}  // namespace geomx
