// A node whose inputs are recorded, so that another process can continue after this one was killed.
//
// A node's messages depend only on the calls made to it (node.h, invariant 1). A process that
// repeats these calls therefore reaches the same state, including that of codecs, optimizers and
// policies. Each call of the driver is recorded before it is made; so is the order in which
// messages are taken and leave, which determines their numbers (link.h). The driver calls Commit
// before any message leaves that depends on them. This is pessimistic message logging: Elnozahy et
// al., "A survey of rollback-recovery protocols in message-passing systems", ACM Computing Surveys
// 34 (3), 2002.
//
// Heartbeats are not recorded: they affect only which peers count as silent. Without a journal
// nothing is recorded, and a call costs one more comparison. The journal may go to a standby instead
// of a file (replicator.h); messages between the two are not recorded.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/node.h"
#include "core/records.h"
#include "core/replicator.h"
#include "core/snapshot.h"
#include "core/worker.h"

namespace geomx {

class RecordedNode {
 public:
  explicit RecordedNode(NodeConfig config) : node_(std::move(config)) {}

  // Records calls to `journal`, which must outlive this, from now on; null: stops recording.
  void RecordTo(JournalOut* journal) { journal_ = journal; }
  bool recorded() const { return journal_ != nullptr; }
  // Records calls, from now on, to the node's standby, a peer that gets them in messages.
  void ReplicateTo(NodeId standby) {
    replicator_ = std::make_unique<Replicator>(config().id, standby);
    journal_ = replicator_.get();
  }
  // The standby is lost, or no longer needed: calls are not recorded any more.
  void StopReplicating() {
    if (replicator_ == nullptr) return;
    journal_ = nullptr;
    replicator_.reset();
    sends_.clear();
    heard_.clear();
  }
  const Replicator* replicator() const { return replicator_.get(); }  // null: there is no standby
  JournalOut& journal() { return *journal_; }  // REQUIRES: recorded()
  // Makes all records durable. Throws JournalError.
  void Commit() {
    if (journal_) CommitNow();
  }

  // ---- Node's functions, recorded ----
  void HandleMessage(NodeId from, const Message& message, Time now);
  void Hear(NodeId peer, Time now);
  void HandleLinkLost(NodeId peer, const std::string& reason, Time now);
  void HandleLinkMade(NodeId peer, Time now);
  void HandleLinkDown(NodeId peer, const std::string& reason, Time now);
  void HandleTimeout(Time now);
  void Ready(Time now);
  void Resume(Time now);
  void Report(NodeId host, std::uint32_t number, std::span<const double> values);
  void Initialise(const ShardInfo& shard, Buffer value, Time now);
  void Instruct(const std::string& text, Time now);
  void BeginIteration(Round iteration);
  void Leave(Time now);

  // See Node::Room; null where messages are kept.
  std::shared_ptr<std::byte> Room(NodeId from, const Header& header) {
    return journal_ ? nullptr : node_.Room(from, header);
  }

  // ---- a worker's, recorded (worker.h) ----
  void Declare(Key key, std::uint64_t elements, const Worker::SharedShards& shards);
  void Init(Key key, const float* value, std::shared_ptr<const void> owner, Time now);
  Round Submit(Key key, Worker::Push push, Time now);
  void Request(Key key, Time now);
  void Barrier(Time now);
  void Command(const std::string& text, Time now, bool unless_given);
  // The application notes where it is: a text, and parts of its state. A replay hands out the latest
  // note, with the values that the node held at that moment. Without a journal it has no effect.
  void Note(const std::string& text, const std::vector<std::string>& state);
  // Writes the state of the node and of what is `outside` to `out`, behind a record of kBegin: another
  // process continues from there as from all records so far. Throws StateError if a part cannot write
  // its state, JournalError if `out` cannot be written. REQUIRES: Commit was called, and
  // node().Resting().
  void Snapshot(JournalOut& out, const OutsideNode& outside, Time now);

  // ---- the driver's part ----
  // Holds a message that Release will pass to the node later, in the order of `at`, then of
  // arrival.
  void Hold(NodeId from, const Message& message, Time at);
  void Release(NodeId from, const Message& message, Time now);
  // The fate of the message that PollTransmit returned last.
  void Took(NodeId peer, Lane lane, const Message& message, Fate fate) {
    if (journal_ && message.header.kind != Kind::kHeartbeat && !IsStandby(peer)) AddSend(peer, lane, fate, true);
  }
  // The fate of the oldest message under way on a lane.
  void Left(NodeId peer, Lane lane, Fate fate) {
    if (journal_ && !IsStandby(peer)) AddSend(peer, lane, fate, false);
  }
  // The other end of a link has received `count` messages: a replay need not keep them.
  void Received(NodeId peer, std::uint32_t count);
  // Another process takes the place of `peer`'s.
  void Renewed(NodeId peer, const Renewal& renewal);

