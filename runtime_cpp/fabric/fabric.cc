#include "fabric/fabric.h"

#include <algorithm>
#include <stdexcept>

#include "core/plugin_failure.h"

namespace geomx {

Fabric::Fabric(std::uint64_t seed, std::size_t max_spans, bool fifo)
    : network_(fifo), spans_(max_spans), random_(seed * 0x9e3779b97f4a7c15u + 0x632be59bd9b4e019u) {}

double Fabric::Draw() {  // splitmix64
  std::uint64_t x = (random_ += 0x9e3779b97f4a7c15u);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return static_cast<double>((x ^ (x >> 31)) >> 11) * 0x1p-53;
}

net::EdgeId Fabric::AddEdge(net::BandwidthSchedule schedule, Time delay) {
  const net::EdgeId edge = network_.AddEdge(schedule.At(0), delay);
  schedules_.Add(edge, std::move(schedule));
  return edge;
}

void Fabric::AddNode(NodeConfig config, std::shared_ptr<const Costs> costs) {
  if (config.id != endpoints_.size()) throw std::invalid_argument("node ids must come in order");
  if (config.device) throw std::invalid_argument("a simulated node has no device");
  Endpoint endpoint;
  endpoint.node = std::make_unique<RecordedNode>(std::move(config));
  endpoint.node->node().AssumeStarted();
  endpoint.costs = std::move(costs);
  endpoints_.push_back(std::move(endpoint));
}

void Fabric::Connect(NodeId source, NodeId target, const net::LinkOptions& options) {
  const auto index = static_cast<std::uint32_t>(links_.size());
  Link link;
  link.stats.source = source;
  link.stats.target = target;
  link.options = options;
  link.gives_way = options.queueing == net::Queueing::kFifo;
  for (const Lane lane : {Lane::kReliable, Lane::kBestEffort}) {
    const net::ConnectionId id = network_.AddConnection(net::LaneOptions(options, lane));
    link.lanes[static_cast<int>(lane)] = id;
    if (connection_owner_.size() <= id) connection_owner_.resize(id + 1);
    connection_owner_[id] = {index, lane};
  }
  link.delay = network_.Delay(link.lanes[0]);
  links_.push_back(std::move(link));
  auto& outgoing = endpoints_.at(source).links;
  outgoing.insert(std::upper_bound(outgoing.begin(), outgoing.end(), std::pair{target, index}),
                  {target, index});
}

void Fabric::Train(NodeId worker, std::shared_ptr<const TrainingPlan> plan,
                   std::shared_ptr<const Pace> pace) {
  endpoints_.at(worker).trainer =
      std::make_unique<Trainer>(*this, worker, std::move(plan), std::move(pace));
}

Time Fabric::Advance(Time limit) {
  while (notices_.empty() && !network_.HasCalls()) {
    const Time network = network_.NextEvent();
    const Time next = Next(std::min(network, agenda_.next()));
    if (next >= limit) return limit;
    FollowSchedules(next);
    if (network == next) {
      completed_.clear();
      network_.Advance(next, &completed_);
      happened_ += completed_.size();
      for (std::size_t i = 0; i < completed_.size(); ++i) {
        PrefetchLeaving(i + 1);
        Left(completed_[i], next);
      }
    }
    while (agenda_.next() == next) {
      ++happened_;
      const Action action = agenda_.Take();
      PrefetchArrivals();
      Run(action, next);
    }
  }
  return now_;
}

void Fabric::Run(const Action& action, Time now) {
  Endpoint& endpoint = endpoints_[action.node];
  if (faults_ && Void(action)) return;
  switch (action.kind) {
    case Action::Kind::kDeliver:
      if (faults_ && !Arrives(messages_[action.which])) return Forget(action.which);
      return Deliver(action.node, action.which, now);
    case Action::Kind::kRelease:
      if (endpoint.busy_until > now) {  // work was added in the meantime
        agenda_.Add(endpoint.busy_until, action);
        return;
      }
      endpoint.release_due = false;
      Release(action.node, now);
      Serve(action.node, now);
      return;
    case Action::Kind::kTimer:
      if (faults_ && Postponed(action, now)) return;
      endpoint.timer = kNever;
      endpoint.node->HandleTimeout(now);
      Touch(action.node, now);
      return;
    case Action::Kind::kWake:
      if (!faults_ || !Postponed(action, now)) endpoint.trainer->Wake(now);
      return;
    case Action::Kind::kPace:
      links_[action.which].pacing = false;
      Send(action.which, Lane::kBestEffort, now);
      return;
    case Action::Kind::kRemake: return Remake(action, now);
    case Action::Kind::kTell: return Tell(action.node, action.which, now);
    case Action::Kind::kOpen: return Open(action, now);
    case Action::Kind::kTransferred: return Transferred(action);
  }
}

// ---- the wire --------------------------------------------------------------------------------

bool Fabric::Send(std::uint32_t index, Lane lane, Time now) {
  Link& link = links_[index];
  const int which = static_cast<int>(lane);
  const bool datagrams = lane == Lane::kBestEffort && link.gives_way;
  if (datagrams && network_.fifo()) return SendDatagrams(index, now);
  if (network_.Busy(link.lanes[which])) return true;
  if (link.detour) Turn(link, which);
  if (datagrams && MustWait(index, now)) return false;
  const std::uint32_t place = Take(index, lane, now);
  if (place == kNone) return false;
  Put(link, which, place, now, now);
  return true;
}

std::uint32_t Fabric::Take(std::uint32_t index, Lane lane, Time now) {
  Link& link = links_[index];
  Endpoint& source = endpoints_[link.stats.source];
  const std::uint32_t place = messages_.Take();
  Message& message = messages_[place].message;
  const bool found = link.broken ? NextOver(link, lane, now, message)
                                 : source.node->PollTransmit(link.stats.target, lane, message);
  if (!found) {
    messages_.Free(place);
    return kNone;
  }
  const std::size_t bytes = message.wire_bytes();
  if (!link.broken) Count(link, message);
  if (const double cost = source.costs->send.For({message.frames, bytes}); cost > 0) {
    Occupy(source, now, Nanoseconds(cost));
  }
  if (lane == Lane::kBestEffort && link.gives_way) link.pacer.Spend(bytes);
  if (link.active++ == 0) link.active_since = now;
  if (link.broken) {
    messages_[place].link = index;
    messages_[place].connection = link.broken->connection;
    messages_[place].lives = Lives(link);
  }
  ++under_way_;
  return place;
}

void Fabric::Put(Link& link, int which, std::uint32_t place, Time since, Time now) {
  link.started[which] = since;
  link.in_flight[which] = place;
  const Message& message = messages_[place].message;
  if (which == 0 && IsData(message.header)) network_.NotePriority(link.lanes[0], message.header.priority);
  network_.Start(link.lanes[which], static_cast<double>(message.wire_bytes()), now);
}

void Fabric::Count(Link& link, const Message& message) {
  const std::size_t bytes = message.wire_bytes();
  if (IsData(message.header)) {
    link.stats.data[static_cast<int>(DirectionOf(message.header))].Add(bytes, message.frames);
  } else {
    link.stats.control_bytes += bytes;
  }
}

void Fabric::Left(net::ConnectionId connection, Time now) {
  const auto [index, lane] = connection_owner_[connection];
  if ((index & kTransfers) != 0) return Sent(index & ~kTransfers, now);
  Link& link = links_[index];
  const int which = static_cast<int>(lane);
  const std::uint32_t place = link.in_flight[which];
  const Message& message = messages_[place].message;
  if (--link.active == 0) link.stats.busy += now - link.active_since;
  --under_way_;
  AddSpan({.node = link.stats.source,
           .peer = link.stats.target,
           .category = Span::Category::kSend,
           .kind = message.header.kind,
           .channel = message.header.channel,
           .shard = message.header.shard,
           .bytes = static_cast<std::uint32_t>(message.wire_bytes()),
           .key = message.header.key,
           .round = RoundOfRun(message),
           .start = link.started[which],
           .end = now});
  bool lost = ending_ == Ending::kLost || (link.broken && Swept(messages_[place]));
  if (!lost && lane == Lane::kBestEffort && ending_ == Ending::kArrives) {
    const auto bytes = static_cast<double>(message.wire_bytes());
    lost = net::Overflowed(network_, link.options, bytes, now - link.started[which]) ||
           (link.options.loss > 0 && Draw() >= net::Kept(link.options, bytes));
  }
  if (lost) {
    ++lost_;
    Forget(place);
  } else {
    Time arrival = now + link.delay;
    if (link.options.jitter > 0) {
      arrival += static_cast<Time>(Draw() * static_cast<double>(link.options.jitter));
    }
    // A stream of bytes keeps its order when the delay varies.
    if (lane == Lane::kReliable) arrival = link.last_delivery = std::max(arrival, link.last_delivery);
    const Action deliver{Action::Kind::kDeliver, link.stats.target, place};
    if (ending_ == Ending::kHeld) {
      held_[connection].push_back(deliver);
    } else {
      agenda_.Add(arrival, deliver);
    }
  }
  if (lane == Lane::kBestEffort) PutQueued(links_[index], now);
  const bool more = Send(index, lane, now);
  if (!more && links_[index].gives_way) Send(index, Lane::kBestEffort, now);
}

void Fabric::Pump(NodeId id, Time now) {
  Endpoint& endpoint = endpoints_[id];
  endpoint.node->TakeDirty(dirty_);
  for (const NodeId peer : dirty_) {
    const auto link = std::lower_bound(endpoint.links.begin(), endpoint.links.end(),
                                       std::pair{peer, std::uint32_t{0}});
    if (link == endpoint.links.end() || link->first != peer) {
      if (faults_) agenda_.Add(now, {Action::Kind::kTell, id, peer});
      continue;
    }
    Send(link->second, Lane::kReliable, now);
    Send(link->second, Lane::kBestEffort, now);
  }
}

// ---- endpoints -------------------------------------------------------------------------------

Time Fabric::Occupy(Endpoint& endpoint, Time now, Time cost) {
  if (endpoint.stretch != 1.0) cost = Nanoseconds(static_cast<double>(cost) / kSecond * endpoint.stretch);
  Time start = std::max(now, endpoint.busy_until);
  if (cores_.shared()) start = cores_.Take(start, cost);
  endpoint.busy_until = start + cost;
  endpoint.worked += cost;
  return start;
}

void Fabric::Deliver(NodeId id, std::uint32_t message, Time now) {
  ++processed_;
  Waiting& waiting = endpoints_[id].waiting;
  (waiting.first == kNone ? waiting.first : messages_[waiting.last].next) = message;
  waiting.last = message;
  messages_[message].next = kNone;
  Serve(id, now);
}

void Fabric::Forget(std::uint32_t place) {
  messages_[place].message.payload = {};  // releases its owner
  messages_.Free(place);
}

void Fabric::Serve(NodeId id, Time now) {
  Endpoint& endpoint = endpoints_[id];
  std::uint32_t& waiting = endpoint.waiting.first;
  while (waiting != kNone && endpoint.busy_until <= now && !endpoint.release_due) {
    const std::uint32_t place = std::exchange(waiting, messages_[waiting].next);
    const Message& message = messages_[place].message;
    endpoint.node->HandleMessage(message.header.source, message, now);
    const double copied = endpoint.copy ? Copied(id, message) : 0;
    if (endpoint.node->replicator()) LetLeave(id, now);
    const std::size_t bytes = message.wire_bytes();
    const std::uint64_t frames = message.frames;
    const Key key = message.header.key;
    const Round round = RoundOfRun(message);
    Forget(place);
    Charge(id, now, endpoint.costs->receive.For({frames, bytes}) + copied, key, round);
  }
  if (waiting != kNone && !endpoint.release_due) {  // still sending
    endpoint.release_due = true;
    agenda_.Add(endpoint.busy_until, Own(Action::Kind::kRelease, id));
  }
}

void Fabric::Charge(NodeId id, Time now, double seconds, Key key, Round round) {
  Endpoint& endpoint = endpoints_[id];
  const Work work = endpoint.node->TakeWork();
  const Time cost = Nanoseconds(seconds + endpoint.costs->For(work));
  if (cost <= 0) {
    if (!endpoint.release_due) Release(id, now);
    return;
  }
  const Time start = Occupy(endpoint, now, cost);
  if (work.update.times + work.aggregate.times + work.encode.times > 0) {
    AddSpan({.node = id,
             .peer = id,
             .category = work.update.times > 0      ? Span::Category::kUpdate
                         : work.aggregate.times > 0 ? Span::Category::kAggregate
                                                     : Span::Category::kEncode,
             .key = key,
             .round = round,
             .start = start,
             .end = endpoint.busy_until});
  }
  // Receiving alone needs no release event; a delivery in the meantime waits by `busy_until`.
  const bool silent = endpoint.node->Quiet() && endpoint.node->PollTimeout() >= endpoint.timer &&
                      !endpoint.node->recorded();
  if (!endpoint.release_due && !silent) {
    endpoint.release_due = true;
    agenda_.Add(endpoint.busy_until, Own(Action::Kind::kRelease, id));
  }
}

void Fabric::Release(NodeId id, Time now) {
  Endpoint& endpoint = endpoints_[id];
  Pump(id, now);
  while (auto event = endpoint.node->PollEvent()) {
    Report(id, std::move(*event), now);
  }
  if (endpoint.node->recorded()) Replicate(id, now);
  const Time deadline = endpoint.node->PollTimeout();
  if (deadline < endpoint.timer) {
    endpoint.timer = deadline;
    agenda_.Add(std::max(deadline, now), Own(Action::Kind::kTimer, id));
  }
}

void Fabric::Report(NodeId id, Event&& event, Time now) {
  Trainer* trainer = endpoints_[id].trainer.get();
  switch (event.kind) {
    case Event::Kind::kPeerError: {
      const RecordedNode& node = *endpoints_[id].node;
      const Peer* peer = node.FindPeer(event.peer);
      throw PluginFailure(event.reason + " (" + node.config().name + " refuses what " +
                          (peer ? peer->name : "node " + std::to_string(event.peer)) + " sent)");
    }
    case Event::Kind::kValueReady:
      if (trainer != nullptr) {
        trainer->OnValue(event.key, RoundOfRun(event.round, Digest::Level::kParty), now);
      }
      if (!report_values_) return;
      return Notify({.node = id, .kind = Notice::Kind::kValue, .key = event.key,
                     .round = event.round});
    case Event::Kind::kReply:
      if (trainer != nullptr) trainer->OnReply(now);
      return Notify({.node = id, .kind = Notice::Kind::kReply, .values = std::move(event.values)});
    case Event::Kind::kRefused:
      return Notify({.node = id, .kind = Notice::Kind::kRefused, .text = std::move(event.text),
                     .reason = std::move(event.reason)});
    case Event::Kind::kNonFinite:
      return Notify({.node = id, .kind = Notice::Kind::kNonFinite, .key = event.key,
                     .round = event.round, .text = std::move(event.text)});
    case Event::Kind::kBarrier:
      return Notify({.node = id, .kind = Notice::Kind::kReleased, .round = event.round});
    case Event::Kind::kStopped: {
      const NodeConfig& config = endpoints_[id].node->config();
      if (config.role != Role::kScheduler || !config.continues) return;
      return Notify({.node = id, .kind = Notice::Kind::kStopped});
    }
    case Event::Kind::kState:
      return Notify({.node = id, .kind = Notice::Kind::kState, .text = std::move(event.text)});
    case Event::Kind::kGone:
      if (endpoints_[id].node->config().role != Role::kScheduler) return;
      return Notify({.node = event.peer, .kind = Notice::Kind::kGone, .text = std::move(event.text),
                     .reason = std::move(event.reason)});
    case Event::Kind::kMoved: return endpoints_[id].copy ? TakeOver(event.peer, now) : void();
    case Event::Kind::kTakesPart:
      return Notify({.node = event.peer, .kind = Notice::Kind::kTakesPart, .key = event.key,
                     .round = event.round});
    case Event::Kind::kPartial:
      return Notify({.node = id, .kind = Notice::Kind::kPartial, .key = event.key,
                     .round = event.round, .partial = {event.shard, event.workers, event.above, event.late, event.dropped},
                     .values = std::move(event.values)});
    case Event::Kind::kDead:
      if (!LosesScheduler(id, event.text, now)) {
        if (endpoints_[id].node->config().continues && trainer != nullptr) {
          return Notify({.node = id, .kind = Notice::Kind::kEnds, .reason = std::move(event.reason)});
        }
        if (endpoints_[id].node->config().role != Role::kScheduler) return;
      }
      return Notify({.node = id, .kind = Notice::Kind::kLost, .text = std::move(event.text),
                     .reason = std::move(event.reason)});
    default: return;  // not a notice
  }
}

void Fabric::Touch(NodeId id, Time now, Key key, Round round) {
  FollowSchedules(now);
  Charge(id, now, 0.0, key, RoundOfRun(round, Digest::Level::kParty));
}

}  // namespace geomx
