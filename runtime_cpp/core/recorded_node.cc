#include "core/recorded_node.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace geomx {

// ---- records -----------------------------------------------------------------------------------

void RecordedNode::Add(const FieldWriter& record, const Payload& payload) {
  FlushSends();
  journal_->Add(record.body(), payload);
}

void RecordedNode::AddMessage(RecordKind kind, NodeId from, const Message& message, Time time) {
  Add(RecordWriter(kind).Put(from).Put(time).Put(SerializeHeader(message.header)), message.payload);
}

void RecordedNode::AddSend(NodeId peer, Lane lane, Fate fate, bool taken) {
  if (!sends_.empty()) {
    Send& last = sends_.back();
    if (last.peer == peer && last.lane == lane && last.fate == fate && last.taken == taken) {
      ++last.times;
      return;
    }
  }
  sends_.push_back({peer, lane, fate, taken, 1});
}

void RecordedNode::FlushSends() {
  if (sends_.empty()) return;
  RecordWriter record(RecordKind::kSends);
  for (const Send& send : std::exchange(sends_, {})) {
    record.Put(send.peer).Put(send.lane).Put(send.fate).Put(send.taken).Put(send.times);
  }
  journal_->Add(record.body(), {});
}

void RecordedNode::FlushHeard() {
  for (const auto& [peer, time] : heard_) Add(RecordWriter(RecordKind::kHear).Put(peer).Put(time));
  heard_.clear();
}

void RecordedNode::CommitNow() {
  FlushSends();
  journal_->Commit();
}

// ---- calls -------------------------------------------------------------------------------------

void RecordedNode::HandleMessage(NodeId from, const Message& message, Time now) {
  const bool confirms = message.header.kind == Kind::kReplicated;
  if (IsStandby(from) || (confirms && from == config().standby)) {  // they concern this process alone
    // One may have been on its way when the run stopped, from when on nothing is replicated.
    if (confirms && replicator_ && !replicator_->Confirm(message.header.offset)) {
      return node_.Fail(from, "confirms records that were never sent");
    }
    return Hear(from, now);
  }
  if (journal_) {
    if (message.header.kind == Kind::kHeartbeat) {
      heard_[from] = now;
    } else {
      heard_.erase(from);
      AddMessage(RecordKind::kMessage, from, message, now);
    }
  }
  node_.HandleMessage(from, message, now);
}

void RecordedNode::Hold(NodeId from, const Message& message, Time at) {
  if (journal_ && !IsStandby(from) && message.header.kind != Kind::kHeartbeat) AddMessage(RecordKind::kHold, from, message, at);
}

void RecordedNode::Release(NodeId from, const Message& message, Time now) {
  if (IsStandby(from) || from == config().standby) return HandleMessage(from, message, now);
  if (journal_ && message.header.kind != Kind::kHeartbeat) {
    heard_.erase(from);
    Add(RecordWriter(RecordKind::kRelease).Put(now));
  }
  node_.HandleMessage(from, message, now);
}

void RecordedNode::Hear(NodeId peer, Time now) {
  if (journal_) heard_[peer] = now;
  node_.Hear(peer, now);
}

void RecordedNode::HandleLinkLost(NodeId peer, const std::string& reason, Time now) {
  if (journal_) Add(RecordWriter(RecordKind::kLinkLost).Put(peer).Put(now).Text(reason));
  node_.HandleLinkLost(peer, reason, now);
}

void RecordedNode::HandleLinkMade(NodeId peer, Time now) {
  if (journal_) Add(RecordWriter(RecordKind::kLinkMade).Put(peer).Put(now));
  node_.HandleLinkMade(peer, now);
}

void RecordedNode::HandleLinkDown(NodeId peer, const std::string& reason, Time now) {
  if (journal_) Add(RecordWriter(RecordKind::kLinkDown).Put(peer).Put(now).Text(reason));
  node_.HandleLinkDown(peer, reason, now);
}

void RecordedNode::HandleTimeout(Time now) {
  if (journal_) {
    FlushHeard();
    Add(RecordWriter(RecordKind::kTimeout).Put(now));
  }
  node_.HandleTimeout(now);
}

void RecordedNode::Ready(Time now) {
  if (journal_) Add(RecordWriter(RecordKind::kReady).Put(now));
  node_.Ready(now);
}

void RecordedNode::Resume(Time now) {
  if (journal_) Add(RecordWriter(RecordKind::kResume).Put(now));
  node_.Resume(now);
}

void RecordedNode::Report(NodeId host, std::uint32_t number, std::span<const double> values) {
  if (journal_) {
    RecordWriter record(RecordKind::kReport);
    record.Put(host).Put(number);
    for (const double value : values) record.Put(value);
    Add(record);
  }
  node_.Report(host, number, values);
}

