#include "core/replay.h"

#include <algorithm>

#include "core/link.h"
#include "core/worker.h"

namespace geomx {
namespace {

// Throws a JournalError that tells the user what to do.
[[noreturn]] void Differs(const Node& node, const std::string& how) {
  throw JournalError("repeated from its journal, " + node.config().name + " " + how +
                     ": a plugin's part goes by more than what it is given");
}

}  // namespace

void Replay::Apply(std::span<const std::byte> body, Payload payload) {
  RecordReader record(body);
  try {
    if (!body.empty() && static_cast<RecordKind>(body.front()) == RecordKind::kBegin) {
      handler_.OnBegin(JournalBegin::Read(body));
    }
    if (const auto time = TimeOf(body)) now_ = *time + ahead_;
    Apply(record, std::move(payload));
  } catch (const std::logic_error& error) {
    throw JournalError(error.what());
  }
}

void Replay::Apply(RecordReader& record, Payload payload) {
  ++records_;
  Time now = 0;
  const auto kind = record.Get<RecordKind>();
  const bool fresh = fresh_;
  fresh_ = fresh && (kind == RecordKind::kBegin || kind == RecordKind::kState);
  switch (kind) {
    case RecordKind::kBegin: return;
    case RecordKind::kSnapshot:
      if (!fresh) throw JournalError("a snapshot that is not at the beginning");
      return Load(record);
    case RecordKind::kRestart:
      ++restarts_;
      state_.clear();  // of a call that was not recorded whole
      more_ = false;
      return;
    case RecordKind::kMessage: {
      const auto from = record.Get<NodeId>();
      now = TimeIn(record);
      const Message message = ReadMessage(record, std::move(payload));
      if (IsNumbered(message.header)) handler_.OnArrived(from);
      node_.HandleMessage(from, message, now);
      break;
    }
    case RecordKind::kHold: {
      const auto from = record.Get<NodeId>();
      const auto at = record.Get<Time>();  // as recorded, not shifted: held messages are released in its order
      Message message = ReadMessage(record, std::move(payload));
      if (IsNumbered(message.header)) handler_.OnArrived(from);
      held_.emplace(std::pair{at, records_}, Held{from, at + ahead_, std::move(message)});
      break;
    }
    case RecordKind::kRelease: {
      now = TimeIn(record);
      if (held_.empty()) throw JournalError("a message is handled that never arrived");
      const Held first = std::move(held_.begin()->second);
      held_.erase(held_.begin());
      node_.HandleMessage(first.from, first.message, now);
      break;
    }
    case RecordKind::kSends: ApplySends(record); return;
    case RecordKind::kTimeout: node_.HandleTimeout(now = TimeIn(record)); break;
    case RecordKind::kHear: {
      const auto peer = record.Get<NodeId>();
      node_.Hear(peer, now = TimeIn(record));
      break;
    }
    case RecordKind::kLinkMade: {
      const auto peer = record.Get<NodeId>();
      node_.HandleLinkMade(peer, now = TimeIn(record));
      handler_.OnLinkMade(peer);
      break;
    }
    case RecordKind::kLinkLost:
    case RecordKind::kLinkDown: {
      const auto peer = record.Get<NodeId>();
      now = TimeIn(record);
      const std::string reason = record.Text();
      if (kind == RecordKind::kLinkLost) {
        node_.HandleLinkLost(peer, reason, now);
      } else {
        node_.HandleLinkDown(peer, reason, now);
        handler_.OnLinkDown(peer, reason);
      }
      break;
    }
    case RecordKind::kReady:
      node_.Ready(now = TimeIn(record));
      handler_.OnReady();
      break;
    case RecordKind::kResume: Resume(now = TimeIn(record)); break;
    case RecordKind::kReport: {
      const auto host = record.Get<NodeId>();
      const auto number = record.Get<std::uint32_t>();
      std::vector<double> values;
      while (!record.empty()) values.push_back(record.Get<double>());
      node_.Report(host, number, values);
      handler_.OnVerb(kind, number);
      break;
    }
    case RecordKind::kInitialise: Initialise(record); break;
    case RecordKind::kInstruct: {
      now = TimeIn(record);
      node_.Instruct(record.Text(), now);
      break;
    }
    case RecordKind::kIteration: node_.BeginIteration(record.Get<Round>()); break;
    case RecordKind::kLeave:
      node_.Leave(now = TimeIn(record));
      handler_.OnVerb(kind, 0);
      break;
    case RecordKind::kReceived: {
      const auto peer = record.Get<NodeId>();
      handler_.OnReceived(peer, record.Get<std::uint32_t>());
      break;
    }
    case RecordKind::kIncarnation: {
      const auto peer = record.Get<NodeId>();
      Renewal renewal;
      renewal.incarnation = record.Get<std::uint32_t>();
      renewal.anew = record.Get<bool>();
      renewal.mark = record.Get<std::uint32_t>();
      if (renewal.anew) ForgetHeld(peer);
      handler_.OnRenewed(peer, renewal);
      break;
    }
    case RecordKind::kDeclare:
    case RecordKind::kInit:
    case RecordKind::kSubmit:
    case RecordKind::kRequest:
    case RecordKind::kBarrier:
    case RecordKind::kCommand:
      ApplyVerb(kind, record);
      now = now_;
      break;
    case RecordKind::kState: AddState(record.Get<bool>(), payload); break;
    case RecordKind::kNote: handler_.OnNote(record.Text(), std::exchange(state_, {})); break;
    default: throw JournalError("a record of an unknown kind");
  }
  record.End();
  Follow(now);
}

Message Replay::ReadMessage(RecordReader& record, Payload payload) const {
  std::string error;
  const auto header = ParseHeader(record.Take(kHeaderBytes).first<kHeaderBytes>(), error);
  if (!header || header->payload_bytes != payload.size()) {
    throw JournalError("a record holds no message: " + (error.empty() ? "its size differs" : error));
  }
  return {.header = *header, .payload = std::move(payload)};
}

void Replay::Initialise(RecordReader& record) {
  const auto now = TimeIn(record);
  ShardInfo shard;
  shard.key = record.Get<Key>();
  shard.index = record.Get<std::uint32_t>();
  shard.offset = record.Get<std::uint64_t>();
  shard.elements = record.Get<std::uint32_t>();
  shard.server = record.Get<std::uint32_t>();
  shard.priority = record.Get<std::int32_t>();
  shard.name = record.Get<std::uint32_t>();
  node_.Initialise(shard, TakeValue(shard.elements), now);
}

Buffer Replay::TakeValue(std::uint64_t elements) {
  Buffer value;
  if (state_.empty()) return value;
  const std::string bytes = std::move(state_.front());
  state_.clear();
  if (bytes.size() != elements * sizeof(float)) throw JournalError("a value has the wrong size");
  value.resize(elements);
  std::memcpy(value.data(), bytes.data(), bytes.size());
  return value;
}

void Replay::Load(RecordReader& record) {
  record.Get<Time>();
  restarts_ = record.Get<std::uint32_t>();
  record.End();
  if (state_.size() != 1 || more_) throw JournalError("a snapshot without its state");
  const std::string saved = std::exchange(state_, {}).front();
  try {
    Archive archive(std::as_bytes(std::span(saved)));
    node_.Exchange(archive);
    std::vector<Held> held;
    std::vector<Sending> under_way;
    archive(held, under_way);
    handler_.OnSnapshot(archive);
    archive.End();
    for (Held& each : held) held_.emplace(std::pair{each.at, ++records_}, std::move(each));
    for (Sending& each : under_way) {
      under_way_[{each.peer, each.lane}].push_back(std::move(each.message));
    }
  } catch (const StateError& error) {
    throw JournalError(std::string("its snapshot is not one of this node: ") + error.what());
  }
}

void Replay::AddState(bool more, const Payload& payload) {
  if (!std::exchange(more_, more)) state_.emplace_back();
  for (const Bytes& piece : payload.pieces()) {
    state_.back().append(reinterpret_cast<const char*>(piece.data()), piece.size());
  }
}

void Replay::ApplyVerb(RecordKind kind, RecordReader& record) {
  Worker& worker = node_.worker();
  if (kind == RecordKind::kBarrier) {
    worker.Barrier(TimeIn(record));
    return handler_.OnVerb(kind, 0);
  }
  if (kind == RecordKind::kCommand) {
    const auto now = TimeIn(record);
    const auto unless_given = record.Get<bool>();
    worker.Command(record.Text(), now, unless_given);
    return handler_.OnVerb(kind, 0);
  }
  const auto key = record.Get<Key>();
  if (kind == RecordKind::kDeclare) return Declare(key, record);
  const auto now = TimeIn(record);
  if (kind == RecordKind::kRequest) {
    worker.Request(key, now);
    return handler_.OnVerb(kind, key);
  }
  const auto values = std::make_shared<Buffer>(TakeValue(worker.Elements(key)));
  const float* const value = values->empty() ? nullptr : values->data();
  if (kind == RecordKind::kInit) {
    worker.Init(key, value, values, now);
  } else {
    Worker::Push push{.value = value, .owner = values};
    push.loss = record.Get<float>();
    push.last = record.Get<bool>();
    push.absent = record.Get<bool>();
    push.made = record.Get<std::uint32_t>();
    worker.Submit(key, std::move(push), now);
  }
  handler_.OnVerb(kind, key);
}

void Replay::Declare(Key key, RecordReader& record) {
  const auto elements = record.Get<std::uint64_t>();
  const auto name = record.Get<std::uint32_t>();
  std::vector<ShardInfo> shards;
  while (!record.empty()) {
    ShardInfo& shard = shards.emplace_back();
    shard.offset = record.Get<std::uint64_t>();
    shard.elements = record.Get<std::uint32_t>();
    shard.server = record.Get<std::uint32_t>();
    shard.priority = record.Get<std::int32_t>();
  }
  node_.worker().Declare(key, elements, Worker::Cut(key, elements, std::move(shards), name));
}

void Replay::Resume(Time now) {
  if (ends_.empty()) Differs(node_, "gave its device less to do");
  ends_.front()->Wait();
  ends_.pop_front();
  node_.Resume(now);
}

// Called after each call, as in a driver.
void Replay::Follow(Time now) {
  work_.Add(node_.TakeWork());
  for (auto& end : node_.TakeDeviceWork()) ends_.push_back(std::move(end));
  while (auto event = node_.PollEvent()) {
    if (event->kind == Event::Kind::kGone) ForgetHeld(event->peer);
    handler_.OnEvent(std::move(*event), now);
  }
}

// Nothing that a process has sent arrives after it was declared lost.
void Replay::ForgetHeld(NodeId from) {
  std::erase_if(held_, [from](const auto& each) { return each.second.from == from; });
}

// ---- messages that leave -----------------------------------------------------------------------

// Heartbeats are not recorded: those that are due now need not be those that were due then.
Message Replay::Poll(NodeId peer, Lane lane) {
  while (auto message = node_.PollTransmit(peer, lane)) {
    if (message->header.kind == Kind::kHeartbeat) continue;
    handler_.OnTaken(peer, *message);
    return std::move(*message);
  }
  Differs(node_, "has nothing to send where a message left");
}

void Replay::Settle(NodeId peer, Lane lane, Fate fate, Message message) {
  if (fate == Fate::kUnderWay) return under_way_[{peer, lane}].push_back(std::move(message));
  if (fate == Fate::kLinked) handler_.OnLinked(peer, std::move(message));
}

void Replay::ApplySends(RecordReader& record) {
  while (!record.empty()) {
    const auto peer = record.Get<NodeId>();
    const auto lane = record.Get<Lane>();
    const auto fate = record.Get<Fate>();
    const auto taken = record.Get<bool>();
    const auto times = record.Get<std::uint32_t>();
    if (node_.FindPeer(peer) == nullptr) throw JournalError("a message left for a node that is no peer");
    for (std::uint32_t i = 0; i < times; ++i) {
      if (taken) {
        Settle(peer, lane, fate, Poll(peer, lane));
        continue;
      }
      std::deque<Message>& waiting = under_way_[{peer, lane}];
      if (waiting.empty()) throw JournalError("a message left that was not under way");
      Message oldest = std::move(waiting.front());
      waiting.pop_front();
      Settle(peer, lane, fate, std::move(oldest));
    }
  }
}

// ---- the end -----------------------------------------------------------------------------------

std::vector<Replay::Held> Replay::TakeHeld() {
  std::vector<std::pair<std::uint64_t, Held>> numbered;
  for (auto& [when, held] : held_) numbered.emplace_back(when.second, std::move(held));
  held_.clear();
  std::sort(numbered.begin(), numbered.end(),
            [](const auto& one, const auto& other) { return one.first < other.first; });
  std::vector<Held> held;
  for (auto& [number, each] : numbered) held.push_back(std::move(each));
  return held;
}

std::vector<Replay::Sending> Replay::TakeUnderWay() {
  std::vector<Sending> sending;
  for (auto& [way, messages] : std::exchange(under_way_, {})) {
    for (Message& message : messages) sending.push_back({way.first, way.second, std::move(message)});
  }
  return sending;
}

}  // namespace geomx
