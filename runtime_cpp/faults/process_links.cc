// The connections of a process: dialing, accepting, and which connection carries a link, by the rules of
// io/sessions.h and io/dialing.cc.
#include <algorithm>

#include "core/event.h"
#include "faults/process.h"

namespace geomx::faults {
namespace {

constexpr Time kFirstPause = 20 * kMillisecond;
constexpr Time kCallTime = 10 * kSecond;
constexpr Time kLingerTime = 2 * kSecond;
constexpr Time kLongestProbe = 3 * kSecond / 2;
constexpr std::size_t kMostCalls = 8;

}  // namespace

// ---- calls -------------------------------------------------------------------------------------

void Process::Dial(NodeId peer) {
  Peering& peering = peerings_[peer];
  peering.dials = true;
  peering.pause = kFirstPause;
  peering.next_try = world_.now();
  LookLater(peer, world_.now());
}

void Process::LookLater(NodeId peer, Time at) {
  const std::uint32_t look = ++peerings_[peer].looks;
  world_.Later(id, at, [this, peer, look] {
    const auto found = peerings_.find(peer);
    if (found != peerings_.end() && found->second.looks == look) Look(peer);
  });
}

// Calls the peer if no connection carries the link, or if that connection is silent.
void Process::Look(NodeId peer) {
  Peering& peering = peerings_[peer];
  if (!peering.dials || peering.closed) return;
  const Time now = world_.now();
  if (peering.connection != nullptr) {
    const NodeConfig* config = node_ ? &node_->config() : nullptr;
    if (!running_ || config == nullptr) return LookLater(peer, now + kSecond / 10);
    const Time probe = std::max(3 * config->heartbeat_interval,
                                std::min(config->failure_timeout / 4, kLongestProbe));
    if (now - peering.heard < probe) return LookLater(peer, peering.heard + probe);
  }
  if (now < peering.next_try) return LookLater(peer, peering.next_try);
  if (peering.calls.size() < kMostCalls) {
    ++counts_.calls;
    world_.network().Call(id, peer, kCallTime, peering.answered);
  }
  const Time half = std::max<Time>(peering.pause / 2, 1);
  peering.next_try = now + half + static_cast<Time>(world_.random()() % static_cast<std::uint64_t>(half));
  peering.pause = std::min(2 * peering.pause, experiment_.redial);
  LookLater(peer, peering.next_try);
}

void Process::OnConnected(const ConnectionPtr& connection) {
  const NodeId peer = connection->ends[kCalled].node;
  Peering& peering = peerings_[peer];
  const bool needed = peering.dials && !peering.closed && connection->attempt == peering.answered;
  if (!needed || peering.calls.size() >= kMostCalls) {
    return world_.network().Close(connection, kCaller);
  }
  if (node_) node_->Commit();
  peering.link.incarnation = own_incarnation_;
  peering.calls.insert(connection);
  Greeting call = peering.link.Call();
  call.first = mark_;
  world_.network().Put(connection, kCaller, {.kind = Packet::Kind::kHello, .greeting = call});
  world_.Later(id, world_.now() + kCallTime, [this, peer, connection] {
    if (peerings_[peer].calls.erase(connection) > 0) world_.network().Close(connection, kCaller);
  });
}

void Process::OnAnswer(const ConnectionPtr& connection, const Packet& packet) {
  const NodeId peer = connection->ends[kCalled].node;
  Peering& peering = peerings_[peer];
  if (peering.calls.erase(connection) == 0) return;
  if (packet.kind == Packet::Kind::kRefusal) {
    world_.network().Close(connection, kCaller);
    return OnRefused(peer, packet);
  }
  switch (peering.link.Answered(packet.greeting)) {
    case LinkOutcome::kCarried: break;
    case LinkOutcome::kLate: return world_.network().Close(connection, kCaller);
    default: return Contradicts(connection, kCaller);
  }
  if (packet.greeting.incarnation != 0) own_incarnation_ = packet.greeting.incarnation;
  peering.pause = kFirstPause;
  ++peering.answered;
  Replace(peering, false);
  Attach(peer, connection);
}

void Process::OnRefused(NodeId peer, const Packet& packet) {
  Peering& peering = peerings_[peer];
  if (!packet.final || peering.connection != nullptr) return;
  peering.dials = false;
  peering.calls.clear();
  if (!node_) return world_.OnEnd(id, "it cannot join: " + packet.text);
  node_->HandleLinkDown(peer, "it refused the connection: " + packet.text, world_.now());
  Follow();
}

// ---- callers -----------------------------------------------------------------------------------

Process::Verdict Process::Judge(NodeId caller, Greeting& greeting) {
  if (!node_) return Verdict::kNotYet;
  if (node_->FindPeer(caller) == nullptr) return Verdict::kNobody;
  if (late_ && !keeps_journal() && !node_->started()) return Verdict::kNotYet;
  const bool unannounced = node_->node().IsAway(caller) && !peerings_[caller].closed;
  if (node_->config().scheduler && unannounced) return Verdict::kNotYet;
  if (!node_->config().scheduler && greeting.incarnation == 0) return CountCaller(caller, greeting);
  std::uint32_t& present = incarnations_[caller];
  if (greeting.incarnation > present) {
    const Role role = node_->FindPeer(caller)->role;
    const bool anew = node_->config().continues && (role == Role::kWorker || role == Role::kServer);
    if (anew) return Verdict::kNotYet;  // the scheduler will announce it
    node_->Renewed(caller, {.incarnation = present = greeting.incarnation, .anew = false});
  }
  return greeting.incarnation == present ? Verdict::kPeer : Verdict::kLate;
}

// Gives an incarnation to a process that joins; the scheduler does so.
Process::Verdict Process::CountCaller(NodeId caller, Greeting& greeting) {
  if (const auto counted = counted_.find(caller); counted != counted_.end() && counted->second == greeting.first) {
    greeting.incarnation = incarnations_[caller];
    return Verdict::kPeer;
  }
  if (peerings_[caller].link.arrivals.received() > 0) {
    if (!node_->config().continues || !node_->started()) return Verdict::kTaken;
    if (peerings_[caller].connection != nullptr) return Verdict::kOccupied;
    node_->HandleLinkDown(caller, kReplaced, world_.now());
    Follow();
  }
  counted_[caller] = greeting.first;
  Renew(caller);
  greeting.incarnation = ++incarnations_[caller];
  node_->Renewed(caller, {.incarnation = greeting.incarnation, .anew = true, .mark = greeting.first});
  return Verdict::kPeer;
}

void Process::Settle(const ConnectionPtr& connection, Greeting greeting) {
  const NodeId caller = connection->ends[kCaller].node;
  switch (Judge(caller, greeting)) {
    case Verdict::kPeer: return Welcome(connection, caller, greeting);
    case Verdict::kNobody: return Refuse(connection, "not a peer of this node", true);
    case Verdict::kLate: return Refuse(connection, "another process has taken its place", true);
    case Verdict::kTaken: return Refuse(connection, "a node of that name takes part already", true);
    case Verdict::kOccupied: return Refuse(connection, "a node of that name takes part already", false);
    case Verdict::kNotYet: break;
  }
  Waiting& waiting = waiting_[caller];
  if (waiting.connection && waiting.connection != connection) {
    Refuse(waiting.connection, "it has called again since", false);
  }
  waiting = {connection, greeting};
}

void Process::Welcome(const ConnectionPtr& connection, NodeId caller, const Greeting& greeting) {
  Peering& peering = peerings_[caller];
  if (peering.closed) {
    const bool lost = peering.why.starts_with(kTakenForLost);
    return Refuse(connection, lost ? peering.why : "the connection with it was ended for good", true);
  }
  node_->Commit();
  Greeting answer;
  switch (peering.link.Answer(greeting, answer)) {
    case LinkOutcome::kCarried: break;
    case LinkOutcome::kLate: return Refuse(connection, "it has called again since", false);
    default: return Contradicts(connection, kCalled);
  }
  Replace(peering, true);
  world_.network().Put(connection, kCalled, {.kind = Packet::Kind::kAnswer, .greeting = answer});
  Attach(caller, connection);
}

// Handles a call whose two ends disagree on what was received. That breaks a law except with `continue`,
// where one end may not know yet that the other is a new process.
void Process::Contradicts(const ConnectionPtr& connection, End end) {
  const std::string reason = "messages that one of the two had received are missing";
  if (experiment_.on_loss != OnLoss::kContinue) return world_.Fail(id.node, reason);
  if (end == kCalled) return Refuse(connection, reason, true);
  world_.network().Close(connection, end);
  OnRefused(connection->ends[kCalled].node, {.text = reason, .final = true});
}

void Process::Refuse(const ConnectionPtr& connection, const std::string& reason, bool final) {
  world_.network().Put(connection, kCalled,
                       {.kind = Packet::Kind::kRefusal, .text = reason, .final = final});
  world_.network().Close(connection, kCalled);
}

void Process::Recheck() {
  for (const auto& [caller, waiting] : std::exchange(waiting_, {})) {
    if (waiting.connection->open[kCalled]) Settle(waiting.connection, waiting.greeting);
  }
}

// ---- which connection carries a link -----------------------------------------------------------

// Stops using the connection. With `linger` it is closed later and not read until then, because the other end,
// the caller, does not know yet that it was replaced.
void Process::Replace(Peering& peering, bool linger) {
  const ConnectionPtr old = std::exchange(peering.connection, nullptr);
  if (!old) return;
  const End end = old->ends[kCaller] == id ? kCaller : kCalled;
  if (!linger) return world_.network().Close(old, end);
  world_.Later(id, world_.now() + kLingerTime, [this, old, end] { world_.network().Close(old, end); });
}

void Process::Attach(NodeId peer, const ConnectionPtr& connection) {
  Peering& peering = peerings_[peer];
  peering.connection = connection;
  const End other = connection->ends[kCaller] == id ? kCalled : kCaller;
  if (const auto its = world_.Incarnation(connection->ends[other]); its > 0) linked_[peer] = its;
  peering.heard = world_.now();
  peering.made = true;
  peering.burst = 0;
  peering.drained = false;
  if (!node_) SayJoin();
  if (node_) node_->HandleLinkMade(peer, world_.now());
  if (peering.dials) LookLater(peer, world_.now());
  Follow();
  Pump(peer);
  CheckReady();
}

void Process::OnEnded(const ConnectionPtr& connection) { Detach(connection, "connection reset"); }

// Handles the end of a connection at this end.
void Process::Detach(const ConnectionPtr& connection, const std::string& reason) {
  const End end = connection->ends[kCaller] == id ? kCaller : kCalled;
  world_.network().Close(connection, end);
  const NodeId peer = connection->ends[Other(end)].node;
  Peering& peering = peerings_[peer];
  peering.calls.erase(connection);
  if (const auto found = waiting_.find(peer); found != waiting_.end()) {
    if (found->second.connection == connection) waiting_.erase(found);
  }
  if (peering.connection != connection) return;
  peering.connection = nullptr;
  if (peering.dials) {
    peering.pause = kFirstPause;
    peering.next_try = world_.now() + static_cast<Time>(world_.random()() % kFirstPause);
    LookLater(peer, peering.next_try);
  }
  if (!node_) return;
  node_->HandleLinkLost(peer, reason, world_.now());
  Follow();
}

void Process::Drop(NodeId peer, const std::string& reason) {
  Peering& peering = peerings_[peer];
  Replace(peering, false);
  peering.dials = false;
  peering.calls.clear();
  peering.closed = true;
  peering.why = reason;
  peering.link = {};
  peering.under_way.clear();
  ForgetHeld(peer);
}

void Process::Renew(NodeId peer) {
  Peering& peering = peerings_[peer];
  Replace(peering, false);
  Peering fresh;
  fresh.looks = peering.looks + 1;
  fresh.answered = peering.answered + 1;
  fresh.sending = peering.sending;
  fresh.acknowledges = peering.acknowledges;
  peering = std::move(fresh);
  ForgetHeld(peer);
}

// Drops what a process that is lost, or was replaced, had sent and the emulated network still holds.
void Process::ForgetHeld(NodeId peer) {
  std::erase_if(held_, [peer](const auto& each) { return each.second.from == peer; });
}

// Closes accepted connections that are silent, so that their callers, which may receive nothing either, redial.
void Process::LookForSilence() {
  if (!running_) return;
  std::vector<ConnectionPtr> silent;
  for (const auto& [peer, peering] : peerings_) {
    if (!peering.connection || peering.connection->ends[kCaller] == id) continue;
    if (peering.heard + node_->config().failure_timeout <= world_.now()) silent.push_back(peering.connection);
  }
  for (const ConnectionPtr& connection : silent) Detach(connection, "silence");
}

}  // namespace geomx::faults