void RecordedNode::Initialise(const ShardInfo& shard, Buffer value, Time now) {
  if (journal_) {
    const auto kept = std::make_shared<const Buffer>(value);
    AddState(std::as_bytes(std::span(*kept)), kept);
    RecordWriter record(RecordKind::kInitialise);
    record.Put(now).Put(shard.key).Put(shard.index).Put(shard.offset).Put(shard.elements);
    record.Put(shard.server).Put(shard.priority).Put(shard.name);
    Add(record);
  }
  node_.Initialise(shard, std::move(value), now);
}

void RecordedNode::Instruct(const std::string& text, Time now) {
  if (journal_) Add(RecordWriter(RecordKind::kInstruct).Put(now).Text(text));
  node_.Instruct(text, now);
}

void RecordedNode::BeginIteration(Round iteration) {
  if (journal_) Add(RecordWriter(RecordKind::kIteration).Put(iteration));
  node_.BeginIteration(iteration);
}

void RecordedNode::Leave(Time now) {
  if (journal_) Add(RecordWriter(RecordKind::kLeave).Put(now));
  node_.Leave(now);
}

// ---- a worker's calls --------------------------------------------------------------------------

// In pieces of at most a record's length.
void RecordedNode::AddState(Bytes bytes, const std::shared_ptr<const void>& owner) {
  do {
    const Bytes piece = bytes.first(std::min<std::size_t>(bytes.size(), kMaxPayloadBytes));
    bytes = bytes.subspan(piece.size());
    Add(RecordWriter(RecordKind::kState).Put(!bytes.empty()), Payload::View(piece, owner));
  } while (!bytes.empty());
}

void RecordedNode::AddValue(Key key, const float* value, const std::shared_ptr<const void>& owner) {
  if (value != nullptr) AddState(std::as_bytes(std::span(value, worker().Elements(key))), owner);
}

void RecordedNode::Declare(Key key, std::uint64_t elements, const Worker::SharedShards& shards) {
  if (journal_) {
    RecordWriter record(RecordKind::kDeclare);
    record.Put(key).Put(elements).Put(shards->front().name);
    for (const ShardInfo& shard : *shards) {
      record.Put(shard.offset).Put(shard.elements).Put(shard.server).Put(shard.priority);
    }
    Add(record);
  }
  worker().Declare(key, elements, shards);
}

void RecordedNode::Init(Key key, const float* value, std::shared_ptr<const void> owner, Time now) {
  if (journal_) {
    AddValue(key, value, owner);
    Add(RecordWriter(RecordKind::kInit).Put(key).Put(now));
  }
  worker().Init(key, value, std::move(owner), now);
}

Round RecordedNode::Submit(Key key, Worker::Push push, Time now) {
  if (journal_) {
    if (push.device) throw JournalError("pushes from a device cannot be recorded");
    AddValue(key, push.value, push.owner);
    RecordWriter record(RecordKind::kSubmit);
    Add(record.Put(key).Put(now).Put(push.loss).Put(push.last).Put(push.absent).Put(push.made));
  }
  return worker().Submit(key, std::move(push), now);
}

void RecordedNode::Request(Key key, Time now) {
  if (journal_) Add(RecordWriter(RecordKind::kRequest).Put(key).Put(now));
  worker().Request(key, now);
}

void RecordedNode::Barrier(Time now) {
  if (journal_) Add(RecordWriter(RecordKind::kBarrier).Put(now));
  worker().Barrier(now);
}

void RecordedNode::Command(const std::string& text, Time now, bool unless_given) {
  if (journal_) Add(RecordWriter(RecordKind::kCommand).Put(now).Put(unless_given).Text(text));
  worker().Command(text, now, unless_given);
}

void RecordedNode::Note(const std::string& text, const std::vector<std::string>& state) {
  if (!journal_) return;
  for (const std::string& part : state) {
    const auto kept = std::make_shared<const std::string>(part);
    AddState(std::as_bytes(std::span(*kept)), kept);
  }
  Add(RecordWriter(RecordKind::kNote).Text(text));
}

void RecordedNode::Snapshot(JournalOut& out, const OutsideNode& outside, Time now) {
  if (!sends_.empty()) throw std::logic_error("messages have left that are not recorded");
  PieceWriter pieces(out);
  Archive archive([&pieces](Bytes bytes) { pieces.Write(bytes); });
  node_.Exchange(archive);
  auto held = outside.held;
  auto under_way = outside.under_way;
  archive(held, under_way);
  outside.exchange(archive);
  pieces.End();
  out.Add(RecordWriter(RecordKind::kSnapshot).Put(now).Put(outside.restarts).body(), {});
}

// ---- links -------------------------------------------------------------------------------------

void RecordedNode::Received(NodeId peer, std::uint32_t count) {
  if (journal_ && !IsStandby(peer)) Add(RecordWriter(RecordKind::kReceived).Put(peer).Put(count));
}

void RecordedNode::Renewed(NodeId peer, const Renewal& renewal) {
  if (!journal_) return;
  Add(RecordWriter(RecordKind::kIncarnation).Put(peer).Put(renewal.incarnation).Put(renewal.anew).Put(renewal.mark));
}

}  // namespace geomx
