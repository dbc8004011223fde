// The node of a process: how it is created, and the messages between it and its links, as in io/driver.h.
#include "faults/process.h"

#include <algorithm>
#include <sstream>

#include "core/event.h"
#include "core/out_of_band.h"
#include "core/worker.h"

namespace geomx::faults {
namespace {

constexpr Time kAcknowledgeAfter = 20 * kMillisecond;

}  // namespace

Process::Process(Surroundings& world, const Experiment& experiment, ProcessId its_id, Journal* journal,
                 Counts& counts)
    : id(its_id),
      world_(world),
      experiment_(experiment),
      journal_(journal),
      counts_(counts),
      mark_(static_cast<std::uint32_t>(world.random()()) | 1) {}

// ---- beginning ---------------------------------------------------------------------------------

void Process::Begin() {
  if (journal_ != nullptr && journal_->begun) return Continue();
  if (id.node != kScheduler) return Dial(kScheduler);
  MakeNode();
  Follow();
}

void Process::SayJoin() {
  if (std::exchange(join_said_, true)) return;
  const std::string name = check::Layout::Name(id.node);
  Message join = ControlMessage(Kind::kJoin, {name, "1", "address-of-" + name});
  join.header.source = id.node;
  join.header.payload_bytes = static_cast<std::uint32_t>(join.payload.size());
  peerings_[kScheduler].link.outbox.Add(std::move(join), true);
}

// Creates the node from the roster, the scheduler's answer to a join, which contains all incarnations.
void Process::BeforeTheNode(const Message& message) {
  if (message.header.kind != Kind::kRoster) return;
  std::vector<std::byte> scratch;
  const auto words = UnpackStrings(message.payload.Contiguous(scratch), 2);
  if (!words) return world_.Fail(id.node, "a malformed roster");
  std::istringstream lines((*words)[1]);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find('\t'), last = line.rfind('\t');
    roster_[line.substr(0, first)] = static_cast<std::uint32_t>(std::stoul(line.substr(last + 1)));
  }
  late_ = message.header.round > 0;
  MakeNode();
  for (const NodeId peer : PeersToCall()) {
    const bool known = roster_.contains(check::Layout::Name(peer));
    if (known || !node_->config().continues) Dial(peer);
  }
  node_->HandleLinkMade(kScheduler, world_.now());
  Follow();
  Recheck();
  CheckReady();
}

void Process::MakeNode() {
  node_ = std::make_unique<RecordedNode>(world_.Config(id.node));
  for (const Peer& peer : node_->config().peers) {
    const auto found = roster_.find(peer.name);
    if (found != roster_.end()) incarnations_[peer.id] = found->second;
  }
  const auto own = roster_.find(node_->config().name);
  if (own != roster_.end()) own_incarnation_ = own->second;
  if (keeps_journal() && !journal_->begun) BeginJournal();
}

// Returns the peers that this node dials: its parents, and siblings with smaller ids.
std::vector<NodeId> Process::PeersToCall() const {
  const NodeConfig& config = node_->config();
  std::set<NodeId> called(config.parents.begin(), config.parents.end());
  for (const OverlayGroup& group : config.groups) {
    if (group.root == id.node) continue;
    for (const NodeId sibling : group.members) {
      if (sibling < id.node) called.insert(sibling);
    }
  }
  return {called.begin(), called.end()};
}

void Process::CheckReady() {
  if (!node_ || ready_ || !node_->config().scheduler) return;
  const std::vector<NodeId>& absent = node_->config().absent;
  for (const Peer& peer : node_->config().peers) {
    const bool expected = std::find(absent.begin(), absent.end(), peer.id) == absent.end();
    if (!late_ && expected && !peerings_[peer.id].made) return;
  }
  ready_ = true;
  node_->Ready(world_.now());
  Follow();
}

// ---- the node ----------------------------------------------------------------------------------

void Process::Follow() {
  if (!node_ || std::exchange(following_, true)) return;
  while (auto event = node_->PollEvent()) Act(*event);
  node_->TakeWork();
  following_ = false;
  node_->TakeDirty(dirty_);
  for (const NodeId peer : std::vector(dirty_)) Pump(peer);
  ArmTimer();
  if (keeps_journal() && journal_->begun && check::Chance(world_.random(), experiment_.snapshots)) CutJournal();
}

