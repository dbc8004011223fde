// Connections that break in the simulated network. Recovery at both ends is the core's (link.h,
// membership.h), as in a live run; this file simulates its duration, by the rules of io/dialing.cc.
#include <algorithm>
#include <stdexcept>
#include <string>

#include "fabric/fabric.h"

namespace geomx {
namespace {

constexpr Time kFirstPause = 20 * kMillisecond;  // before the calling end calls

}  // namespace

void Fabric::ExpectFaults() {
  faults_ = true;
  for (Link& link : links_) {
    if (!link.broken) link.broken = std::make_unique<Broken>();
  }
}

std::pair<std::uint32_t, std::uint32_t> Fabric::LinksBetween(NodeId one, NodeId other) const {
  const auto find = [this](NodeId from, NodeId to) {
    const auto& links = endpoints_.at(from).links;
    const auto found = std::lower_bound(links.begin(), links.end(), std::pair{to, std::uint32_t{0}});
    const bool there = found != links.end() && found->first == to;
    if (there && links_[found->second].broken) return found->second;
    throw std::invalid_argument("no link from node " + std::to_string(from) + " to " +
                                std::to_string(to) + " that may break");
  };
  return {find(one, other), find(other, one)};
}

// ---- disturbances ------------------------------------------------------------------------------

std::uint32_t Fabric::CountBreak(std::uint32_t there, std::uint32_t back) {
  const auto waits = [this](std::uint32_t link) {
    const auto& outbox = links_[link].broken->link.outbox;
    const LinkStats& ends = links_[link].stats;
    return outbox.kept() + outbox.unsent() > 0 ||
           node(ends.source).HasMessage(ends.target, Lane::kReliable);
  };
  std::uint32_t& fruitless = links_[std::min(there, back)].broken->fruitless;
  return waits(there) || waits(back) ? ++fruitless : fruitless;
}

std::uint32_t Fabric::Cut(NodeId one, NodeId other, Time now) {
  const auto [there, back] = LinksBetween(one, other);
  const std::uint32_t fruitless = CountBreak(there, back);
  for (const std::uint32_t index : {there, back}) {
    Broken& broken = *links_[index].broken;
    if (broken.cuts++ == 0) broken.cut_at = now;
  }
  if (links_[there].broken->cuts == 1) Sever(one, other, "nothing passes", now);
  return fruitless;
}

bool Fabric::Uncut(NodeId one, NodeId other) {
  const auto [there, back] = LinksBetween(one, other);
  if (links_[there].broken->cuts == 0) {
    if (endpoints_[one].moved || endpoints_[other].moved) return false;  // away from what was cut
    throw std::invalid_argument("nothing is cut there");
  }
  for (const std::uint32_t index : {there, back}) --links_[index].broken->cuts;
  return links_[there].broken->cuts == 0;
}

void Fabric::Heal(NodeId one, NodeId other, Time now) {
  if (!Uncut(one, other)) return;
  const Time lasted = now - links_[LinksBetween(one, other).first].broken->cut_at;
  const Time redial = endpoints_[one].node->config().redial;
  RemakeAt(one, other, now + SilenceAfterCut(lasted, redial, RoundTrip(one, other)));
}

void Fabric::Reconnect(NodeId one, NodeId other, Time now) {
  if (Uncut(one, other)) RemakeAt(one, other, now);
}

std::uint32_t Fabric::Reset(NodeId one, NodeId other, Time now) {
  const auto [there, back] = LinksBetween(one, other);
  if (links_[there].broken->cuts > 0) return 0;  // all traffic is stopped, resets included
  const std::uint32_t fruitless = CountBreak(there, back);
  Sever(one, other, "connection reset", now);
  RemakeAfter(one, other, kFirstPause, now);
  return fruitless;
}

void Fabric::Pause(NodeId id, Time duration, Time now) {
  Endpoint& endpoint = endpoints_.at(id);
  endpoint.busy_until = std::max(endpoint.busy_until, now) + duration;
  endpoint.paused_until = std::max(endpoint.paused_until, now) + duration;
  if (endpoint.trainer && endpoint.trainer->computing()) endpoint.late += duration;
}

bool Fabric::Postponed(const Action& action, Time now) {
  Endpoint& endpoint = endpoints_[action.node];
  // A computation continues after each pause; a timer is late.
  const bool computes = action.kind == Action::Kind::kWake;
  const Time late = computes ? std::exchange(endpoint.late, 0) : 0;
  const Time time = late > 0 ? now + late : endpoint.paused_until;
  if (time <= now) return false;
  agenda_.Add(time, action);
  return true;
}

bool Fabric::Void(const Action& action) const {
  const Endpoint& endpoint = endpoints_[action.node];
  switch (action.kind) {
    case Action::Kind::kRelease:
    case Action::Kind::kTimer:
    case Action::Kind::kWake: return action.count != endpoint.life;
    case Action::Kind::kTell: return endpoint.dead || endpoints_[action.which].dead;
    default: return false;
  }
}

// ---- processes that die and come back ----------------------------------------------------------

std::vector<NodeId> Fabric::LinkedWith(NodeId id) const {
  std::vector<NodeId> linked;
  for (const auto& [peer, index] : endpoints_.at(id).links) linked.push_back(peer);
  return linked;
}

bool Fabric::Refuses(NodeId one, NodeId other) const {
  const RecordedNode& node = *endpoints_[one].node;
  const std::uint32_t life = endpoints_[other].life;
  return life > 0 && node.config().role != Role::kScheduler && node.Incarnation(other) != life + 1;
}

bool Fabric::LosesScheduler(NodeId id, const std::string& lost, Time now) const {
  const RecordedNode& node = *endpoints_[id].node;
  const auto scheduler = node.config().scheduler;
  return scheduler && endpoints_[*scheduler].paused_until > now && node.FindPeer(*scheduler)->name == lost;
}

void Fabric::Die(NodeId id, Time now) {
  Endpoint& endpoint = endpoints_.at(id);
  endpoint.dead = true;
  ++endpoint.life;
  endpoint.release_due = false;
  endpoint.timer = kNever;
  endpoint.busy_until = endpoint.paused_until = now;
  endpoint.late = 0;
  for (std::uint32_t& place = endpoint.waiting.first; place != kNone;) {
    Forget(std::exchange(place, messages_[place].next));
  }
  std::erase_if(notices_, [id](const Notice& notice) { return notice.node == id; });
  for (const NodeId peer : LinkedWith(id)) Sever(id, peer, "connection closed", now);
}

void Fabric::Kill(NodeId id, const std::string& reason, Time now) {
  if (endpoints_.at(id).dead) return;
  Die(id, now);
  for (NodeId other = 0; other < endpoints_.size(); ++other) {
    RecordedNode& node = *endpoints_[other].node;
    if (node.config().role != Role::kScheduler) continue;
    node.HandleLinkDown(id, reason, now);
    Touch(other, now);
  }
}

void Fabric::Restart(NodeConfig config, Time now) {
  const NodeId id = config.id, scheduler = config.scheduler.value();
  Endpoint& endpoint = endpoints_.at(id);
  if (!std::exchange(endpoint.dead, false)) throw std::invalid_argument("it was not killed");
  endpoint.trainer = nullptr;
  endpoint.node = std::make_unique<RecordedNode>(std::move(config));
  Node& node = endpoint.node->node();
  node.AssumeStarted();
  for (const NodeId peer : LinkedWith(id)) {
    const auto [there, back] = LinksBetween(id, peer);
    for (const std::uint32_t index : {there, back}) {
      Broken& broken = *links_[index].broken;
      broken.link = {};
      ++broken.connection;
    }
    if (RecordedNode& other = *endpoints_[peer].node; other.replicator() != nullptr) {
      other.Renewed(id, {.incarnation = endpoint.life + 1, .anew = true});
      links_[back].broken->link.gate.Close(0);
    }
    if (!endpoints_[peer].dead && links_[there].broken->cuts == 0) RemakeAfter(id, peer, 0, now);
  }
  const std::string& name = endpoint.node->config().name;
  Message join = ControlMessage(Kind::kJoin, {name, "", name}, endpoint.life + 1);
  node.Send(scheduler, std::move(join));
  node.Send(scheduler, ControlMessage(Kind::kReady));
  Touch(id, now);
}

void Fabric::Leave(NodeId worker, Time now) {
  endpoints_.at(worker).node->Leave(now);
  Touch(worker, now);
}

// ---- recovery ----------------------------------------------------------------------------------

void Fabric::Sever(NodeId one, NodeId other, const std::string& reason, Time now) {
  const auto [there, back] = LinksBetween(one, other);
  for (const std::uint32_t index : {there, back}) {
    Broken& broken = *links_[index].broken;
    ++broken.connection;
    ++broken.remake;
    broken.down = true;
  }
  for (const auto& [at, peer] : {std::pair{one, other}, std::pair{other, one}}) {
    if (endpoints_[at].dead) continue;
    endpoints_[at].node->HandleLinkLost(peer, reason, now);
    Touch(at, now);
  }
}

Time Fabric::RoundTrip(NodeId one, NodeId other) const {
  const auto [there, back] = LinksBetween(one, other);
  return links_[there].delay + links_[back].delay;
}

// Two round trips: one for the connection, one for the greetings (link.h).
void Fabric::RemakeAfter(NodeId one, NodeId other, Time pause, Time now) {
  RemakeAt(one, other, now + pause + 2 * RoundTrip(one, other));
}

// The same end calls each time (link.h): the one below.
void Fabric::RemakeAt(NodeId one, NodeId other, Time at) {
  if (one < other) std::swap(one, other);
  const std::uint32_t there = LinksBetween(one, other).first;
  const std::uint32_t count = ++links_[there].broken->remake;
  agenda_.Add(at, {Action::Kind::kRemake, one, there, count});
}

void Fabric::Remake(const Action& action, Time now) {
  Link& link = links_[action.which];
  if (link.broken->remake != action.count || link.broken->cuts > 0) return;
  const NodeId one = link.stats.source, other = link.stats.target;
  if (endpoints_[one].dead || endpoints_[other].dead) return;
  if (Refuses(one, other) || Refuses(other, one)) return RemakeAt(one, other, now + kFirstPause);
  const auto [there, back] = LinksBetween(one, other);
  Broken &caller = *links_[there].broken, &called = *links_[back].broken;
  Greeting answer;
  const LinkOutcome outcome = called.link.Answer(caller.link.Call(), answer);
  if (outcome != LinkOutcome::kCarried ||
      caller.link.Answered(answer) != LinkOutcome::kCarried) {
    throw std::logic_error("two ends of a link do not agree on what was received");
  }
  caller.down = called.down = false;
  endpoints_[one].node->HandleLinkMade(other, now);
  endpoints_[other].node->HandleLinkMade(one, now);
  Reached(one, other);
  Reached(other, one);
  Touch(one, now);
  Touch(other, now);
  Send(there, Lane::kReliable, now);
  Send(back, Lane::kReliable, now);
}

std::uint32_t Fabric::Lives(const Link& link) const {
  return endpoints_[link.stats.source].life + endpoints_[link.stats.target].life;
}

Fabric::Action Fabric::Own(Action::Kind kind, NodeId node) const {
  return {kind, node, 0, endpoints_[node].life};
}

// ---- messages ----------------------------------------------------------------------------------

bool Fabric::NextOver(Link& link, Lane lane, Time now, Message& message) {
  RecordedNode& source = *endpoints_[link.stats.source].node;
  const NodeId target = link.stats.target;
  if (endpoints_[link.stats.source].dead) return false;
  geomx::Link<Message>& end = link.broken->link;
  if (lane == Lane::kBestEffort) {
    // What is sent twice, by a standby once more, does no harm.
    if (end.gate.closed() && !source.replicator()->settled()) return false;
    if (!source.PollTransmit(target, lane, message)) return false;
    Count(link, message);
    source.Took(target, lane, message, Fate::kDropped);
    return true;
  }
  if (link.broken->down) return false;
  if (end.gate.closed()) {
    ChooseAhead(link, now);
  } else if (end.outbox.unsent() == 0) {
    if (!source.PollTransmit(target, lane, message)) return false;
    Count(link, message);
    const bool numbered = IsNumbered(message.header);
    end.Add(std::move(message), numbered);
  }
  if (end.ready() == 0) return false;
  message = end.outbox.At(0);
  end.outbox.Leave();
  return true;
}

bool Fabric::Swept(const Passing& passing) const {
  const Broken& broken = *links_[passing.link].broken;
  const bool reliable = passing.message.header.channel == 0;
  const LinkStats& ends = links_[passing.link].stats;
  if (passing.lives != Lives(links_[passing.link])) return true;
  if (!reliable && Refuses(ends.source, ends.target)) return true;
  return broken.cuts > 0 || (reliable && broken.connection != passing.connection);
}

bool Fabric::Arrives(const Passing& passing) {
  if (Swept(passing)) return false;
  const Link& link = links_[passing.link];
  if (!IsNumbered(passing.message.header)) return true;
  const auto [there, back] = LinksBetween(link.stats.source, link.stats.target);
  Broken &sender = *links_[there].broken, &receiver = *links_[back].broken;
  const bool fresh = receiver.link.arrivals.Take();
  // In a live run messages of the other direction carry it; no result here depends on when.
  sender.link.outbox.Acknowledge(receiver.link.receipt());
  if (fresh) sender.fruitless = receiver.fruitless = 0;
  return fresh;
}

// Membership messages do not cross the simulated network.
void Fabric::Tell(NodeId from, NodeId to, Time now) {
  bool told = false;
  while (auto message = endpoints_[from].node->PollTransmit(to, Lane::kReliable)) {
    endpoints_[from].node->Took(to, Lane::kReliable, *message, Fate::kDropped);
    endpoints_[to].node->HandleMessage(from, *message, now);
    told = true;
  }
  if (told) Touch(to, now);
}

}  // namespace geomx
