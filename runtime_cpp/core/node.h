// A Node is one member of the parameter-server tree: worker, local server, global server or
// scheduler. It does no I/O and reads no clock. The driver passes in messages, link changes and the
// time, and takes out messages, events and the next deadline:
//
//   simulation: Fabric (virtual time, SimPy's clock)      live: Loop (sockets, monotonic clock)
//
// Not thread-safe: one driver, one thread. docs/protocol.md has the messages and their order.
//
// The node itself only routes messages to its parts, which have files of their own: peers (send
// queues), sender and encoder (values out), receiver and flow (values in), linear_sums, membership,
// coordinator_host, overlay, and the role (worker, server, global_server, scheduler). Their shared
// state is in node_state.h.
//
// Invariants
//   1. A node's messages depend only on the sequence of calls made to it, not on the time of the
//      calls, except heartbeats, their timeouts, the grace for best-effort slices, and deadlines of
//      rounds.
//   2. One round of a shard is in flight per worker: a push waits until the value of the one before
//      has come. Nothing in here grows with the number of rounds.
//   3. Sums are made in the order of node ids (see aggregator.h).
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/coordinator_host.h"
#include "core/encoder.h"
#include "core/event.h"
#include "core/flow.h"
#include "core/linear_sums.h"
#include "core/member_change.h"
#include "core/membership.h"
#include "core/message.h"
#include "core/node_config.h"
#include "core/node_state.h"
#include "core/overlay.h"
#include "core/receiver.h"
#include "core/role.h"
#include "core/sender.h"
#include "core/types.h"
#include "core/wait.h"

namespace geomx {

class Worker;

class Node {
 public:
  // Throws std::invalid_argument if the configuration contradicts itself.
  explicit Node(NodeConfig config);
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  // ---- driver: in ----
  // Throws PluginFailure if a plugin's part fails on the message. A peer's violation of the
  // protocol is reported as an event.
  void HandleMessage(NodeId from, const Message& message, Time now);
  // The place for the payload of a message that has begun to arrive: the driver may receive it there
  // and pass it to HandleMessage as soon as it is complete, and must not keep it. Null if the payload
  // needs memory of its own.
  std::shared_ptr<std::byte> Room(NodeId from, const Header& header);
  // HandleMessage will soon be called with this message, which is from a peer: what it reads of the
  // message's flow is fetched into the cache, in two steps, of which the second needs the first.
  void PrefetchSlot(const Header& header) const { flows_.PrefetchSlot(FlowOf(header.source, header)); }
  void PrefetchEntry(const Header& header) const { flows_.PrefetchEntry(FlowOf(header.source, header)); }
  // Bytes from `peer` have arrived, possibly of an incomplete message: it is not silent.
  void Hear(NodeId peer, Time now) { membership_.Hear(peer, now); }
  // The connection to `peer` has ended, and another is being made; or there is one again. No
  // message is lost (see link.h), but a peer without a connection becomes suspect.
  void HandleLinkLost(NodeId peer, const std::string& reason, Time now) {
    membership_.HandleLinkLost(peer, reason, now);
  }
  void HandleLinkMade(NodeId peer, Time now) { membership_.HandleLinkMade(peer, now); }
  // The connection to `peer` has ended for good. Expected after its bye, or after the stop of the
  // run.
  void HandleLinkDown(NodeId peer, const std::string& reason, Time now) {
    membership_.HandleLinkDown(peer, reason, now);
  }
  void HandleTimeout(Time now);
  // Tells the scheduler that this node is connected to all its peers (live).
  void Ready(Time now) { membership_.Ready(now); }
  // All members are connected: skips the handshake (simulation).
  void AssumeStarted() { membership_.AssumeStarted(); }

