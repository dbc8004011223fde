// The scheduler: who takes part, when all may start, who waits at which barrier, who is gone.
//
//   joining --all joined--> connecting --all ready--> running --all workers left--> stopped
//
// A member that disappears in any state before it said bye is declared dead to everyone, once.
#include <map>
#include <set>

#include "core/node.h"

namespace geomx {
namespace {

class Scheduler final : public RoleLogic {
 public:
  explicit Scheduler(Node& node) : RoleLogic(node) {}

  void OnValue(NodeId peer, const Header& header, Buffer value, Time now) override {
    (void)header, (void)value, (void)now;
    node_.Emit({.kind = Event::Kind::kPeerError, .peer = peer, .reason = "data for a scheduler"});
  }

  void OnControl(NodeId peer, const Message& message, Time now) override {
    switch (message.header.kind) {
      case Kind::kJoin: Join(peer, message); return;
      case Kind::kReady:
        ready_.insert(peer);
        if (ready_.size() == node_.config().peers.size() && !node_.started()) {
          node_.HandleStarted(now);
          ToAll(Kind::kStart);
          node_.Emit({.kind = Event::Kind::kStarted});
        }
        return;
      case Kind::kBarrier: Barrier(peer, message.header.round); return;
      case Kind::kBye: Bye(peer); return;
      case Kind::kDead: {
        std::vector<std::byte> scratch;
        const auto words = UnpackStrings(message.payload.Contiguous(scratch), 2);
        if (!words) return;
        for (const Peer& lost : node_.config().peers) {
          if (lost.name == (*words)[0]) DeclareDead(lost, (*words)[1]);
        }
        return;
      }
      default: return;
    }
  }

  void OnLinkDown(NodeId peer, const std::string& reason, Time now) override {
    (void)now;
    const Peer* lost = node_.FindPeer(peer);
    if (lost != nullptr && !left_.contains(peer)) DeclareDead(*lost, reason);
  }

  // It has no part in training; what else it does is not told.
  void Describe(Digest&) const override {}

 private:
  void ToAll(Kind kind, std::initializer_list<std::string_view> strings = {}) {
    for (const Peer& peer : node_.config().peers) {
      if (!dead_.contains(peer.id)) node_.SendControl(peer.id, kind, strings);
    }
  }

  void Join(NodeId peer, const Message& message) {
    std::vector<std::byte> scratch;
    const auto words = UnpackStrings(message.payload.Contiguous(scratch), 3);
    const Peer* member = node_.FindPeer(peer);
    if (!words || (*words)[0] != member->name) {
      node_.Emit({.kind = Event::Kind::kPeerError, .peer = peer, .reason = "a malformed join"});
      return;
    }
    if (addresses_.contains(peer)) {
      node_.Emit({.kind = Event::Kind::kPeerError, .peer = peer, .reason = "joined twice"});
      return;
    }
    addresses_[peer] = (*words)[2];
    if (addresses_.size() < node_.config().peers.size()) return;
    Event roster{.kind = Event::Kind::kRoster, .text = node_.config().experiment};
    std::string lines;
    for (const Peer& each : node_.config().peers) {
      lines += each.name + "\t" + addresses_[each.id] + "\n";
      roster.roster.emplace_back(each.name, addresses_[each.id]);
    }
    ToAll(Kind::kRoster, {node_.config().experiment, lines});
    node_.Emit(std::move(roster));
  }

  void Barrier(NodeId peer, Round round) {
    auto& waiting = barriers_[round];
    waiting.insert(peer);
    if (waiting.size() < Workers()) return;
    for (const NodeId worker : waiting) node_.SendControl(worker, Kind::kRelease, {}, round);
    barriers_.erase(round);
  }

  void Bye(NodeId peer) {
    left_.insert(peer);
    std::size_t workers_left = 0;
    for (const Peer& member : node_.config().peers) {
      if (member.role == Role::kWorker && left_.contains(member.id)) ++workers_left;
    }
    if (workers_left < Workers() || node_.stopped()) return;
    node_.set_stopped();
    ToAll(Kind::kStop);
    node_.Emit({.kind = Event::Kind::kStopped});
  }

  void DeclareDead(const Peer& lost, const std::string& reason) {
    if (node_.stopped() || !dead_.insert(lost.id).second) return;
    ToAll(Kind::kDead, {lost.name, reason});
    node_.Emit({.kind = Event::Kind::kDead, .peer = lost.id, .text = lost.name, .reason = reason});
  }

  std::size_t Workers() const {
    std::size_t workers = 0;
    for (const Peer& peer : node_.config().peers) workers += peer.role == Role::kWorker;
    return workers;
  }

  std::map<NodeId, std::string> addresses_;
  std::set<NodeId> ready_, left_, dead_;
  std::map<Round, std::set<NodeId>> barriers_;
};

}  // namespace

std::unique_ptr<RoleLogic> MakeScheduler(Node& node) { return std::make_unique<Scheduler>(node); }

}  // namespace geomx
