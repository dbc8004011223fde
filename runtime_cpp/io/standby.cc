// The driver's part in standbys: sending records to one, and being one. See core/standby.h.
#include <algorithm>
#include <string>
#include <utility>

#include "io/loop.h"

namespace geomx::io {
namespace {

constexpr Time kTakeOverTime = 30 * kSecond;  // to reach the scheduler

}  // namespace

// ---- a global server that has a standby ----------------------------------------------------------

void Driver::BeginReplicating() {
  node_->ReplicateTo(*node_->config().standby);
  WriteBegin(node_->journal());
  for (const Peer& peer : node_->config().peers) {
    if (!node_->IsStandby(peer.id)) sessions_.LinkOf(peer.id).frames.CloseGate();
  }
}

// What was added to links since the last call may leave when the standby has the records so far.
void Driver::Replicate() {
  if (node_->replicator() == nullptr) return;
  node_->Commit();
  const std::uint64_t batch = node_->replicator()->committed();
  sessions_.EachLink([batch](PeerLink& link) { link.frames.Mark(batch); });
}

// The standby has confirmed records.
void Driver::LetLeave() {
  if (node_->replicator() == nullptr) return;
  const std::uint64_t batch = node_->replicator()->confirmed();
  sessions_.EachLink([&](PeerLink& link) {
    if (!link.frames.Release(batch)) return;
    dirty_.insert(link.peer);
    Acknowledge(link);
  });
}

void Driver::StopReplicating() {
  if (node_->replicator() == nullptr) return;
  node_->StopReplicating();
  sessions_.EachLink([&](PeerLink& link) {
    link.frames.OpenGate();
    dirty_.insert(link.peer);
  });
}

// ---- the standby ---------------------------------------------------------------------------------

void Driver::Confirm(std::uint64_t batch) {
  for (const NodeId primary : node().config().parents) node_->node().Send(primary, Confirmation(batch));
}

void Driver::StandBy(const NodeConfig& config, const std::map<NodeId, Address>& addresses,
                     const std::optional<Shape>& shape, const std::string& congestion) {
  if (node_) throw std::logic_error(name_ + " runs already");
  sessions_.SetCongestion(congestion);
  if (shape) shaper_ = std::make_unique<Shaper>(*shape);
  node_ = std::make_unique<RecordedNode>(config);
  node_->CountTimes();
  standby_.reset(new Standby(node_->node(), *this));  // whose handler is private here
  status_.SetInCharge(false);
  SetPeers(config, addresses);
  WatchLinks(false);
}

void Driver::TakeOver(std::uint32_t incarnation) {
  if (!standing_by()) return;
  const Time now = Now();
  const auto standby = std::move(standby_);
  status_.SetInCharge(true);
  connect_deadline_ = now + kTakeOverTime;
  roster_incarnations_[name_] = incarnation;
  restarted_at_the_end_ = node_->stopped();
  node_->node().ForgetStandby(now);
  node_->node().membership().BeatNow(now);
  GoOn(standby->replay());
  CallPeers();
  for (const Peer& peer : node_->config().peers) dirty_.insert(peer.id);
  Tell(Severity::kInfo, name_ + " goes on here, at its standby's place, after " + std::to_string(standby->replay().records()) +
         " records");
}

void Loop::StandBy(const NodeConfig& config, const std::map<std::string, std::string>& roster,
                   const std::optional<Shape>& shape, const std::string& congestion,
                   const std::shared_ptr<Loop>& member) {
  std::map<NodeId, Address> addresses;
  for (const Peer& peer : config.peers) {
    const auto found = roster.find(peer.name);
    if (found != roster.end()) addresses.emplace(peer.id, Resolve(found->second));
  }
  Call([&] { state_->driver.StandBy(config, addresses, shape, congestion); });
  const std::weak_ptr<State> one = state_.weak(), other = member->state_.weak();
  const auto repeat = [one, other](Message records) {
    const auto here = one.lock();
    if (!here) return;
    here->driver.Post([one, other, records = std::move(records)] {
      const auto here = one.lock();
      const auto there = other.lock();
      if (!here || !there || !here->driver.standing_by()) return;
      const auto batch = here->driver.Repeat(records);
      if (batch) there->driver.Post([other, batch] {
        if (const auto there = other.lock()) there->driver.Confirm(*batch);
      });
    });
  };
  const auto take_over = [one](std::uint32_t incarnation) {
    const auto here = one.lock();
    if (!here) return;
    here->driver.Post([one, incarnation] {
      if (const auto here = one.lock()) here->driver.TakeOver(incarnation);
    });
  };
  member->Call([&] { member->state_->driver.SetKeeper({repeat, take_over}); });
}

// ---- all others ----------------------------------------------------------------------------------

// The process of a member has another one in its place, whose end of the link goes on where that of the
// former one was.
void Driver::Moved(const Event& event) {
  const NodeId peer = event.peer;
  if (join_address_.empty()) {
    Tell(Severity::kWarning, event.text + " is lost, its standby goes on in its place, at " + event.address + ": " + event.reason +
           "; it has no standby now");
  }
  if (keeper_.take_over && node_->node().IsParent(peer)) {
    sessions_.Drop(peer, event.reason);
    return keeper_.take_over(event.key);
  }
  if (node_->FindPeer(peer) == nullptr) return;
  node_->Renewed(peer, {.incarnation = incarnations_[peer] = event.key, .anew = false});
  datagrams_.SetSeal(peer, nullptr);
  const Outlet& outlet = Locate(event);
  sessions_.Leave(peer, event.reason);
  const auto called = PeersToCall();
  if (outlet.address && std::find(called.begin(), called.end(), peer) != called.end()) {
    sessions_.Dial(peer, self_, name_, *outlet.address, kNever);
  }
  sessions_.Recheck();
}

}  // namespace geomx::io
