// The scheduler: membership, the common start, barriers, and losses.
//
//   joining --all joined--> connecting --all ready--> running --all workers left--> stopped
//
// A member that disappears in any state before its bye is declared dead to all others, once.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "core/barriers.h"
#include "core/ended_link.h"
#include "core/member_list.h"
#include "core/node.h"
#include "core/tree.h"

namespace geomx {
namespace {

class Scheduler final : public RoleLogic {
 public:
  explicit Scheduler(Node& node) : RoleLogic(node), tree_(node.config().tree), standbys_(node.config().standbys) {
    const NodeConfig& config = node.config();
    for (const Peer& peer : config.peers) {
      workers_ += peer.role == Role::kWorker;
      if (std::find(config.absent.begin(), config.absent.end(), peer.id) == config.absent.end()) continue;
      members_.Await(peer);
    }
    expected_ = config.peers.size() - members_.absent();
  }

  void OnValue(NodeId peer, const Header& header, Buffer value, Time now) override {
    (void)header, (void)value, (void)now;
    node_.Fail(peer, "data for a scheduler");
  }

  void OnControl(NodeId peer, const Message& message, Time now) override {
    switch (message.header.kind) {
      case Kind::kJoin: Join(peer, message, now); return;
      case Kind::kReady:
        ready_.insert(peer);
        if (ready_.size() == expected_ && !node_.started()) {
          node_.membership().Start(now);
          started_at_ = now;
          ToAll(Kind::kStart);
          node_.Emit({.kind = Event::Kind::kStarted});
          for (const auto& [early, join] : std::exchange(early_, {})) Join(early, join, now);
        }
        return;
      case Kind::kBarrier: Barrier(peer, message.header.round, now); return;
      case Kind::kBye: Bye(peer, now); return;
      case Kind::kDead: return Reported(peer, message, now);
      case Kind::kIteration: return Begins(message.header.round);
      default: return;
    }
  }

  // `peer` reports the loss of another member. The report is accepted at once from that member's parent,
  // and from any node if the member has left. Otherwise it concerns a connection, and either end may be
  // at fault.
  void Reported(NodeId peer, const Message& message, Time now) {
    std::vector<std::byte> scratch;
    auto words = UnpackStrings(message.payload.Contiguous(scratch), 2);
    if (!words) return node_.Fail(peer, "a malformed report of a loss");
    Shorten((*words)[1]);
    const auto& peers = node_.config().peers;
    const auto named = [&](const Peer& each) { return each.name == (*words)[0]; };
    const auto lost = std::find_if(peers.begin(), peers.end(), named);
    if (lost == peers.end() || !tree_.AreConnected(peer, lost->id)) {
      return node_.Fail(peer, "reports the loss of a node that it has no connection with");
    }
    const bool ended = message.header.round == kLinkEnded;
    if (ended && node_.config().continues && HasLeft(lost->id)) return;
    if (members_.IsAbsent(lost->id) || members_.IsOld(lost->id, message.header.key)) return;
    const bool believed = tree_.IsParent(peer, lost->id) || left_.contains(lost->id) ||
                          (lost->role == Role::kServer && tree_.AllChildrenIn(lost->id, left_));
    if (!ended && believed) return DeclareDead(*lost, (*words)[1], now);
    ended_.Add({now + kLinkGrace, peer, lost->id, (*words)[1]});
  }

  void OnLinkDown(NodeId peer, const std::string& reason, Time now) override {
    gone_.insert(peer);
    // The peers of a member that has left must hear of its next process, and if it is hostile.
    const bool news = reason == kReplaced || reason.starts_with(kBrokeProtocol);
    const bool tell = !HasLeft(peer) || (news && node_.config().continues);
    const Peer* lost = tell ? node_.FindPeer(peer) : nullptr;
    if (lost != nullptr) DeclareDead(*lost, reason, now);
    if (node_.config().continues || members_.IsBack(peer)) gone_.erase(peer);  // another process may take its place
  }

  // A message of a process that was declared lost, or of its successor.
  void OnLate(NodeId peer, const Message& message, Time now) override {
    if (message.header.kind == Kind::kJoin) return Join(peer, message, now);
    if (message.header.kind == Kind::kReady && members_.IsJoining(peer)) return Return(peer, now);
    if (message.header.kind == Kind::kHeartbeat || !refused_.insert(peer).second) return;
    const std::string reason = std::string(kTakenForLost) + members_.WhyAbsent(peer);
    node_.SendAnyway(peer, ControlMessage(Kind::kDead, {node_.FindPeer(peer)->name, reason}));
  }

