// The driver's receive path: identifying callers, and passing messages on at their time of arrival.
// See driver.h.
#include <algorithm>
#include <charconv>
#include <utility>

#include "io/driver.h"

namespace geomx::io {
namespace {

constexpr std::size_t kMaxDelayed = 64 * 1024 * 1024;  // bytes of one link that wait to be handled

// Whether a member joins with the name of a host in place of its number: all others would look it up.
bool NamesHost(const Message& join) {
  std::vector<std::byte> scratch;
  if (join.header.payload_bytes > LongestPayload(Kind::kJoin)) return false;  // it is refused anyway
  const auto words = UnpackStrings(join.payload.Contiguous(scratch), 3);
  return words && IsLine(words->back()) && !ParseAddress(words->back());
}

}  // namespace

// ---- connections -----------------------------------------------------------------------------

Sessions::Verdict Driver::Judge(Session& caller) {
  if (closing_ && !(node_ && node_->stopped())) return Verdict::kNobody;
  const bool certain = caller.name.empty() || !caller.tls || caller.certified.IsOf(caller.name);
  if (!certain) return Verdict::kImpostor;  // whether or not it is one of the peers
  if (!node_ || standing_by()) return Verdict::kNotYet;
  if (caller.peer == kUnknownPeer) {
    for (const Peer& each : node_->config().peers) {
      if (each.name == caller.name) caller.peer = each.id;
    }
  }
  const Peer* peer = node_->FindPeer(caller.peer);
  if (peer == nullptr) return Verdict::kNobody;
  // Before it starts, a late node is told which members are back: what these say comes after that.
  if (told_.late && !node_->started()) return Verdict::kNotYet;
  if (IsUnannounced(*peer)) return Verdict::kNotYet;
  if (!Genuine(caller, *peer)) return Verdict::kImpostor;
  if (caller.greeting.late && !node_->started()) return Verdict::kEarly;
  if (caller.greeting.late && !node_->config().continues) return Verdict::kClosed;
  return JudgeIncarnation(caller);
}

// A member that was absent may know that it takes part before this node does, which would discard what
// it says. The scheduler announces it to both; itself it learns of members by their calls.
bool Driver::IsUnannounced(const Peer& peer) {
  return node_->config().scheduler && node_->node().IsAway(peer.id) && !sessions_.LinkOf(peer.id).closed;
}

// The scheduler counts the processes that join under a member's name; all others learn the current
// count from the roster. A process that repeats its first hello, as the answer was lost, counts
// again: it has sent no message yet. A process that continues after another was killed has a larger
// count.
Sessions::Verdict Driver::JudgeIncarnation(Session& caller) {
  std::uint32_t& present = incarnations_[caller.peer];
  std::uint32_t& own = caller.greeting.incarnation;
  if (node_->config().scheduler || own != 0) {
    if (own > present && RemembersNothing(caller.peer)) return Verdict::kNotYet;  // it will be announced
    if (own > present) node_->Renewed(caller.peer, {.incarnation = present = own, .anew = false});
    return own == present ? Verdict::kPeer : Verdict::kLate;
  }
  return CountCaller(caller);
}

bool Driver::Genuine(const Session& session, const Peer& peer) const {
  return !session.tls || session.certified.IsOf(peer.name);
}

// Datagrams to and from a peer are exchanged as long as the connection whose keys they use.
void Driver::SealDatagrams(Session& session) {
  if (session.tls) datagrams_.SetSeal(session.peer, session.tls->MakeSeal());
}

void Driver::OnGreeting() {
  if (node_) node_->Commit();
}

void Driver::OnConnected(Session& session) {
  if (session.tls) {
    const Peer* peer = node_ ? node_->FindPeer(session.peer) : nullptr;
    const bool right = peer ? Genuine(session, *peer) : session.certified.scheduler;
    if (!right) {
      return sessions_.CloseLink(*session.link,
                                 "its certificate is that of " + session.certified.Names() +
                                     ", and not of " + (peer ? peer->name : "a scheduler"));
    }
    if (peer != nullptr) SealDatagrams(session);
  }
  scheduler_lost_ = kNever;
  if (session.peer == kUnknownPeer && !std::exchange(join_said_, true)) SayJoin(session);
  TellMade(*session.link);
  if (node_) {
    node_->HandleLinkMade(session.peer, Now());
    DrainEvents();
  }
  // What the connections before have brought waits still.
  if (session.link != nullptr && session.link->delayed_bytes > kMaxDelayed) sessions_.SetReading(session, false);
  dirty_.insert(session.peer);
  CheckReady();
}

void Driver::SayJoin(Session& session) {
  const Address& base = announced_ ? *announced_ : address_;
  const Address mine = IsWildcard(base) ? WithPort(LocalAddress(session.fd.get()), base) : base;
  Message join;
  join.header.kind = Kind::kJoin;
  join.header.source = self_;
  join.payload = Payload::Copy(PackStrings({name_, std::to_string(kWireVersion), Format(mine)}));
  join.header.payload_bytes = static_cast<std::uint32_t>(join.payload.size());
  Count(session.peer, join);
  session.link->frames.Push(std::move(join), 0, Now());
}

void Driver::OnHeard(Session& session) {
  if (!node_) return;
  node_->Hear(session.peer, session.heard);
  DrainEvents();
}

void Driver::OnRefused(const std::string& address, const std::string& reason) {
  status_.AddRefusal(address + ": " + reason);
}

// ---- arriving --------------------------------------------------------------------------------

// Messages that arrive later in the emulated network are kept until then, and have no place yet.
std::shared_ptr<std::byte> Driver::Place(const Session& session, const Header& header, Time arrives) {
  const bool now = node_ && !standing_by() && arrives == 0 && header.source == session.peer;
  return now ? node_->Room(session.peer, header) : nullptr;
}

void Driver::OnFrame(Session& session, Frame frame) {
  Acknowledge(*session.link);
  if (!node_) return BeforeTheNode(session, frame.message);
  Header& header = frame.message.header;
  const bool joining = header.kind == Kind::kJoin || header.kind == Kind::kHeartbeat;
  if (joining && header.source == kUnknownPeer) header.source = session.peer;
  if (header.source != session.peer) {
    return sessions_.CloseLink(*session.link,
                               std::string(kBrokeProtocol) + "speaks for another node");
  }
  if (header.kind == Kind::kJoin && NamesHost(frame.message)) {
    return sessions_.CloseLink(*session.link,
                               std::string(kBrokeProtocol) + "a join whose address is not a number");
  }
  if (header.kind == Kind::kJoin) header.round = incarnations_[session.peer];
  if (frame.arrives == 0) return Handle(session.peer, frame.message);
  session.link->delayed_bytes += frame.message.wire_bytes();
  if (session.link->delayed_bytes > kMaxDelayed) sessions_.SetReading(session, false);
  Delay({.at = frame.arrives,
        .from = session.peer,
        .session = session.id,
        .message = std::move(frame.message)});
}

// The scheduler's answer to a join arrives before this node has its configuration.
void Driver::BeforeTheNode(Session& session, const Message& message) {
  std::vector<std::byte> scratch;
  const Kind kind = message.header.kind;
  if (session.peer != kUnknownPeer || (kind != Kind::kRoster && kind != Kind::kDead)) return;
  const auto words = UnpackStrings(message.payload.Contiguous(scratch), 2);
  if (!words) return sessions_.CloseLink(*session.link, "a malformed answer");
  if (kind == Kind::kDead) return status_.Fail((*words)[0], (*words)[1]);
  Joined joined{.experiment = (*words)[0], .roster = {}};
  if (!TakeRoster((*words)[1], joined)) {
    return sessions_.CloseLink(*session.link, "a malformed roster");
  }
  joined_ = true;
  joined.late = message.header.round > 0;
  join_deadline_ = kNever;
  told_ = joined;
  status_.SetJoined(std::move(joined));
}

// Parses the roster: a line per node with name, address and incarnation, separated by tabs.
bool Driver::TakeRoster(const std::string& lines, Joined& joined) {
  for (std::size_t at = 0; at < lines.size();) {
    const std::size_t end = lines.find('\n', at);
    const std::size_t tab = lines.find('\t', at);
    const std::size_t next = tab == std::string::npos ? tab : lines.find('\t', tab + 1);
    if (end == std::string::npos || next == std::string::npos || next >= end) return false;
    const std::string name = lines.substr(at, tab - at);
    std::uint32_t& number = roster_incarnations_[name];
    const char* const last = lines.data() + end;
    const auto read = std::from_chars(lines.data() + next + 1, last, number);
    if (read.ec != std::errc() || read.ptr != last) return false;
    if (!joined.roster.emplace(name, lines.substr(tab + 1, next - tab - 1)).second) return false;
    at = end + 1;
  }
  return true;
}

void Driver::Delay(Delayed message) {
  node_->Hold(message.from, message.message, message.at);
  Keep(std::move(message));
}

void Driver::Keep(Delayed message) {
  message.order = order_++;
  delayed_bytes_ += message.message.wire_bytes();
  delayed_bytes_max_ = std::max(delayed_bytes_max_, delayed_bytes_);
  delayed_.push_back(std::move(message));
  std::push_heap(delayed_.begin(), delayed_.end(), Later{});
}

void Driver::ReleaseDelayed(Time now) {
  while (!delayed_.empty() && delayed_.front().at <= now) {
    std::pop_heap(delayed_.begin(), delayed_.end(), Later{});
    Delayed due = std::move(delayed_.back());
    delayed_.pop_back();
    const std::size_t bytes = due.message.wire_bytes();
    delayed_bytes_ -= bytes;
    if (due.session == 0) {
      datagrams_.Release(due.from, bytes);
    } else if (due.session != kGoneSession) {
      PeerLink& link = sessions_.LinkOf(due.from);
      link.delayed_bytes -= std::min(link.delayed_bytes, bytes);
      const bool resumes = link.session && !link.session->reading && link.delayed_bytes < kMaxDelayed / 2;
      if (resumes) sessions_.SetReading(*link.session, true);
    }
    const Time begin = Now();
    node_->Release(due.from, due.message, begin);
    if (due.message.header.kind == Kind::kReplicated) LetLeave();
    if (due.message.header.kind == Kind::kRecords && keeper_.repeat) keeper_.repeat(due.message);
    Follow(due.message.header.key, due.message.header.round, begin);
  }
}

}  // namespace geomx::io
