// The driver's part in members that are lost and come back: links with processes that are gone end, those
// that take their place get links of their own. See core/member_change.h and driver.h.
#include <algorithm>
#include <string>
#include <utility>

#include "io/driver.h"

namespace geomx::io {

void Driver::ActOnMember(Event& event, Time now) {
  const bool gone = event.kind == Event::Kind::kGone, back = event.kind == Event::Kind::kBack;
  if ((gone || back) && node_->config().role == Role::kScheduler) {  // one line is enough: the scheduler's
    const auto& absent = node_->config().absent;
    const bool first = !missed_.contains(event.peer) &&
                       std::find(absent.begin(), absent.end(), event.peer) != absent.end();
    const char* joins = first ? " has joined" : " is back";
    const Peer* peer = node_->FindPeer(event.peer);
    const bool stood_by = peer != nullptr && peer->role == Role::kStandby;
    const char* follows = stood_by ? "no node would take its server's place: " : "rounds complete without it: ";
    // What follows from an error of its own is decided by what has started the process, if anything has.
    const bool failed = event.reason.starts_with(kFailed);
    const std::string lost = failed ? " is lost: " : std::string(" is lost, ") + follows;
    Tell(back ? Severity::kInfo : Severity::kWarning, event.text + (back ? joins : lost + event.reason));
    if (back) status_.SetAddress(event.text, event.address);
  }
  if (event.kind == Event::Kind::kMoved) Moved(event);
  if (gone) missed_.insert(event.peer);
  if (gone) Without(event);
  if (back) With(event);
  NoteMember(std::move(event), now);
}

// Tells the application, which may ask at any time.
void Driver::NoteMember(Event event, Time now) {
  const auto name = [this](NodeId id) {
    const Peer* peer = node_->FindPeer(id);
    return peer ? peer->name : std::string();
  };
  MemberNotice notice{.at = now, .event = {}, .names = {}, .late = {}};
  if (!event.text.empty()) notice.names.push_back(event.text);
  for (const double id : event.values) notice.names.push_back(name(static_cast<NodeId>(id)));
  for (const auto& [id, meant] : event.late) notice.late.emplace_back(name(id), meant);
  notice.event = std::move(event);
  status_.AddMember(std::move(notice));
}

// What the lost process sends from now on reaches nothing here, and nothing reaches it.
void Driver::Without(const Event& event) {
  if (node_->FindPeer(event.peer) == nullptr) return;
  if (node_->IsStandby(event.peer)) StopReplicating();
  ForgetMessages(event.peer);
  datagrams_.SetSeal(event.peer, nullptr);
  sessions_.Drop(event.peer, std::string(kTakenForLost) + event.reason);
}

// Its link begins anew. The end that calls is the same as before.
void Driver::With(const Event& event) {
  const NodeId peer = event.peer;
  if (node_->FindPeer(peer) == nullptr) return;
  std::uint32_t& present = incarnations_[peer];
  const bool known = present == event.key && !sessions_.LinkOf(peer).closed;
  if (!known) {
    ForgetMessages(peer);
    sessions_.Renew(peer);
    if (node_->replicator()) sessions_.LinkOf(peer).frames.CloseGate();
    node_->Renewed(peer, {.incarnation = present = event.key, .anew = true});
    const Outlet& outlet = Locate(event);
    const auto called = PeersToCall();
    if (outlet.address && std::find(called.begin(), called.end(), peer) != called.end()) {
      sessions_.LinkOf(peer).frames.SetIncarnation(roster_incarnations_[name_]);
      sessions_.Dial(peer, self_, name_, *outlet.address, connect_deadline_);
    }
  }
  sessions_.Recheck();
}

// The address of a member's new process.
Driver::Outlet& Driver::Locate(const Event& event) {
  Outlet& outlet = outlets_[event.peer];
  outlet.address = ParseAddress(event.address);  // without one it cannot be called: it stays silent and is lost
  if (outlet.address) sessions_.Reserve(*outlet.address);
  return outlet;
}

// Messages from and to a process that is gone, on their way through the emulated network.
void Driver::ForgetMessages(NodeId peer) {
  if (shaper_) shaper_->Outdate(peer);
  const auto gone = std::stable_partition(delayed_.begin(), delayed_.end(),
                                          [peer](const Delayed& each) { return each.from != peer; });
  for (auto each = gone; each != delayed_.end(); ++each) {
    const std::size_t bytes = each->message.wire_bytes();
    delayed_bytes_ -= bytes;
    if (each->session == 0) datagrams_.Release(peer, bytes);
  }
  sessions_.LinkOf(peer).delayed_bytes = 0;
  delayed_.erase(gone, delayed_.end());
  std::make_heap(delayed_.begin(), delayed_.end(), Later{});
}

void Driver::ReportEnded(const std::string& name, const std::string& reason) {
  if (!node_ || node_->stopped()) return;
  for (const Peer& peer : node_->config().peers) {
    if (peer.name == name) node_->HandleLinkDown(peer.id, reason, Now());
  }
  DrainEvents();
}

// Whether a peer is to be connected before the run starts, and is not.
bool Driver::IsMissing(NodeId peer) const {
  const auto& absent = node_->config().absent;
  return !sessions_.Knows(peer) && std::find(absent.begin(), absent.end(), peer) == absent.end();
}

std::vector<std::string> Driver::Missing() const {
  std::vector<std::string> missing;
  if (!node_) return missing;
  for (const Peer& peer : node_->config().peers) {
    if (IsMissing(peer.id)) missing.push_back(peer.name);
  }
  return missing;
}

// Where training goes on without lost workers and parties, their new processes begin anew. Those of
// global servers and of the scheduler go on where the ones before were, if there are any.
bool Driver::RemembersNothing(NodeId peer) const {
  const Role role = node_->FindPeer(peer)->role;
  return node_->config().continues && (role == Role::kWorker || role == Role::kServer);
}

// A process that does not know its number calls the scheduler. It may have called before, and its calls
// may arrive in any order.
Sessions::Verdict Driver::CountCaller(Session& caller) {
  const std::uint32_t mark = caller.greeting.first;
  if (const auto counted = counted_.find(caller.peer); mark != 0 && counted != counted_.end() && counted->second == mark) {
    caller.greeting.incarnation = incarnations_[caller.peer];
    return Verdict::kPeer;
  }
  const PeerLink& link = sessions_.LinkOf(caller.peer);
  if (link.frames.received() > 0) {
    if (!node_->config().continues || !node_->started()) return Verdict::kTaken;
    // Where the machine of the one before went down its connection stands until it is silent.
    if (link.session != nullptr) return Verdict::kOccupied;
    node_->HandleLinkDown(caller.peer, kReplaced, Now());
    DrainEvents();
  }
  counted_[caller.peer] = mark;
  sessions_.Renew(caller.peer);
  const std::uint32_t number = caller.greeting.incarnation = ++incarnations_[caller.peer];
  node_->Renewed(caller.peer, {.incarnation = number, .anew = true, .mark = mark});
  return Verdict::kPeer;
}

}  // namespace geomx::io
