// The journal of a process, and how a new process continues from it, as in io/recovery.cc.
#include "core/event.h"
#include "faults/process.h"

namespace geomx::faults {
bool Journal::Crash(double written) {
  const std::size_t rest = records.size() - committed;
  const auto kept = static_cast<std::size_t>(written * static_cast<double>(rest));
  records.resize(committed + kept);
  committed = records.size();
  return kept < rest;
}

void Process::BeginJournal() {
  journal_->begun = true;
  journal_->roster = roster_;
  if (node_->config().scheduler) {
    const Link<Message>& link = peerings_[kScheduler].link;
    journal_->sent = link.outbox.acknowledged();
    journal_->received = link.arrivals.received();
  }
  node_->RecordTo(journal_);
}

void Process::Continue() {
  ++counts_.recovered;
  roster_ = journal_->roster;
  late_ = true;
  MakeNode();
  if (node_->config().scheduler) {
    Peering& scheduler = peerings_[kScheduler];
    scheduler.link.outbox.Begin(journal_->sent);
    scheduler.link.arrivals.Begin(journal_->received);
    scheduler.made = true;
  }
  Replay replay(node_->node(), *this);
  for (const auto& [body, payload] : journal_->records) replay.Apply(body, payload);
  node_->RecordTo(journal_);
  journal_->Add(RecordWriter(RecordKind::kRestart).body(), {});
  restarts_ = replay.restarts() + 1;
  own_incarnation_ += restarts_;
  for (Replay::Held& held : replay.TakeHeld()) {
    const Time at = held.at;
    held_.emplace(std::pair{at, order_++}, std::move(held));
    Wait(at - world_.now(), &Process::ReleaseDue);
  }
  for (Replay::Sending& sending : replay.TakeUnderWay()) {
    node_->Left(sending.peer, sending.lane, Fate::kLinked);
    const bool numbered = IsNumbered(sending.message.header);
    peerings_[sending.peer].link.outbox.Add(std::move(sending.message), numbered);
  }
  running_ = node_->started() && !node_->stopped();
  for (auto& [peer, peering] : peerings_) {
    if (!peering.made || peering.closed) continue;
    node_->Hear(peer, world_.now());
    node_->HandleLinkLost(peer, "it was restarted", world_.now());
  }
  if (node_->config().scheduler) Dial(kScheduler);
  for (const NodeId peer : PeersToCall()) {
    if (!peerings_[peer].closed) Dial(peer);
  }
  Follow();
  CheckReady();
}

// Replaces the records so far by a snapshot, as in io/snapshot.cc.
void Process::CutJournal() {
  if (!node_->node().Resting()) return;
  node_->Commit();
  OutsideNode outside{.held = {}, .under_way = {}, .restarts = restarts_, .exchange = {}};
  std::map<std::uint64_t, const Replay::Held*> held;  // in the order of arrival
  for (const auto& [when, each] : held_) held[when.second] = &each;
  for (const auto& [order, each] : held) {
    if (each->message.header.kind != Kind::kHeartbeat) outside.held.push_back(*each);
  }
  for (const auto& [peer, peering] : peerings_) {
    for (const Message& message : peering.under_way) {
      outside.under_way.push_back({peer, Lane::kReliable, message});
    }
  }
  outside.exchange = [this](Archive& archive) { ExchangeOutside(archive); };
  Journal cut = *journal_;
  cut.records.clear();
  node_->Snapshot(cut, outside, world_.now());
  cut.Commit();
  *journal_ = std::move(cut);
}

void Process::ExchangeOutside(Archive& archive) {
  for (const Peer& peer : node_->config().peers) {
    Peering& peering = peerings_[peer.id];
    const auto same = [](Message message) { return message; };
    peering.link.Exchange(archive, same, same);
    archive(peering.made, peering.closed, peering.why);
  }
  archive(incarnations_, counted_, ready_);
}

void Process::OnLinked(NodeId peer, Message message) {
  if (IsNumbered(message.header)) peerings_[peer].link.outbox.AddLeft(std::move(message));
}

void Process::OnArrived(NodeId peer) { peerings_[peer].link.arrivals.Take(); }

void Process::OnReceived(NodeId peer, std::uint32_t count) {
  if (!peerings_[peer].link.outbox.Acknowledge(count)) {
    world_.Fail(id.node, "its journal acknowledges more messages than it had sent");
  }
}

void Process::OnRenewed(NodeId peer, const Renewal& renewal) {
  incarnations_[peer] = renewal.incarnation;
  if (renewal.mark != 0) counted_[peer] = renewal.mark;
  if (renewal.anew) Renew(peer);
}

void Process::OnLinkDown(NodeId peer, const std::string& reason) {
  peerings_[peer].closed = true;
  peerings_[peer].why = reason;
}

void Process::OnEvent(Event event, Time) {
  if (event.kind == Event::Kind::kDead || event.kind == Event::Kind::kPeerError ||
      event.kind == Event::Kind::kRefused) {
    Act(event);
  }
}

}  // namespace geomx::faults