void Process::Act(const Event& event) {
  switch (event.kind) {
    case Event::Kind::kStarted:
      running_ = true;
      if (late_) Recheck();
      break;
    case Event::Kind::kStopped: running_ = false; break;
    case Event::Kind::kGone:
      if (node_->FindPeer(event.peer) != nullptr) Drop(event.peer, kTakenForLost.data() + event.reason);
      break;
    case Event::Kind::kBack: {
      if (node_->FindPeer(event.peer) == nullptr) break;
      std::uint32_t& present = incarnations_[event.peer];
      if (present != event.key || peerings_[event.peer].closed) {
        Renew(event.peer);
        node_->Renewed(event.peer, {.incarnation = present = event.key, .anew = true});
        const auto called = PeersToCall();
        if (std::find(called.begin(), called.end(), event.peer) != called.end()) Dial(event.peer);
      }
      Recheck();
      break;
    }
    default: break;
  }
  world_.OnEvent(id, event);
}

void Process::ReportEnded(NodeId member, const std::string& reason) {
  if (!node_ || node_->stopped()) return;
  node_->HandleLinkDown(member, reason, world_.now());
  Follow();
}

void Process::Wait(Time pause, void (Process::*then)()) {
  world_.Later(id, world_.now() + std::max<Time>(pause, 0), [this, then] { (this->*then)(); });
}

void Process::ArmTimer() {
  const Time next = node_->PollTimeout();
  if (next == kNever || next >= timer_) return;
  timer_ = next;
  world_.Later(id, next, [this, next] {
    if (timer_ != next) return;
    timer_ = kNever;
    OnTimer();
  });
}

void Process::OnTimer() {
  if (node_->PollTimeout() <= world_.now()) {
    LookForSilence();
    node_->HandleTimeout(world_.now());
    Follow();
  }
  ArmTimer();
}

// ---- arriving ----------------------------------------------------------------------------------

void Process::OnArrival(const ConnectionPtr& connection, End end) {
  Packet packet = std::move(connection->ways[end].packets.front());
  connection->ways[end].packets.pop_front();
  const NodeId peer = connection->ends[Other(end)].node;
  switch (packet.kind) {
    case Packet::Kind::kHello: return Settle(connection, packet.greeting);
    case Packet::Kind::kAnswer:
    case Packet::Kind::kRefusal: return OnAnswer(connection, packet);
    case Packet::Kind::kEnd: return Detach(connection, "connection closed");
    case Packet::Kind::kMessage: return OnMessage(connection, peer, std::move(packet));
  }
}

void Process::OnMessage(const ConnectionPtr& connection, NodeId peer, Packet packet) {
  Peering& peering = peerings_[peer];
  if (peering.connection != connection) return;  // replaced: messages in it are sent again
  peering.heard = world_.now();
  Link<Message>& link = peering.link;
  if (!link.outbox.Acknowledge(packet.received)) {
    return world_.Fail(id.node, "a peer acknowledges messages that were never sent");
  }
  Header& header = packet.message.header;
  if (IsNumbered(header) && !link.arrivals.Take()) {
    ++counts_.repeats;
    return;
  }
  if (IsNumbered(header) && !std::exchange(peering.acknowledges, true)) {
    world_.Later(id, world_.now() + kAcknowledgeAfter, [this, peer] { Acknowledge(peer); });
  }
  if (!node_) return BeforeTheNode(packet.message);
  if (header.kind == Kind::kJoin) header.round = incarnations_[peer];
  if (!experiment_.shaped || IsOutOfBand(header.kind, peer == kScheduler)) {
    Handle(peer, packet.message);
    return Follow();
  }
  const Time pause = static_cast<Time>(world_.random()() % (5 * kMillisecond));
  const Time at = peering.held_until = std::max(peering.held_until, world_.now() + pause);
  node_->Hold(peer, packet.message, at);
  held_.emplace(std::pair{at, order_++}, Replay::Held{peer, at, std::move(packet.message)});
  Wait(at - world_.now(), &Process::ReleaseDue);
}

void Process::Handle(NodeId from, const Message& message) {
  ++counts_.messages;
  if (!node_->node().IsAway(from)) world_.OnDelivered(id, from, incarnations_[from], message);
  node_->HandleMessage(from, message, world_.now());
}

void Process::ReleaseDue() {
  while (!held_.empty() && held_.begin()->first.first <= world_.now()) {
    const Replay::Held due = std::move(held_.extract(held_.begin()).mapped());
    ++counts_.messages;
    if (!node_->node().IsAway(due.from)) {
      world_.OnDelivered(id, due.from, incarnations_[due.from], due.message);
    }
    node_->Release(due.from, due.message, world_.now());
    Follow();
  }
}

void Process::OnDatagram(NodeId from, std::uint32_t incarnation, const Message& message) {
  if (!node_ || !node_->started() || incarnations_[from] != incarnation) return;
  Handle(from, message);
  Follow();
}

