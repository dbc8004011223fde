#include "tests/wire.h"

#include <algorithm>
#include <utility>

namespace geomx::check {
namespace {

std::string Digest(const std::optional<Message>& message) {
  if (!message) return "nothing";
  const WireHeader header = SerializeHeader(message->header);
  std::string digest(reinterpret_cast<const char*>(header.data()), header.size());
  for (const Bytes& piece : message->payload.pieces()) {
    digest.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  }
  return digest;
}

std::string Digest(const std::optional<Event>& event) {
  if (!event) return "nothing";
  std::string digest;
  for (const std::uint64_t number :
       {std::uint64_t(event->kind), std::uint64_t{event->peer}, std::uint64_t{event->key},
        std::uint64_t{event->shard}, std::uint64_t{event->round}}) {
    digest += std::to_string(number) + " ";
  }
  return digest + event->text + " " + event->reason;
}

// Serialises and parses a message.
Message Cross(NodeId from, const Message& message) {
  Message arrived;
  std::string error;
  const auto header = ParseHeader(SerializeHeader(message.header), error);
  if (!header) {
    Report(__FILE__, __LINE__, "a node sent a header that no node accepts: " + error);
    return message;
  }
  arrived.header = *header;
  CHECK_EQ(header->source, from);
  CHECK_EQ(header->payload_bytes, message.payload.size());
  std::vector<std::byte> scratch;
  arrived.payload = message.payload.phantom() ? Payload::Phantom(message.payload.size())
                                              : Payload::Copy(message.payload.Contiguous(scratch));
  return arrived;
}

}  // namespace

Wire::Wire(std::uint64_t seed) : random(seed) {}
Wire::~Wire() = default;

void Wire::BreakConnections(const Carriers::Chances& chances) {
  if (!carriers_) carriers_ = std::make_unique<Carriers>(random);
  carriers_->chances = chances;
}

// ---- calls of tests --------------------------------------------------------------------------

void Wire::Add(std::function<NodeConfig()> make) {
  auto fresh = std::make_unique<RecordedNode>(make());
  const NodeId id = fresh->config().id;
  Member& member = members_[id];
  member.make = std::move(make);
  member.node = std::move(fresh);
}

void Wire::Do(NodeId id, std::function<void(Node&, Time)> verb) {
  CHECK(members_.at(id).journal == nullptr);
  Act(id, [verb = std::move(verb)](auto& node, Time now) {
    if constexpr (std::is_same_v<decltype(node), Node&>) {
      verb(node, now);
    } else {
      verb(node.node(), now);
    }
  });
}

template <class Verb>
void Wire::Act(NodeId id, Verb verb) {
  const Time now = now_;
  Record(id, [verb, now](Node& node) {
    verb(node, now);
    return std::string();
  });
  Member& member = members_.at(id);
  verb(*member.node, now);
  member.device_work += WaitForDevice(member.node->node());
  TakeEvents(id);
}

// Returns how much device work has ended since the last call. Nodes cannot observe the wait.
std::size_t Wire::WaitForDevice(Node& node) {
  const DeviceWork::Ends ends = node.TakeDeviceWork();
  for (const auto& end : ends) end->Wait();
  return ends.size();
}

void Wire::Drive(Time wait) {
  const Time until = now_ + wait;
  for (auto& [drives, held] : held_) {
    if (--drives == 0) loose_.push_back(std::move(held));
  }
  std::erase_if(held_, [](const auto& held) { return held.first == 0; });
  for (auto& [id, member] : members_) member.sends.reset();  // tests may have called nodes
  while (true) {
    while (Step()) ++now_;
    const Time next = NextTimeout();
    if (next > until) break;
    now_ = std::max(now_, next);
    for (auto& [id, member] : members_) {
      if (killed_.contains(id) || member.node->PollTimeout() > now_) continue;
      Act(id, [](auto& node, Time now) { node.HandleTimeout(now); });
    }
  }
  now_ = std::max(now_, until);
}

void Wire::Freeze(NodeId id) {
  killed_.insert(id);
  std::erase_if(links_, [&](const auto& link) {
    return link.first.first == id || link.first.second == id;
  });
}

void Wire::Kill(NodeId id, const std::string& reason) {
  Freeze(id);
  for (const Peer& peer : members_.at(id).node->config().peers) LinkDown(peer.id, id, reason);
}

void Wire::Replace(NodeId id) {
  Freeze(id);
  killed_.erase(id);
  ++replaced_[id];
  Member& member = members_.at(id);
  member.node = std::make_unique<RecordedNode>(member.make());
  member.tape.clear();
  member.sends.reset();
}

bool Wire::Advance(std::uint64_t moves) {
  for (; moves > 0; --moves, ++now_) {
    if (!Step()) return false;
  }
  return true;
}

void Wire::LinkDown(NodeId at, NodeId peer, const std::string& reason) {
  if (killed_.contains(at)) return;
  Do(at, [peer, reason](Node& node, Time now) { node.HandleLinkDown(peer, reason, now); });
}

void Wire::Deliver(NodeId from, NodeId to, Message message) {
  if (killed_.contains(to)) return;
  const auto copy = std::find_if(copies_.begin(), copies_.end(), [&](const auto& each) {
    return each->keeper == to && each->of == from && message.header.kind == Kind::kRecords;
  });
  if (copy != copies_.end()) {
    if (const auto batch = (*copy)->standby->Take(message)) {
      members_.at(to).node->node().Send(from, Confirmation(*batch));
    }
  }
  Act(to, [from, message = std::move(message)](auto& node, Time now) {
    node.HandleMessage(from, message, now);
  });
}

std::vector<Event> Wire::Events(NodeId id, Event::Kind kind) const {
  std::vector<Event> found;
  for (const Event& event : members_.at(id).events) {
    if (event.kind == kind) found.push_back(event);
  }
  return found;
}

std::size_t Wire::Count(Event::Kind kind) const {
  std::size_t count = 0;
  for (const auto& [id, member] : members_) count += Events(id, kind).size();
  return count;
}

void Wire::ClearEvents() {
  for (auto& [id, member] : members_) member.events.clear();
}

// ---- the record ------------------------------------------------------------------------------

void Wire::Record(NodeId id, std::function<std::string(Node&)> call, std::string output) {
  Member& member = members_.at(id);
  member.sends.reset();
  if (!member.journal && copies_.empty()) member.tape.push_back({std::move(call), std::move(output)});
}

void Wire::Replay(NodeId id) const {
  const Member& member = members_.at(id);
  if (member.journal || !copies_.empty()) return;
  Node fresh(member.make());
  for (const Taped& taped : member.tape) {
    if (taped.call(fresh) == taped.output) continue;
    Report(__FILE__, __LINE__, "replay of node " + std::to_string(id) + " differs");
    return;
  }
}

void Wire::ReplayAll() const {
  for (const auto& [id, member] : members_) Replay(id);
}

void Wire::TakeEvents(NodeId id) {
  Member& member = members_.at(id);
  while (true) {
    std::optional<Event> event = member.node->PollEvent();
    Record(id, [](Node& node) { return Digest(node.PollEvent()); }, Digest(event));
    if (!event) return;
    member.events.push_back(std::move(*event));
  }
}

bool Wire::Outlived(NodeId from, NodeId to) const {
  const auto replaced = replaced_.find(to);
  const Node& node = members_.at(from).node->node();
  if (replaced == replaced_.end() || node.config().role == Role::kScheduler) return false;
  return node.Incarnation(to) != replaced->second;
}

// ---- the network -----------------------------------------------------------------------------

// REQUIRES: there is a message in that lane.
Message Wire::Poll(NodeId from, NodeId to, Lane lane) {
  const std::optional<Message> message = members_.at(from).node->PollTransmit(to, lane);
  Record(from, [=](Node& node) { return Digest(node.PollTransmit(to, lane)); }, Digest(message));
  Traffic& traffic = traffic_[{from, to, message->header.kind}];
  ++traffic.messages;
  traffic.bytes += message->wire_bytes();
  return Cross(from, *message);
}

void Wire::SetLoose(NodeId from, NodeId to, Message message) {
  if (Chance(random, faults.loss)) {
    ++traffic_[{from, to, message.header.kind}].lost;
    return;
  }
  if (Chance(random, faults.duplicate)) loose_.push_back({from, to, message});
  if (Chance(random, faults.delay)) {
    held_.push_back({static_cast<int>(Between(random, 1, 2)), {from, to, std::move(message)}});
  } else {
    loose_.push_back({from, to, std::move(message)});
  }
}

std::vector<Wire::Move> Wire::Sends(const RecordedNode& node) {
  std::vector<Move> sends;
  for (const Peer& peer : node.config().peers) {
    for (const Lane lane : {Lane::kReliable, Lane::kBestEffort}) {
      if (!node.HasMessage(peer.id, lane)) continue;
      sends.push_back({Move::Kind::kSend, node.config().id, peer.id, lane});
    }
  }
  return sends;
}

std::vector<Wire::Move> Wire::Moves() {
  std::vector<Move> moves;
  for (auto& [id, member] : members_) {
    if (killed_.contains(id)) continue;
    if (!member.sends) member.sends = Sends(*member.node);
    if (!member.held.empty()) moves.push_back({Move::Kind::kRelease, id});
    for (const auto& [to, messages] : member.under_way) {
      if (!messages.empty()) moves.push_back({Move::Kind::kLeave, id, to});
    }
    for (const Move& send : *member.sends) {
      if (send.lane == Lane::kBestEffort && faults.stall) continue;
      const bool carried = send.lane == Lane::kBestEffort || !carriers_ ||
                           carriers_->Carried(send.from, send.to);
      if (carried) moves.push_back(send);
    }
  }
  if (carriers_) {
    std::vector<Carriers::Move> steps;
    carriers_->AddMoves(steps, !moves.empty());
    for (Carriers::Move& step : steps) moves.push_back({.kind = Move::Kind::kCarry, .carry = std::move(step)});
  }
  for (const auto& [ends, queue] : links_) {
    if (!queue.empty()) moves.push_back({Move::Kind::kDeliver, ends.first, ends.second});
  }
  for (const auto& [id, member] : members_) {
    if (member.device_work > 0 && !killed_.contains(id)) moves.push_back({Move::Kind::kResume, id});
  }
  if (!loose_.empty()) moves.push_back({Move::Kind::kArrive});
  return moves;
}

bool Wire::Step() {
  CutOne();
  if (CrashOne()) return true;
  if (!copies_.empty() && Chance(random, 0.3)) CommitAll();
  const std::vector<Move> moves = Moves();
  if (moves.empty()) return CommitAll();
  const Move& move = moves[Between(random, 0, moves.size() - 1)];
  switch (move.kind) {
    case Move::Kind::kSend: {
      Message message = Poll(move.from, move.to, move.lane);
      if (Outlived(move.from, move.to)) break;
      Member& member = members_.at(move.from);
      const bool reliable = move.lane == Lane::kReliable;
      const bool behind = member.under_way.contains(move.to) && !member.under_way.at(move.to).empty();
      const bool waits = member.journal && reliable && (behind || Chance(random, 0.3));
      const Fate fate = waits ? Fate::kUnderWay : reliable ? Fate::kLinked : Fate::kDropped;
      member.node->Took(move.to, move.lane, message, fate);
      if (waits) {
        member.under_way[move.to].push_back(std::move(message));
      } else if (reliable && carriers_) {
        carriers_->Send(move.from, move.to, std::move(message));
      } else if (move.lane == Lane::kReliable) {
        links_[{move.from, move.to}].push_back(std::move(message));
      } else {
        SetLoose(move.from, move.to, std::move(message));
      }
      break;
    }
    case Move::Kind::kDeliver: {
      std::deque<Message>& queue = links_.at({move.from, move.to});
      Message message = std::move(queue.front());
      queue.pop_front();
      Deliver(move.from, move.to, std::move(message));
      break;
    }
    case Move::Kind::kCarry:
      move.carry([this](NodeId from, NodeId to, Message message) {
        Member& member = members_.at(to);
        const bool behind = std::any_of(member.held.begin(), member.held.end(), [&](const auto& each) {
          return each.second.from == from;
        });
        if (!member.journal || (!behind && Chance(random, 0.7))) {
          return Deliver(from, to, std::move(message));
        }
        member.node->Hold(from, message, static_cast<Time>(member.order));
        member.held[member.order++] = {from, 0, std::move(message)};
      });
      break;
    case Move::Kind::kRelease: {
      auto first = members_.at(move.from).held.extract(members_.at(move.from).held.begin());
      RecordedNode& node = *members_.at(move.from).node;
      node.Release(first.mapped().from, first.mapped().message, now_);
      members_.at(move.from).device_work += WaitForDevice(node.node());
      TakeEvents(move.from);
      break;
    }
    case Move::Kind::kLeave: {
      std::deque<Message>& waiting = members_.at(move.from).under_way.at(move.to);
      members_.at(move.from).node->Left(move.to, Lane::kReliable, Fate::kLinked);
      carriers_->Send(move.from, move.to, std::move(waiting.front()));
      waiting.pop_front();
      break;
    }
    case Move::Kind::kResume:
      --members_.at(move.from).device_work;
      Act(move.from, [](auto& node, Time now) {
        // For a replayed node.
        if constexpr (std::is_same_v<decltype(node), Node&>) WaitForDevice(node);
        node.Resume(now);
      });
      break;
    case Move::Kind::kArrive: {
      std::swap(loose_[Between(random, 0, loose_.size() - 1)], loose_.back());
      Loose arriving = std::move(loose_.back());
      loose_.pop_back();
      Deliver(arriving.from, arriving.to, std::move(arriving.message));
      break;
    }
  }
  return true;
}

// ---- killed processes ------------------------------------------------------------------------

void Wire::CrashNodes(const std::vector<NodeId>& ids, double chance,
                      std::function<void(Node&)> begin) {
  mortal_ = ids;
  crash_chance_ = chance;
  begin_ = std::move(begin);
  for (const NodeId id : ids) {
    Member& member = members_.at(id);
    member.journal = std::make_unique<Journal>();
    member.node->RecordTo(member.journal.get());
  }
  carriers_->before_leaving = [this](NodeId from) {
    Member& member = members_.at(from);
    if (!member.journal) return;
    if (Chance(random, 0.3)) {
      for (const Peer& peer : member.node->config().peers) {
        member.node->Received(peer.id, carriers_->LinkOf(from, peer.id).outbox.acknowledged());
      }
    }
    member.node->Commit();
  };
}

// ---- standbys ----------------------------------------------------------------------------------

void Wire::StandBy(const std::vector<std::pair<NodeId, NodeId>>& pairs, NodeId scheduler, double chance,
                   std::function<void(Node&)> begin) {
  promoter_ = scheduler;
  takeover_chance_ = chance;
  for (const auto& [of, keeper] : pairs) {
    auto copy = std::make_unique<Copy>();
    copy->of = of;
    copy->keeper = keeper;
    copy->node = std::make_unique<RecordedNode>(members_.at(of).make());
    begin(copy->node->node());
    copy->standby = std::make_unique<Standby>(copy->node->node(), *copy);
    RecordedNode& primary = *members_.at(of).node;
    primary.ReplicateTo(keeper);
    for (const Peer& peer : primary.config().peers) {
      if (peer.id != keeper) carriers_->LinkOf(of, peer.id).gate.Close(0);
    }
    copies_.push_back(std::move(copy));
  }
}

// Ends batches, and lets leave what the standbys have confirmed. Returns whether anything changed.
bool Wire::CommitAll() {
  bool changed = false;
  for (const auto& copy : copies_) {
    RecordedNode& node = *members_.at(copy->of).node;
    if (node.replicator() == nullptr) continue;
    const std::uint64_t before = node.replicator()->committed();
    node.Commit();
    changed = changed || node.replicator()->committed() > before;
    members_.at(copy->of).sends.reset();
    for (const Peer& peer : node.config().peers) {
      Link<Message>& link = carriers_->LinkOf(copy->of, peer.id);
      link.gate.Mark(node.replicator()->committed(), link.arrivals.received());
      changed = link.gate.Release(node.replicator()->confirmed()) || changed;
    }
  }
  return changed;
}

// The process of a node that is stood by is killed, and its standby goes on where its records end.
void Wire::TakeOver(Copy& copy) {
  ++takeovers_;
  const NodeId id = copy.of;
  Member& member = members_.at(id);
  Do(promoter_, [id](Node& node, Time now) { node.HandleLinkDown(id, "killed", now); });
  CHECK_EQ(Events(promoter_, Event::Kind::kMoved).back().peer, id);
  carriers_->Crash(id);
  carriers_->Forget(id, copy.keeper);
  for (auto& [peer, link] : copy.links) {
    const std::uint32_t incarnation = carriers_->LinkOf(id, peer).incarnation;
    carriers_->LinkOf(id, peer) = std::move(link);
    carriers_->LinkOf(id, peer).incarnation = incarnation;
  }
  copy.of = copy.keeper;  // it copies nothing any more
  member.node = std::move(copy.node);
  member.node->node().ForgetStandby(now_);
  CHECK(copy.standby->replay().TakeHeld().empty());
  CHECK(copy.standby->replay().TakeUnderWay().empty());
  for (const auto& end : copy.standby->replay().TakeDeviceWork()) {
    end->Wait();
    ++member.device_work;
  }
  member.sends.reset();
}

void Wire::CutOne() {
  if (mortal_.empty() || !Chance(random, cut_chance_)) return;
  const NodeId id = mortal_[Between(random, 0, mortal_.size() - 1)];
  Member& member = members_.at(id);
  if (!member.node->node().Resting()) return;
  ++cuts_;
  member.node->Commit();
  geomx::OutsideNode outside;
  for (const auto& [order, held] : member.held) {
    outside.held.push_back({held.from, static_cast<Time>(order), held.message});
  }
  for (const auto& [peer, messages] : member.under_way) {
    for (const Message& message : messages) outside.under_way.push_back({peer, Lane::kReliable, message});
  }
  outside.exchange = [&](Archive& archive) { ExchangeLinks(archive, id); };
  Journal cut;
  member.node->Snapshot(cut, outside, now_);
  cut.Commit();
  *member.journal = std::move(cut);
}

void Wire::ExchangeLinks(Archive& archive, NodeId id) {
  for (const Peer& peer : members_.at(id).node->config().peers) {
    carriers_->LinkOf(id, peer.id).Exchange(
        archive, [](const Message& message) { return message; },
        [](Message message) { return message; });
  }
}

bool Wire::CrashOne() {
  if (!copies_.empty() && !node(promoter_).stopped() && Chance(random, takeover_chance_)) {
    Copy& copy = *copies_[Between(random, 0, copies_.size() - 1)];
    if (copy.node) return TakeOver(copy), true;
  }
  if (mortal_.empty() || !Chance(random, crash_chance_)) return false;
  Crash(mortal_[Between(random, 0, mortal_.size() - 1)]);
  return true;
}

void Wire::Crash(NodeId id) {
  ++crashes_;
  Member& member = members_.at(id);
  geomx::Digest before(now_), after(now_);
  const bool all_written = Chance(random, 0.5);
  if (all_written) member.node->Commit();
  member.node->node().Describe(before);
  member.node.reset();
  member.journal->records.resize(member.journal->committed);
  Restart(member, id);
  member.node->node().Describe(after);
  if (all_written) CHECK(before.lanes() == after.lanes());
}

void Wire::Restart(Member& member, NodeId id) {
  struct Restorer final : geomx::Replay::Handler {
    Wire& wire;
    Carriers& carriers;
    NodeId self;
    Restorer(Wire& its_wire, NodeId its_self)
        : wire(its_wire), carriers(*its_wire.carriers_), self(its_self) {}
    void OnSnapshot(Archive& archive) override { wire.ExchangeLinks(archive, self); }
    void OnTaken(NodeId, const Message&) override {}
    void OnLinked(NodeId peer, Message message) override {
      carriers.LinkOf(self, peer).outbox.AddLeft(std::move(message));
    }
    void OnArrived(NodeId peer) override { CHECK(carriers.LinkOf(self, peer).arrivals.Take()); }
    void OnReceived(NodeId peer, std::uint32_t count) override {
      CHECK(carriers.LinkOf(self, peer).outbox.Acknowledge(count));
    }
    void OnRenewed(NodeId, const Renewal&) override {}
    void OnLinkMade(NodeId) override {}
    void OnLinkDown(NodeId, const std::string&) override {}
    void OnReady() override {}
    void OnEvent(Event, Time) override {}
  };
  carriers_->Crash(id);
  Restorer restorer(*this, id);
  member.node = std::make_unique<RecordedNode>(member.make());
  begin_(member.node->node());
  geomx::Replay replay(member.node->node(), restorer);
  for (const auto& [body, payload] : member.journal->records) replay.Apply(body, payload);
  member.held.clear();
  for (geomx::Replay::Held& each : replay.TakeHeld()) {
    const auto order = static_cast<std::uint64_t>(each.at);
    member.held[order] = std::move(each);
  }
  member.under_way.clear();
  for (geomx::Replay::Sending& each : replay.TakeUnderWay()) {
    member.under_way[each.peer].push_back(std::move(each.message));
  }
  member.device_work = 0;
  for (const auto& end : replay.TakeDeviceWork()) {
    end->Wait();
    ++member.device_work;
  }
  member.sends.reset();
  member.node->RecordTo(member.journal.get());
}

Time Wire::NextTimeout() const {
  Time earliest = kNever;
  for (const auto& [id, member] : members_) {
    if (!killed_.contains(id)) earliest = std::min(earliest, member.node->PollTimeout());
  }
  return earliest;
}

}  // namespace geomx::check