  void ListWaits(Waits& waits) const override {
    const auto all_but = [&](Wait::Kind kind, auto here, bool workers, Round round = 0) {
      Wait wait{.kind = kind, .whom = {}, .round = round};
      for (const Peer& each : node_.config().peers) {
        if (members_.IsAbsent(each.id)) continue;
        if ((!workers || each.role == Role::kWorker) && !here(each.id)) wait.whom.push_back(each.id);
      }
      if (!wait.whom.empty()) waits.Add(wait);
    };
    if (members_.size() < expected_) {
      return all_but(Wait::Kind::kJoin, [&](NodeId id) { return members_.Has(id); }, false);
    }
    if (!node_.started()) {
      return all_but(Wait::Kind::kReady, [&](NodeId id) { return ready_.contains(id); }, false);
    }
    for (const auto& [round, waiting] : barriers_.all()) {
      all_but(Wait::Kind::kBarrier, [&](NodeId id) { return waiting.contains(id); }, true, round);
    }
    if (!left_.empty() && !node_.config().continues) {
      all_but(Wait::Kind::kLeave, [&](NodeId id) { return left_.contains(id); }, true);
    }
  }

  // Two members have lost their connection. If one of them is lost, it is silent here as well;
  // otherwise only the connection is.
  void LookAtEnded(Time now) {
    while (const auto link = ended_.Take(now)) {
      if (node_.stopped() || !dead_.empty()) continue;
      const auto silence = [&](NodeId id) { return node_.membership().Silence(id, now); };
      const NodeId silent = silence(link->one) > silence(link->other) ? link->one : link->other;
      if (silence(silent) > node_.membership().Bearable(silent) / 2) {
        DeclareDead(*node_.FindPeer(silent), link->reason, now);
        continue;
      }
      if (const auto spare = standbys_.Spare(link->one, link->other)) {
        DeclareDead(*node_.FindPeer(*spare), link->reason, now);
        continue;
      }
      if (node_.config().continues) {  // drop the one that the run needs less
        const Peer &one = *node_.FindPeer(link->one), &other = *node_.FindPeer(link->other);
        DeclareDead(one.role < other.role ? one : other, link->reason, now);
        continue;
      }
      const std::string name = node_.FindPeer(link->one)->name + std::string(kBetween) +
                               node_.FindPeer(link->other)->name;
      ToAll(Kind::kDead, {name, link->reason});
      dead_.insert(link->other);
      node_.Emit({.kind = Event::Kind::kDead, .peer = link->other, .text = name, .reason = link->reason});
    }
  }

  // A worker that has left is reported as missing at a barrier only after a moment: another that
  // stopped waiting there may be leaving as well.
  void OnTimeout(Time now) override {
    LookAtEnded(now);
    if (now < look_again_) return;
    look_again_ = kNever;
    if (const auto missed = Missed()) DeclareDead(*node_.FindPeer(missed->first), missed->second, now);
  }
  Time NextTimeout() const override { return std::min(look_again_, ended_.NextDue()); }

  bool Dispensable(NodeId peer) const override { return standbys_.HasOne(peer) || standbys_.ServerOf(peer); }

  void Describe(Digest&) const override {}  // it has no part in training

  void Exchange(Archive& archive) override {
    archive(ended_, expected_, ready_, left_, workers_left_, dead_, gone_,
            barriers_, members_, early_, refused_, started_at_, look_again_, standbys_, begun_);
  }

 private:
  // Whether a member has left in good order. A server must leave after all its workers; otherwise it
  // is lost.
  bool HasLeft(NodeId id) const { return left_.contains(id) && tree_.AllChildrenIn(id, left_); }

  // A member that is declared dead is told too: it may still wait for others.
  void ToAll(Kind kind, std::initializer_list<std::string_view> strings = {}, Round round = 0) {
    for (const Peer& peer : node_.config().peers) {
      if (!gone_.contains(peer.id)) node_.Send(peer.id, ControlMessage(kind, strings, round));
    }
  }

  // A worker begins a local step; the others follow, and say so as well.
  void Begins(Round iteration) {
    if (iteration <= begun_) return;
    begun_ = iteration;
    ToAll(Kind::kIteration, {}, iteration);
    node_.Emit({.kind = Event::Kind::kIteration, .round = iteration});
  }