  // ---- driver: out ----
  // The next message for `peer`, which leaves now.
  std::optional<Message> PollTransmit(NodeId peer, Lane lane) {
    std::optional<Message> message(std::in_place);
    if (!PollTransmit(peer, lane, *message)) message.reset();
    return message;
  }
  // Moves it to `message`; returns false if there is none.
  bool PollTransmit(NodeId peer, Lane lane, Message& message) {
    return state_.peers.Poll(peer, lane, message);
  }
  bool HasMessage(NodeId peer, Lane lane) const { return state_.peers.HasMessage(peer, lane); }
  // Bytes that wait to be sent to `peer`.
  std::size_t QueuedBytes(NodeId peer) const { return state_.peers.QueuedBytes(peer); }
  // Whether the next reliable message for `peer` is a heartbeat.
  bool HasHeartbeat(NodeId peer) const { return state_.peers.HasHeartbeat(peer); }
  // Whether no message for `peer` waits but a heartbeat.
  bool Quiet(NodeId peer) const { return state_.peers.Quiet(peer); }
  // Sets `dirty` to the peers for which messages were queued since the last call, in order of the
  // first message. Reuses the memory of `dirty`.
  void TakeDirty(std::vector<NodeId>& dirty) { state_.peers.TakeDirty(dirty); }
  std::optional<Event> PollEvent() { return state_.events.Poll(); }
  // Returns true if there is no dirty peer and no event.
  bool Quiet() const { return state_.peers.quiet() && state_.events.empty(); }
  Time PollTimeout() const;  // kNever if none
  Work TakeWork() { return std::exchange(state_.work, {}); }
  // Markers of the work that was queued on the device since the last call (device_work.h). The
  // driver waits for them on another thread and calls Resume after each, in order.
  DeviceWork::Ends TakeDeviceWork() { return state_.device.Take(); }
  void Resume(Time now) { state_.device.Resume(now); }

  // ---- application ----
  // The worker's verbs. Throws std::logic_error for any other role.
  Worker& worker();
  // Sends numbers to the coordinator `number` that lives on `host`. They leave after everything that
  // is queued for `host` already, unless `priority` says otherwise.
  void Report(NodeId host, std::uint32_t number, std::span<const double> values,
              std::int32_t priority = INT32_MIN) {
    coordinators_.Report(host, number, values, priority);
  }
  // For a master that is no member and speaks to a global server through the process that runs it:
  // the initial value of a shard, as if a worker had sent it, and an instruction. Throws
  // std::invalid_argument for any other role, or if the value does not have the shard's size.
  void Initialise(const ShardInfo& shard, Buffer value, Time now);
  void Instruct(const std::string& text, Time now);
  // Tells all members that a worker, this one, begins local step `iteration`: for scenarios, which have
  // events at steps. Only the first worker to say so is passed on.
  void BeginIteration(Round iteration) { membership_.BeginIteration(iteration); }
  // Leaves in good order, once everything that was pushed is answered.
  void Leave(Time now) {
    (void)now;
    membership_.Leave();
  }
  // This process has taken the place of one that it stood by, and has no standby itself.
  void ForgetStandby(Time now);
  // What this node waits for, once the run has started (on the scheduler: at any time). Takes time
  // in proportion to the number of shards.
  std::vector<Wait> ListWaits() const;
  // The current global value of a shard. Null if there is none, or this is no global server.
  const Buffer* GlobalValue(Key key, std::uint32_t shard) const;

  // What a server holds of its shards; empty for other roles. REQUIRES: Resting.
  std::vector<SavedShard> Saved() const { return role_->Saved(); }

  // Writes or reads all state that later calls depend on. To be read by a node that is fresh and has the
  // same configuration. Throws StateError if a plugin's part cannot write its state, or if what is read
  // is no such state. REQUIRES: Resting.
  void Exchange(Archive& archive);
  // Returns true if no device is at work, and no event is left to be polled.
  bool Resting() const { return state_.device.idle() && state_.events.empty(); }

  // Adds the state that this node's next actions depend on.
  void Describe(Digest& digest) const;

  const NodeConfig& config() const { return state_.config; }
  const Peer* FindPeer(NodeId id) const { return state_.peers.Find(id); }  // null if there is none
  NodeStats stats() const;
  // ---- for reports: nothing depends on it, and a process that continues this one does not know it ----
  // Of a server's rounds; null: this is no server.
  const RoundTimes* times() const { return role_->times(); }
  // Counts them from now on: live nodes report them, simulated ones do not.
  void CountTimes() { role_->CountTimes(); }
  bool Suspects(NodeId peer) const { return membership_.Suspects(peer); }
  std::uint32_t Suspicions(NodeId peer) const { return membership_.Suspicions(peer); }
  // The Euclidean norm of what the codecs of outgoing values keep for later ones (Codec::SquaredResidual).
  // Reads all of it, on the host.
  double ResidualNorm(Direction direction) const { return flows_.ResidualNorm(direction); }

