// The driver's part in journals: beginning one, and continuing after another process was killed.
// See core/recorded_node.h.
#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "io/driver.h"

namespace geomx::io {
namespace {

constexpr std::uint32_t kRecordedEvery = 16;        // received messages of a link
const char* const kRestarted = "it was restarted";

}  // namespace

// Children call parents; of two siblings, the later one calls. All members called the scheduler
// before they had a node, except one that continues.
std::vector<NodeId> Driver::PeersToCall() const {
  const NodeConfig& config = node_->config();
  std::set<NodeId> called(config.parents.begin(), config.parents.end());
  for (const OverlayGroup& group : config.groups) {
    if (group.root == self_) continue;
    for (const NodeId sibling : group.members) {
      if (sibling < self_) called.insert(sibling);
    }
  }
  if (config.scheduler && join_address_.empty()) called.insert(*config.scheduler);
  return {called.begin(), called.end()};
}

// ---- recording -----------------------------------------------------------------------------------

void Driver::BeginJournal() {
  WriteBegin(*journal_);
  node_->RecordTo(journal_.get());
  node_->Commit();
}

void Driver::WriteBegin(JournalOut& out) {
  const NodeConfig& config = node_->config();
  JournalBegin begin{.name = name_, .address = Format(address_), .experiment = config.experiment};
  for (const auto& [name, address] : told_.roster) {
    begin.roster.push_back({name, address, roster_incarnations_[name]});
  }
  if (config.scheduler) {
    const FrameLink& frames = sessions_.LinkOf(*config.scheduler).frames;
    begin.experiment = told_.experiment;
    begin.roster.push_back({node_->FindPeer(*config.scheduler)->name, join_address_, 0});
    begin.links.push_back({*config.scheduler, frames.acknowledged(), frames.received()});
  }
  begin.Write(out);
}

void Driver::OnBegin(const JournalBegin& begin) {
  if (begin.name != name_) throw JournalError("records of " + begin.name + ", and not of " + name_);
  for (const auto& member : begin.roster) roster_incarnations_[member.name] = member.incarnation;
  for (const Peer& peer : node_->config().peers) {
    const auto incarnation = roster_incarnations_.find(peer.name);
    if (incarnation != roster_incarnations_.end()) incarnations_[peer.id] = incarnation->second;
  }
  for (const auto& link : begin.links) {
    PeerLink& known = sessions_.LinkOf(link.peer);
    known.frames.Begin(link.sent, link.received);
    known.recorded = link.sent;
    known.made = true;
  }
}

// A process that replays the journal need not keep messages that their receivers have acknowledged.
void Driver::RecordReceived() {
  sessions_.EachLink([this](PeerLink& link) {
    const std::uint32_t received = link.frames.acknowledged();
    if (received - link.recorded >= kRecordedEvery) {
      node_->Received(link.peer, link.recorded = received);
    }
  });
  node_->Commit();
}

// ---- continuing
// ----------------------------------------------------------------------------------

std::vector<SavedShard> Driver::Reopen(const NodeConfig& config, std::shared_ptr<JournalFile> journal) {
  if (node_) throw std::logic_error(name_ + " runs already");
  if (!journal->begin()) throw JournalError("the journal " + journal->path() + " is empty");
  node_ = std::make_unique<RecordedNode>(config);
  journal_ = std::move(journal);
  SetPeers(config, {});
  {
    Replay replay(node_->node(), *this);
    ReadJournal(replay);
  }
  std::vector<SavedShard> saved = node_->node().Saved();
  journal_ = nullptr;
  node_ = nullptr;  // it has nothing to say
  return saved;
}

void Driver::ReadJournal(Replay& replay) {
  const JournalBegin& begin = *journal_->begin();
  if (begin.name != name_) {
    throw JournalError("the journal " + journal_->path() + " is that of " + begin.name + ", and not of " +
                       name_);
  }
  try {
    journal_->Read([&](std::span<const std::byte> body, Payload payload) {
      replay.Apply(body, std::move(payload));
    });
  } catch (const JournalError& error) {
    const std::string what = error.what();
    const bool named = what.find(journal_->path()) != std::string::npos;
    throw JournalError(named ? what : "the journal " + journal_->path() + ": " + what);
  }
}

void Driver::Recover() {
  const Time began = Now();
  Replay replay(node_->node(), *this);
  ReadJournal(replay);
  node_->RecordTo(journal_.get());
  journal_->Add(RecordWriter(RecordKind::kRestart).body(), {});
  restarts_ = replay.restarts() + 1;
  roster_incarnations_[name_] += restarts_;
  notes_ = resumed_.notes;
  restarted_at_the_end_ = node_->stopped();
  GoOn(replay);
  const Time took = (Now() - began) / kMillisecond;
  Tell(Severity::kInfo, name_ + " continues from its journal: " + std::to_string(replay.records()) + " records, " +
         std::to_string(journal_->size() / 1'000'000) + " MB, repeated in " + std::to_string(took) + " ms");
}

// Continues what the previous process had begun, as far as the journal records it.
void Driver::GoOn(Replay& replay) {
  const Time now = Now();
  for (Replay::Held& held : replay.TakeHeld()) {
    Keep({.at = held.at, .from = held.from, .session = kGoneSession, .message = std::move(held.message)});
  }
  for (Replay::Sending& sending : replay.TakeUnderWay()) {
    const bool kept = IsNumbered(sending.message.header);
    node_->Left(sending.peer, sending.lane, kept ? Fate::kLinked : Fate::kDropped);
    lost_messages_ += kept ? 0 : 1;
    if (kept) sessions_.LinkOf(sending.peer).frames.Push(std::move(sending.message), 0, now);
  }
  WatchDevice(replay.TakeDeviceWork(), 0, 0, [] {});
  sessions_.EachLink([&](PeerLink& link) {
    if (!link.made || link.closed) return;
    node_->Hear(link.peer, now);  // its silence counts from now on
    node_->HandleLinkLost(link.peer, kRestarted, now);
  });
}

void Driver::OnTaken(NodeId peer, const Message& message) { Count(peer, message); }

void Driver::OnLinked(NodeId peer, Message message) {
  if (IsNumbered(message.header)) sessions_.LinkOf(peer).frames.Restore(std::move(message));
}

void Driver::OnArrived(NodeId peer) { sessions_.LinkOf(peer).frames.Arrived(); }

void Driver::OnReceived(NodeId peer, std::uint32_t count) {
  PeerLink& link = sessions_.LinkOf(peer);
  if (!link.frames.Acknowledge(link.recorded = count)) {
    throw JournalError("more messages were received than had left");
  }
}

void Driver::OnRenewed(NodeId peer, const Renewal& renewal) {
  incarnations_[peer] = renewal.incarnation;
  if (renewal.mark != 0) counted_[peer] = renewal.mark;
  if (renewal.anew) sessions_.Renew(peer);
}

void Driver::OnLinkMade(NodeId peer) { sessions_.LinkOf(peer).made = true; }

void Driver::OnLinkDown(NodeId peer, const std::string& reason) {
  PeerLink& link = sessions_.LinkOf(peer);
  link.closed = true;
  link.lost_why = reason;
}

void Driver::OnReady() { ready_ = true; }

// Wakes the application's waits; new links with peers are in the journal already.
void Driver::OnEvent(Event event, Time now) {
  switch (event.kind) {
    case Event::Kind::kGone:
      if (node_->FindPeer(event.peer) != nullptr) {
        sessions_.Drop(event.peer, std::string(kTakenForLost) + event.reason);
      }
      return NoteMember(std::move(event), now);
    case Event::Kind::kBack:
    case Event::Kind::kMoved:
      if (node_->FindPeer(event.peer) != nullptr) Locate(event);
      return NoteMember(std::move(event), now);
    case Event::Kind::kTakesPart:
    case Event::Kind::kPartial: return NoteMember(std::move(event), now);
    case Event::Kind::kStarted:
    case Event::Kind::kStopped:
    case Event::Kind::kDead:
    case Event::Kind::kRefused:
    case Event::Kind::kValueReady:
    case Event::Kind::kBarrier:
    case Event::Kind::kReply: return Act(event, now);
    default: return;
  }
}

void Driver::OnVerb(RecordKind kind, std::uint32_t number) { ++resumed_.done[{kind, number}]; }

// The values are copied, as those of later rounds may have arrived when the process was killed.
void Driver::OnNote(std::string text, std::vector<std::string> state) {
  resumed_.noted = true;
  resumed_.notes.push_back(std::move(text));
  resumed_.state = std::move(state);
  resumed_.done.clear();
  Worker& worker = node_->worker();
  for (const Key key : worker.Keys()) {
    const auto value = worker.Value(key);
    resumed_.rounds[key] = worker.Submitted(key);
    resumed_.values[key].assign(value.begin(), value.end());
  }
  status_.ForgetReplies();
}

}  // namespace geomx::io
