#include "core/node.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "core/worker.h"

namespace geomx {
namespace {

bool IsTooLong(const Header& header) { return header.payload_bytes > LongestPayload(header.kind); }
std::string TooLong(Kind kind) { return std::string("a ") + KindName(kind) + " that is too long"; }

}  // namespace

Node::Node(NodeConfig config)
    : state_(std::move(config)),
      flows_(state_.config, state_.peers),
      sums_(state_, flows_),
      encoder_(state_),
      sender_(state_, flows_, encoder_, overlay_),
      receiver_(state_, flows_, sums_, overlay_, role_),
      coordinators_(state_, overlay_),
      membership_(state_, overlay_, role_) {
  if (!state_.config.groups.empty()) overlay_.emplace(*this, state_.config.groups);
  for (const NodeId id : state_.config.absent) {
    if (FindPeer(id) != nullptr) SetAway(id, true);
  }
  role_ = MakeRole(*this);
  for (const NodeId id : state_.config.absent) {
    const Peer* peer = FindPeer(id);
    if (peer != nullptr && peer->role == Role::kWorker) coordinators_.HandleMember(id, false, 0);
  }
}

Node::~Node() = default;

bool Node::IsMaster(NodeId id) const {
  return state_.config.master == id || (state_.config.open && state_.peers.IsChild(id));
}

// ---- messages --------------------------------------------------------------------------------

void Node::HandleMessage(NodeId from, const Message& message, Time now) {
  flows_.PrefetchSlot(FlowOf(from, message.header));  // arrives while the message is checked
  const Peers::Neighbour* const sender = std::as_const(state_.peers).FindNeighbour(from);
  if (sender == nullptr) return Fail(from, "not a peer of this node");
  const Header& header = message.header;
  if (sender->away) {
    if (IsTooLong(header)) return Fail(from, TooLong(header.kind));
    return role_->OnLate(from, message, now);
  }
  membership_.Hear(from, now);
  if (std::string objection = Objection(*sender, from, header); !objection.empty()) {
    return state_.Refuse(from, header, std::move(objection));
  }
  if (!IsTransfer(header.kind)) return HandleControl(from, message, now);
  receiver_.Accept(from, message, now);
  membership_.SayByeIfAnswered();
}

std::shared_ptr<std::byte> Node::Room(NodeId from, const Header& header) {
  const Peers::Neighbour* const sender = std::as_const(state_.peers).FindNeighbour(from);
  const bool taken = IsTransfer(header.kind) && sender != nullptr && !sender->away;
  return taken && Objection(*sender, from, header).empty() ? receiver_.Room(from, header) : nullptr;
}

std::string Node::Objection(const Peers::Neighbour& sender, NodeId from, const Header& header) const {
  const bool about_shard = IsTransfer(header.kind) || header.kind == Kind::kPullRequest;
  if (header.source != from) return "a message in the name of another node";
  if (!Expected(sender, from, header)) return std::string("unexpected ") + KindName(header.kind);
  if (about_shard && header.shard_elements > state_.config.max_shard_elements) {
    return "a shard larger than any of this experiment";
  }
  return IsTooLong(header) ? TooLong(header.kind) : "";
}

// Values come from above, requests and pushes from below, both from members of an overlay; initial
// values and instructions from the master's side, and instructions from above where updates happen
// here; only workers and parties wait at barriers, and only the scheduler says who takes part.
bool Node::Expected(const Peers::Neighbour& sender, NodeId from, const Header& header) const {
  if (overlay_ && overlay_->Expects(from, header)) return true;
  const bool scheduler = state_.config.role == Role::kScheduler;
  switch (header.kind) {
    case Kind::kValue: return sender.parent;
    case Kind::kPush:
    case Kind::kPullRequest: return sender.child;
    case Kind::kInit: return IsMaster(from);
    case Kind::kCommand:
      return IsMaster(from) ||
             ((state_.config.rounds.update_at_party || role_->AsksStates()) && sender.parent);
    case Kind::kRoster:
    case Kind::kStart:
    case Kind::kStop:
    case Kind::kRelease: return state_.config.scheduler == from;
    case Kind::kDead: return state_.config.scheduler == from || scheduler;
    case Kind::kIteration:
      return state_.config.scheduler == from || (scheduler && sender.peer->role == Role::kWorker);
    case Kind::kMembers:
      return state_.config.scheduler == from ||
             (state_.config.continues && state_.config.role == Role::kServer && sender.parent) ||
             (state_.config.continues && state_.config.role == Role::kGlobalServer &&
              sender.child && header.merge_count <= sender.stands_for);
    case Kind::kJoin:
    case Kind::kReady: return scheduler;
    case Kind::kBarrier:
      return scheduler ? sender.peer->role == Role::kWorker : state_.config.rounds.early && sender.child;
    case Kind::kChallenge:
    case Kind::kProof: return false;
    case Kind::kRecords: return state_.config.role == Role::kStandby && sender.parent;
    case Kind::kReplicated: return false;  // see RecordedNode
    case Kind::kReport: return !state_.config.coordinators.empty();
    case Kind::kReply:
      return state_.config.scheduler == from || sender.parent || (overlay_ && overlay_->IsHost(from));
    default: return true;
  }
}

void Node::HandleControl(NodeId from, const Message& message, Time now) {
  const bool from_scheduler = state_.config.scheduler == from;
  switch (message.header.kind) {
    case Kind::kHello:
    case Kind::kHeartbeat:
    case Kind::kClosing:
    case Kind::kRoster:  // the driver read it before it created this node
      return;
    case Kind::kStart: {
      if (!from_scheduler || started()) return;
      std::vector<std::byte> scratch;
      const auto words = UnpackStrings(message.payload.Contiguous(scratch), 1);
      return StartWithParents(words ? words->front() : "", now);
    }
    case Kind::kStop:
      if (!from_scheduler || stopped()) return;
      membership_.Stop();
      role_->OnStop(now);
      return Emit({.kind = Event::Kind::kStopped});
    case Kind::kReport: return coordinators_.HandleReport(from, message, now);
    case Kind::kReply:
      if (coordinators_.HandleReply(from, message, now)) return;
      break;
    case Kind::kDead: {
      std::vector<std::byte> scratch;
      const auto words = UnpackStrings(message.payload.Contiguous(scratch), 2);
      if (!from_scheduler || !words) break;
      return Emit({.kind = Event::Kind::kDead, .text = (*words)[0], .reason = (*words)[1]});
    }
    case Kind::kMembers: {
      if (!from_scheduler) break;
      const auto change = UnpackMemberChange(message);
      if (!change) return Fail(from, "a malformed change of members");
      if (membership_.Advance(change->epoch)) Change(*change, now);
      return;
    }
    case Kind::kIteration:
      if (!from_scheduler) break;
      return Emit({.kind = Event::Kind::kIteration, .round = message.header.round});
    case Kind::kBye:
      membership_.HandleBye(from);
      if (overlay_) overlay_->OnBye(from);
      break;
    default: break;
  }
  role_->OnControl(from, message, now);
  if (message.header.kind == Kind::kCommand) receiver_.ResumeAll(now);
}

// A member that joins while its parent is lost starts when that is back. It says until then that it is there.
void Node::StartWithParents(std::string age, Time now) {
  const auto& parents = state_.config.parents;
  if (std::any_of(parents.begin(), parents.end(), [this](NodeId id) { return IsAway(id); })) {
    start_due_ = std::move(age);
    return membership_.Beat(now);
  }
  start_due_.reset();
  late_ = !age.empty();
  membership_.Start(now);
  Emit({.kind = Event::Kind::kStarted, .text = std::move(age)});
}

void Node::Change(const MemberChange& change, Time now) {
  const NodeId who = change.who;
  if (who == state_.config.id) return;
  if (change.back) incarnations_[who] = change.incarnation;
  if (change.moved) return Move(change, now);
  if (const Peer* peer = FindPeer(who)) {
    flows_.Forget(who);
    state_.losses.Forget(who);
    if (change.back) {
      flows_.Renew(who);
      receiver_.Forget(who);
    }
    // A node that has just started takes all members for present: of one that is back it hears no loss.
    const bool news = IsAway(who) == change.back;
    SetAway(who, !change.back);
    membership_.HandleChange(who, change.back, now);
    if (peer->role == Role::kWorker && news) coordinators_.HandleMember(who, change.back, now);
  }
  Emit({.kind = change.back ? Event::Kind::kBack : Event::Kind::kGone,
        .peer = who,
        .key = change.incarnation,
        .round = change.epoch,
        .text = change.name,
        .reason = change.back ? "" : change.reason,
        .address = change.address});
  role_->OnMember(who, change.back, now);
  if (start_due_ && change.back) StartWithParents(*start_due_, now);
}

void Node::ForgetStandby(Time now) {
  if (!state_.config.standby) return;
  SetAway(*state_.config.standby, true);
  membership_.HandleChange(*state_.config.standby, false, now);
}

// Another process goes on where that of a member was: its link goes on, too.
void Node::Move(const MemberChange& change, Time now) {
  if (FindPeer(change.who) != nullptr) {
    const bool here = state_.config.role == Role::kStandby && IsParent(change.who);
    if (here) SetAway(change.who, true);  // the new process is this one
    membership_.HandleChange(change.who, !here, now);
  }
  Emit({.kind = Event::Kind::kMoved,
        .peer = change.who,
        .key = change.incarnation,
        .round = change.epoch,
        .text = change.name,
        .reason = change.reason,
        .address = change.address});
}

std::string Node::Miscount(NodeId child, std::uint32_t merge_count) const {
  const std::uint32_t own = state_.peers.StandsFor(child);
  if (merge_count == own) return {};
  if (merge_count < own && state_.config.continues) return {};  // some of them are lost
  if (merge_count > own && overlay_ && overlay_->BringsOthers(state_.config.id)) return {};
  return "stands for " + std::to_string(merge_count) + " workers, not " + std::to_string(own);
}

// ---- time ------------------------------------------------------------------------------------

Time Node::PollTimeout() const {
  return std::min({role_->NextTimeout(), coordinators_.NextTimeout(), receiver_.NextTimeout(),
                   membership_.NextTimeout()});
}

void Node::HandleTimeout(Time now) {
  receiver_.CloseDue(now);
  membership_.SayByeIfAnswered();
  membership_.HandleTimeout(now);
  coordinators_.HandleTimeout(now);
  role_->OnTimeout(now);
}

// ---- the application -------------------------------------------------------------------------

Worker& Node::worker() {
  if (state_.config.role != Role::kWorker) {
    throw std::logic_error(state_.config.name + " is not a worker");
  }
  return static_cast<Worker&>(*role_);
}

void Node::Initialise(const ShardInfo& shard, Buffer value, Time now) {
  if (state_.config.role != Role::kGlobalServer || value.size() != shard.elements) {
    throw std::invalid_argument("no initial value for " + state_.config.name);
  }
  Header header = InitialHeader(shard);
  role_->OnValue(state_.config.id, header, std::move(value), now);
}

void Node::Instruct(const std::string& text, Time now) {
  if (state_.config.role != Role::kGlobalServer) {
    throw std::invalid_argument("no instruction for " + state_.config.name);
  }
  role_->OnControl(state_.config.id, ControlMessage(Kind::kCommand, {text}), now);
  receiver_.ResumeAll(now);
}

const Buffer* Node::GlobalValue(Key key, std::uint32_t shard) const {
  return state_.config.role == Role::kGlobalServer ? GlobalValueOf(*role_, key, shard) : nullptr;
}

std::vector<Wait> Node::ListWaits() const {
  Waits waits;
  if (stopped()) return {};
  role_->ListWaits(waits);
  coordinators_.ListWaits(waits);
  if (membership_.left() && state_.config.scheduler) {
    waits.Add({.kind = Wait::Kind::kStop, .whom = {*state_.config.scheduler}});
  }
  return waits.Take();
}

// ---- inspection -------------------------------------------------------------------------------

NodeStats Node::stats() const {
  NodeStats stats = state_.stats;
  flows_.Count(stats);
  stats.shards = role_->ShardsWithRounds();
  return stats;
}

void Node::Exchange(Archive& archive) {
  archive.Name("node 7");  // the number counts changes of what follows
  archive.Name(state_.config.name);
  archive(state_.stats, state_.losses, state_.peers, incarnations_, start_due_, late_, membership_);
  archive.Name("flows");
  archive(flows_, receiver_);
  archive.Name("role");
  role_->Exchange(archive);
  archive.Name("coordinators");
  archive(coordinators_);
  if (overlay_) archive(*overlay_);
}

void Node::Describe(Digest& digest) const {
  flows_.Describe(digest);
  state_.peers.Describe(digest);
  state_.events.Describe(digest, state_.peers.LevelOf(state_.config.id));
  const bool coordinated = overlay_ || !state_.config.coordinators.empty();
  if (coordinated || membership_.leaving() || receiver_.waiting() || state_.losses.known() ||
      !state_.device.idle()) {
    digest.Unknown();  // coordinators do not describe their state
  }
  role_->Describe(digest);
}

}  // namespace geomx