void Process::Acknowledge(NodeId peer) {
  Peering& peering = peerings_[peer];
  peering.acknowledges = false;
  if (!peering.connection || peering.link.outbox.unsent() > 0) return;  // messages carry the acknowledgement
  Message beat = ControlMessage(Kind::kHeartbeat);
  beat.header.source = id.node;
  peering.link.outbox.Add(std::move(beat), false);
  Pump(peer);
}

// ---- leaving -----------------------------------------------------------------------------------

// Sends one message at a time; the next is chosen when that has left.
void Process::Pump(NodeId peer) {
  Peering& peering = peerings_[peer];
  SendDatagrams(peer);
  if (!peering.connection || peering.sending) return;
  if (peering.link.outbox.unsent() == 0 && !TakeNext(peer, peering)) return;
  if (peering.link.outbox.unsent() > 0) Transmit(peer, peering);
}

// Returns false if there is nothing to send now.
bool Process::TakeNext(NodeId peer, Peering& peering) {
  if (!node_) return false;
  auto message = node_->PollTransmit(peer, Lane::kReliable);
  if (!message) {
    peering.drained = true;
    return false;
  }
  world_.OnLeaving(id, own_incarnation_, *message);
  if (!peering.drained) counts_.most_queued = std::max(counts_.most_queued, ++peering.burst);
  const bool shaped = experiment_.shaped && !IsOutOfBand(message->header.kind, id.node == kScheduler);
  node_->Took(peer, Lane::kReliable, *message, shaped ? Fate::kUnderWay : Fate::kLinked);
  const bool numbered = IsNumbered(message->header);
  if (!shaped) {
    peering.link.outbox.Add(std::move(*message), numbered);
    CheckBounds(peer, peering);
    return true;
  }
  const Time pause = static_cast<Time>(world_.random()() % (2 * kMillisecond));
  peering.sending = true;
  peering.under_way.push_back(std::move(*message));
  world_.Later(id, world_.now() + pause, [this, peer] {
    Peering& later = peerings_[peer];
    later.sending = false;
    if (later.under_way.empty()) return;  // the link was renewed
    node_->Left(peer, Lane::kReliable, Fate::kLinked);
    later.link.outbox.Add(std::move(later.under_way.front()), true);
    later.under_way.pop_front();
    CheckBounds(peer, later);
    Pump(peer);
  });
  return false;
}

void Process::Transmit(NodeId peer, Peering& peering) {
  if (node_) node_->Commit();
  const Message& next = peering.link.outbox.At(0);
  const ConnectionPtr connection = peering.connection;
  const End end = connection->ends[kCaller] == id ? kCaller : kCalled;
  const double takes = static_cast<double>(next.wire_bytes()) / experiment_.bytes_per_s;
  world_.network().Put(connection, end,
                       {.message = next, .received = peering.link.arrivals.received()});
  peering.link.outbox.Leave();
  if (node_ && keeps_journal() && check::Chance(world_.random(), 0.1)) {
    node_->Received(peer, peering.link.outbox.acknowledged());
  }
  peering.sending = true;
  world_.Later(id, world_.now() + Nanoseconds(takes), [this, peer] {
    peerings_[peer].sending = false;
    Pump(peer);
  });
}

void Process::SendDatagrams(NodeId peer) {
  if (!node_) return;
  while (auto message = node_->PollTransmit(peer, Lane::kBestEffort)) {
    node_->Took(peer, Lane::kBestEffort, *message, Fate::kDropped);
    node_->Commit();
    world_.network().SendDatagram({id.node, own_incarnation_}, peer, *message);
  }
}

// Law 4: the messages that a link keeps or queues are bounded by those of four rounds, and those about members.
void Process::CheckBounds(NodeId peer, const Peering& peering) {
  std::size_t round = 0;
  for (const Tensor& tensor : experiment_.tensors) {
    for (const ShardInfo& shard : tensor.shards) round += 2 + shard.elements * 8 / experiment_.plan.frame_bytes;
    round += tensor.elements;  // slices of a row each
  }
  const std::size_t kept = peering.link.outbox.kept() + peering.link.outbox.unsent();
  counts_.most_kept = std::max(counts_.most_kept, kept);
  const std::size_t members = 20 * (experiment_.faults.size() + 2);
  if (kept > 4 * round + members || peering.burst > 4 * round + members) {
    world_.Fail(id.node, "keeps " + std::to_string(kept) + " messages for node" + std::to_string(peer) +
                             ", and " + std::to_string(peering.burst) + " were queued");
  }
}

}  // namespace geomx::faults