  void Join(NodeId peer, const Message& message, Time now) {
    std::vector<std::byte> scratch;
    const auto words = UnpackStrings(message.payload.Contiguous(scratch), 3);
    const Peer* member = node_.FindPeer(peer);
    if (!words || (*words)[0] != member->name) return node_.Fail(peer, "a malformed join");
    if (std::string wrong = WrongAddress((*words)[2]); !wrong.empty()) return node_.Fail(peer, wrong);
    if (node_.started() && node_.config().continues) {
      return JoinLate(*member, (*words)[2], message.header.round, now);
    }
    if (members_.IsAbsent(peer)) return early_.insert_or_assign(peer, message), void();
    if (members_.Has(peer)) return node_.Fail(peer, "joined twice");
    members_.Join(peer, (*words)[2], message.header.round);
    if (members_.size() < expected_) return;
    Event roster{.kind = Event::Kind::kRoster, .text = node_.config().experiment};
    for (const Peer& each : node_.config().peers) {
      if (members_.Has(each.id)) roster.roster.emplace_back(each.name, members_.AddressOf(each.id));
    }
    ToAll(Kind::kRoster, {node_.config().experiment, members_.Lines(node_.config().peers)});
    node_.Emit(std::move(roster));
  }

  // ---- members that are lost and come back ----

  // A new process of a member has joined. It is told the experiment, from which it builds its node.
  void JoinLate(const Peer& member, const std::string& address, Round incarnation, Time now) {
    if (members_.Repeats(member.id, incarnation)) return node_.Fail(member.id, "joined twice");
    if (!members_.IsAbsent(member.id)) Lose(member, kReplaced, now);
    if (node_.stopped()) return;
    members_.JoinLate(member, address, incarnation);
    const std::string lines = members_.Lines(node_.config().peers);
    node_.SendAnyway(member.id, ControlMessage(Kind::kRoster, {node_.config().experiment, lines},
                                               members_.epoch() + 1));
  }

  // That node is ready and takes the member's place. It is told of all lost members, and all others
  // are told of it.
  void Return(NodeId member, Time now) {
    if (node_.stopped()) return;
    const auto earlier = members_.Changes();
    const MemberChange change = members_.Return(member);
    refused_.erase(member);
    left_.erase(member);
    workers_left_.erase(member);
    barriers_.Renew(member);
    node_.Change(change, now);
    for (const auto& [epoch, known] : earlier) {
      if (known.who != member) node_.Send(member, Pack(known));
    }
    for (const Peer& peer : node_.config().peers) node_.Send(peer.id, Pack(change));
    node_.Send(member, ControlMessage(Kind::kStart, {std::to_string(now - started_at_)}));
  }

  // Training continues without a worker, or a party.
  void Lose(const Peer& lost, const std::string& reason, Time now) {
    if (members_.IsAbsent(lost.id)) return;
    ended_.Forget(lost.id);
    const MemberChange change = members_.Lose(lost, reason);
    node_.Change(change, now);
    for (const Peer& peer : node_.config().peers) node_.Send(peer.id, Pack(change));
    if (lost.role == Role::kWorker) barriers_.Leave(lost.id);
    ReleaseAll();
    StopIfDone();
  }

  // Whether a worker waits for its local server, which is lost or has not joined yet.
  bool LacksServer(NodeId worker) const {
    return tree_.AnyParent(worker, [this](NodeId id) { return members_.IsAbsent(id); });
  }

  // The number of workers (of those in `some`, if given) that are neither lost nor have left, and whose
  // server is there.
  std::size_t Present(const std::set<NodeId>* some = nullptr) const {
    const auto& peers = node_.config().peers;
    return static_cast<std::size_t>(std::count_if(peers.begin(), peers.end(), [&](const Peer& each) {
      if (some != nullptr && !some->contains(each.id)) return false;
      return each.role == Role::kWorker && !LacksServer(each.id) && !members_.IsAbsent(each.id) &&
             !workers_left_.contains(each.id);
    }));
  }

  void Barrier(NodeId peer, Round round, Time now) {
    if (std::string wrong = barriers_.Come(peer, round); !wrong.empty()) return node_.Fail(peer, wrong);
    if (!Release(round)) CheckLeft(now);
  }

  // Releases a barrier if all workers have come; with NodeConfig::continues, all that take part, now or when
  // the others passed it. Returns whether it did.
  bool Release(Round round) {
    const auto found = barriers_.all().find(round);
    const auto& waiting = found->second;
    const bool all = node_.config().continues
                         ? barriers_.Passed(round) || (!waiting.empty() && Present(&waiting) == Present())
                         : waiting.size() >= workers_;
    if (!all) return false;
    for (const NodeId worker : waiting) node_.Send(worker, ControlMessage(Kind::kRelease, {}, round));
    barriers_.Release(found);
    return true;
  }