  // ---- Node's functions; the standby's queue also has records ----
  std::optional<Message> PollTransmit(NodeId peer, Lane lane) {
    if (IsStandby(peer) && lane == Lane::kReliable && replicator_->HasMessage() && !node_.HasHeartbeat(peer)) {
      return replicator_->Poll();
    }
    return node_.PollTransmit(peer, lane);
  }
  bool PollTransmit(NodeId peer, Lane lane, Message& message) {
    if (replicator_ == nullptr) return node_.PollTransmit(peer, lane, message);
    auto next = PollTransmit(peer, lane);
    if (next) message = std::move(*next);
    return next.has_value();
  }
  bool HasMessage(NodeId peer, Lane lane) const {
    return node_.HasMessage(peer, lane) ||
           (IsStandby(peer) && lane == Lane::kReliable && replicator_->HasMessage());
  }
  void TakeDirty(std::vector<NodeId>& dirty) {
    node_.TakeDirty(dirty);
    if (replicator_ && replicator_->TakeNews()) dirty.push_back(replicator_->standby());
  }

  bool Quiet() const { return node_.Quiet() && !(replicator_ && replicator_->HasMessage()); }

  // ---- Node's functions, unchanged ----
  bool HasHeartbeat(NodeId peer) const { return node_.HasHeartbeat(peer); }
  bool Quiet(NodeId peer) const { return node_.Quiet(peer); }
  std::optional<Event> PollEvent() { return node_.PollEvent(); }
  Time PollTimeout() const { return node_.PollTimeout(); }
  Work TakeWork() { return node_.TakeWork(); }
  DeviceWork::Ends TakeDeviceWork() { return node_.TakeDeviceWork(); }
  std::vector<Wait> ListWaits() const { return node_.ListWaits(); }
  const Buffer* GlobalValue(Key key, std::uint32_t shard) const { return node_.GlobalValue(key, shard); }
  const NodeConfig& config() const { return node_.config(); }
  const Peer* FindPeer(NodeId id) const { return node_.FindPeer(id); }
  NodeStats stats() const { return node_.stats(); }
  const RoundTimes* times() const { return node_.times(); }
  void CountTimes() { node_.CountTimes(); }
  bool Suspects(NodeId peer) const { return node_.Suspects(peer); }
  std::uint32_t Suspicions(NodeId peer) const { return node_.Suspicions(peer); }
  double ResidualNorm(Direction direction) const { return node_.ResidualNorm(direction); }
  std::size_t QueuedBytes(NodeId peer) const { return node_.QueuedBytes(peer); }
  std::uint32_t Incarnation(NodeId id) const { return node_.Incarnation(id); }
  void Describe(Digest& digest) const { node_.Describe(digest); }
  bool started() const { return node_.started(); }
  bool stopped() const { return node_.stopped(); }
  // For what changes nothing. Throws std::logic_error for any other role.
  Worker& worker() { return node_.worker(); }
  // For a replay, and tests: calls to it are not recorded.
  Node& node() { return node_; }
  const Node& node() const { return node_; }

  bool IsStandby(NodeId peer) const { return replicator_ && replicator_->standby() == peer; }

 private:
  struct Send {
    NodeId peer = 0;
    Lane lane = Lane::kReliable;
    Fate fate = Fate::kLinked;
    bool taken = false;  // taken from the node just now; otherwise it was under way
    std::uint32_t times = 0;
  };

  void Add(const FieldWriter& record, const Payload& payload = {});
  void AddSend(NodeId peer, Lane lane, Fate fate, bool taken);
  void AddMessage(RecordKind kind, NodeId from, const Message& message, Time time);
  void AddState(Bytes bytes, const std::shared_ptr<const void>& owner);
  void AddValue(Key key, const float* value, const std::shared_ptr<const void>& owner);
  void FlushSends();
  void FlushHeard();
  void CommitNow();

  Node node_;
  JournalOut* journal_ = nullptr;
  std::unique_ptr<Replicator> replicator_;  // or null; it is the journal then
  std::vector<Send> sends_;       // since the last record
  std::map<NodeId, Time> heard_;  // since the last timeout; only a timeout looks at these times
};

}  // namespace geomx