  // The incarnation of a member's process that takes part, as announced to this node; 0: the first.
  // The driver must drop messages of any other process.
  std::uint32_t Incarnation(NodeId id) const {
    const auto found = incarnations_.find(id);
    return found == incarnations_.end() ? 0 : found->second;
  }
  bool started() const { return membership_.started(); }
  bool late() const { return late_; }  // it has started after the run had
  bool stopped() const { return membership_.stopped(); }

  // ---- roles and overlays ----
  // Queues a shard's value for `targets`: encoded, sliced (see sender.h).
  void Send(std::span<const NodeId> targets, const ShardValue& value, Time now) {
    sender_.Send(targets, value, now);
  }
  // Queues a message as it is.
  void Send(NodeId target, Message&& message) { state_.peers.Send(target, std::move(message)); }
  // Creates the messages of a value for `peer`, to be sent later or to other nodes; see
  // Sender::Pack.
  void Pack(NodeId peer, ShardValue value, Buffer relayed, Time now, Sender::Packed then) {
    sender_.Pack(peer, std::move(value), std::move(relayed), now, std::move(then));
  }
  DeviceWork& device() { return state_.device; }
  void Emit(Event&& event) { state_.Emit(std::move(event)); }
  void Fail(NodeId peer, std::string reason) { state_.Fail(peer, std::move(reason)); }
  Work& work() { return state_.work; }
  NodeStats& counts() { return state_.stats; }
  bool IsChild(NodeId id) const { return state_.peers.IsChild(id); }
  bool IsParent(NodeId id) const { return state_.peers.IsParent(id); }
  std::uint32_t StandsFor(NodeId id) const { return state_.peers.StandsFor(id); }
  bool IsAway(NodeId id) const { return state_.peers.Away(id); }  // lost
  void SetAway(NodeId id, bool away) { state_.peers.SetAway(id, away); }
  // Resets the codecs of values to and from `peer`.
  void Renew(NodeId peer) { flows_.Renew(peer); }
  // `peer` has lost its children and begins again: what is left of its messages is dropped.
  void BeginAnew(NodeId peer) {
    flows_.BeginAnew(peer);
    receiver_.Forget(peer);
  }
  // Completes what `peer` has sent except for best-effort slices, without waiting for these.
  void CloseWaiting(NodeId peer, Time now) { receiver_.CloseWaiting(peer, now); }
  // Queues a message even if the peer is lost.
  void SendAnyway(NodeId target, Message&& message) {
    state_.peers.Queue(state_.peers.Get(target), std::move(message));
  }
  // Handles a member that is lost or comes back: first its links, then the role.
  void Change(const MemberChange& change, Time now);
  // Returns an error if `child` cannot push a sum of `merge_count` workers; empty if it can. With
  // an overlay, a child's push may include others' contributions.
  std::string Miscount(NodeId child, std::uint32_t merge_count) const;
  LinearSums& sums() { return sums_; }
  FlowTable& flows() { return flows_; }
  Membership& membership() { return membership_; }
  // Reports at once, also to a coordinator on this node.
  void Consult(NodeId host, std::uint32_t number, std::span<const double> values, Time now) {
    coordinators_.Consult(host, number, values, now);
  }

 private:
  // Returns the reason to refuse a message before it is dispatched; empty if there is none.
  std::string Objection(const Peers::Neighbour& sender, NodeId from, const Header& header) const;
  bool Expected(const Peers::Neighbour& sender, NodeId from, const Header& header) const;
  // Returns true if initial values and instructions may come from this child.
  bool IsMaster(NodeId id) const;
  void Move(const MemberChange& change, Time now);
  void HandleControl(NodeId from, const Message& message, Time now);
  void StartWithParents(std::string age, Time now);

  NodeState state_;
  std::optional<Overlay> overlay_;
  FlowTable flows_;
  LinearSums sums_;
  Encoder encoder_;
  Sender sender_;
  Receiver receiver_;
  CoordinatorHost coordinators_;
  Membership membership_;
  std::unique_ptr<RoleLogic> role_;
  std::map<NodeId, std::uint32_t> incarnations_;  // of members that came back
  std::optional<std::string> start_due_;          // see StartWithParents
  bool late_ = false;                             // it has started after the run had
};

}  // namespace geomx