  // Releases every complete barrier.
  void ReleaseAll() {
    for (auto each = barriers_.all().begin(); each != barriers_.all().end();) Release((each++)->first);
  }

  void CheckLeft(Time now) {
    if (look_again_ == kNever && Missed()) look_again_ = now + kPatience;
  }

  // A worker that has left while others wait for it at a barrier, which would never be released;
  // and the reason to report.
  std::optional<std::pair<NodeId, std::string>> Missed() const {
    if (workers_left_.empty() || node_.stopped() || node_.config().continues) return std::nullopt;
    const auto missed = barriers_.FindMissed(workers_left_);
    if (!missed) return std::nullopt;
    return std::pair{missed->left, "it left while " + node_.FindPeer(missed->waits)->name +
                                       " waits at barrier " + std::to_string(missed->round) +
                                       ": every worker must come to every barrier"};
  }

  void Bye(NodeId peer, Time now) {
    left_.insert(peer);
    if (node_.FindPeer(peer)->role == Role::kWorker) workers_left_.insert(peer);
    if (node_.stopped()) return;
    if (node_.config().continues) {
      ReleaseAll();
      return StopIfDone();
    }
    if (workers_left_.size() < workers_) return CheckLeft(now);
    Stop();
  }

  // Stops the run once the last worker that takes part has left. If all are lost, one of them may
  // still come back.
  void StopIfDone() {
    if (!node_.stopped() && Present() == 0 && !workers_left_.empty()) Stop();
  }

  void Stop() {
    node_.membership().Stop();
    ToAll(Kind::kStop);
    node_.Emit({.kind = Event::Kind::kStopped});
  }

  // ---- standbys ----

  // The standby of a lost global server goes on in its place, and all are told where that is.
  void Move(const Peer& lost, const std::string& reason, Time now) {
    ended_.Forget(lost.id);
    const MemberChange change = members_.Move(lost, standbys_.Take(lost.id), reason);
    node_.Change(change, now);
    for (const Peer& peer : node_.config().peers) {
      if (peer.id != lost.id) node_.Send(peer.id, Pack(change));
    }
  }

  // A global server goes on without its standby.
  void LoseStandby(NodeId server, const Peer& standby, const std::string& reason, Time now) {
    standbys_.Take(server);
    const MemberChange change = members_.Lose(standby, reason);
    node_.Change(change, now);
    node_.Send(server, Pack(change));
  }

  // Handles the loss of a node that has a standby, or is one. Returns whether the run goes on as before.
  bool StoodBy(const Peer& lost, const std::string& reason, Time now) {
    if (node_.stopped() || !node_.started()) return false;
    if (lost.role == Role::kStandby) {
      if (const auto server = standbys_.ServerOf(lost.id)) LoseStandby(*server, lost, reason, now);
      return true;
    }
    if (!standbys_.HasOne(lost.id)) return false;
    Move(lost, reason, now);
    return true;
  }

  void DeclareDead(const Peer& lost, const std::string& reason, Time now) {
    if (StoodBy(lost, reason, now)) return;
    const bool bearable = lost.role == Role::kWorker || lost.role == Role::kServer;
    if (node_.config().continues && node_.started() && !node_.stopped() && bearable) {
      return Lose(lost, reason, now);
    }
    if (node_.stopped() || !dead_.insert(lost.id).second) return;
    ToAll(Kind::kDead, {lost.name, reason});
    node_.Emit({.kind = Event::Kind::kDead, .peer = lost.id, .text = lost.name, .reason = reason});
  }

  static constexpr Time kPatience = kSecond;
  static constexpr Time kLinkGrace = kSecond / 2;

  const Tree tree_;
  StandbyPairs standbys_;
  EndedLinks ended_;  // connections between members
  std::size_t workers_ = 0;
  std::size_t expected_ = 0;  // members before the start
  std::set<NodeId> ready_, left_, workers_left_;
  std::set<NodeId> dead_, gone_;  // declared dead; connection to this node ended
  Barriers barriers_;
  MemberList members_;
  std::map<NodeId, Message> early_;        // joins of members that are to join later
  std::set<NodeId> refused_;               // of the absent, those that have been told
  Time started_at_ = 0;
  Time look_again_ = kNever;  // for workers missing at a barrier
  Round begun_ = 0;           // the latest local step of which all were told
};

}  // namespace

std::unique_ptr<RoleLogic> MakeScheduler(Node& node) { return std::make_unique<Scheduler>(node); }

}  // namespace geomx
