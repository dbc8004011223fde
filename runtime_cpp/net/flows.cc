// The event loop of fluid connections. Progress of a connection is a straight line from its anchor;
// it is integrated only when its rate is about to change. `left` counts from the anchor, so a
// message that follows at once is added to it and inherits the rounding error of nanoseconds.
#include "net/flows.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <tuple>

namespace geomx::net {

namespace {

constexpr double kNothing = 1e-6;   // bytes that count as none
constexpr double kForgiven = 1e-3;  // nanoseconds of rounding that do not delay a completion
constexpr int kMostRounds = 50;     // of settling, in which FIFO queues change shares, caps and offers

}  // namespace

EdgeId FlowNetwork::AddEdge(double bytes_per_s, Time delay) {
  if (delay < 0) throw std::invalid_argument("an edge's delay must not be negative");
  delays_.push_back(delay);
  uses_.emplace_back();
  queues_.emplace_back().bytes_per_s = bytes_per_s;
  crossings_.push_back(0);
  return solver_.AddEdge(bytes_per_s);
}

ConnectionId FlowNetwork::AddConnection(const ConnectionOptions& options) {
  Connection connection;
  solver_.AddStream(Configure(connection, options), options.priority_class);
  connection.ramp = TcpRamp(RampOf(connection, options));
  connections_.push_back(connection);
  if (fifo_) standing_.emplace_back();
  if (delegated_) options_.push_back(options);
  return static_cast<ConnectionId>(connections_.size() - 1);
}

void FlowNetwork::Change(ConnectionId id, const ConnectionOptions& options, Time now) {
  MoveTo(now);
  Connection& connection = connections_.at(id);
  const bool idle = connection.state == State::kIdle;
  const bool counted = connection.counted;
  const auto way = [&] {
    const EdgeId* const first = paths_.data() + connection.first_edge;
    const std::vector<EdgeId> crossed(first, first + connection.edges + connection.back);
    return std::tuple(crossed, connection.edges, connection.rtt);
  };
  const auto former = way();
  if (!idle) {
    Integrate(connection);
    Release(connection);
  }
  Count(connection, false);
  solver_.MoveStream(id, Configure(connection, options), options.priority_class);
  connection.ramp.Change(RampOf(connection, options), !idle, now);
  if (counted) Count(connection, true);
  if (delegated_) {
    options_[id] = options;
    calls_.push_back({ModelCall::Kind::kChanged, id});
    if (!idle) Occupy(connection);
    return;
  }
  if (idle) return;
  Occupy(connection);
  if (!fifo_ || way() != former) {
    Begin(connection);
  } else if (!StandingOf(connection).full) {  // what is under way and stands in queues is still there
    connection.share = ShareOf(connection);
  }
  connection.stale = true;
  Touch(id);
}

void FlowNetwork::Renew(ConnectionId id, const ConnectionOptions& options, Time now) {
  MoveTo(now);
  if (!Idle(id)) throw std::logic_error("connection " + std::to_string(id) + " is in use");
  if (delegated_) calls_.push_back({ModelCall::Kind::kNew, id});
  Change(id, options, now);
  Connection& connection = connections_[id];
  connection.ramp = TcpRamp(RampOf(connection, options));
}

void FlowNetwork::Abort(ConnectionId id, Time now) {
  MoveTo(now);
  Connection& connection = connections_.at(id);
  if (connection.state != State::kBusy) return;
  connection.state = State::kFinished;  // idle when the instant is settled
  connection.done_at = kNever;
  events_.Remove(id);
  Touch(id);
  if (delegated_) calls_.push_back({ModelCall::Kind::kCancelled, id});
}

void FlowNetwork::Retire(ConnectionId id) { Count(connections_.at(id), false); }

std::vector<Hop> FlowNetwork::Configure(Connection& connection, const ConnectionOptions& options) {
  if (!(options.weight > 0.0) || !(options.weight < kInfinity)) {
    throw std::invalid_argument("a connection's weight must be positive");
  }
  if (!(options.efficiency > 0.0) || options.efficiency > 1.0) {
    throw std::invalid_argument("a connection's efficiency must be in (0, 1]");
  }
  if (!(options.reverse_share >= 0.0)) {
    throw std::invalid_argument("the share on the way back must not be negative");
  }
  std::vector<Hop> hops;
  connection.delay = 0;
  Time back = 0;
  for (const EdgeId edge : options.path) {
    hops.push_back({edge, 1.0});
    if (edge < delays_.size()) connection.delay += delays_[edge];
  }
  const bool reserves = Reserves(options);
  for (const EdgeId edge : options.reverse) {
    hops.push_back({edge, reserves ? 0.0 : options.reverse_share});
    if (edge < delays_.size()) back += delays_[edge];
  }
  connection.ack_share = reserves ? options.reverse_share : 0.0;
  connection.edges = static_cast<std::uint32_t>(options.path.size());
  connection.back = reserves ? static_cast<std::uint32_t>(options.reverse.size()) : 0;
  if (connection.edges + connection.back > connection.room) {
    connection.first_edge = static_cast<std::uint32_t>(paths_.size());
    connection.room = connection.edges + connection.back;
    paths_.resize(paths_.size() + connection.room);
  }
  const auto rest = std::ranges::copy(options.path, paths_.begin() + connection.first_edge).out;
  if (reserves) std::ranges::copy(options.reverse, rest);
  connection.rtt = options.ramp.rtt;
  if (connection.rtt == 0) {
    connection.rtt = connection.delay + (options.reverse.empty() ? connection.delay : back);
  }
  connection.weight = options.weight;
  connection.efficiency = options.efficiency;
  return hops;
}

RampOptions FlowNetwork::RampOf(const Connection& connection,
                                const ConnectionOptions& options) const {
  RampOptions ramp = options.ramp;
  ramp.rtt = connection.rtt;
  ramp.fifo = fifo_;
  return ramp;
}

void FlowNetwork::Occupy(const Connection& connection) {
  Join(connection, true);
  for (const EdgeId edge : Path(connection)) {
    if (uses_[edge].active++ == 0) uses_[edge].since = now_;
  }
}

void FlowNetwork::Release(const Connection& connection) {
  Join(connection, false);
  for (const EdgeId edge : Path(connection)) {
    if (--uses_[edge].active == 0) uses_[edge].total += now_ - uses_[edge].since;
  }
}

void FlowNetwork::Start(ConnectionId id, double bytes, Time now) {
  MoveTo(now);
  Connection& connection = connections_.at(id);
  if (!(bytes >= 0.0) || !(bytes < kInfinity)) {
    throw std::invalid_argument("a message's size must not be negative");
  }
  if (delegated_ && connection.state != State::kBusy) return Note(id, bytes);
  switch (connection.state) {
    case State::kBusy:
      throw std::logic_error("connection " + std::to_string(id) + " is busy with a message");
    case State::kFinished:
      connection.state = State::kBusy;
      connection.left += bytes;
      connection.done_at = Done(connection);
      connection.stale = connection.stale || fifo_;  // it may use its window up now
      events_.Set(id, std::min(connection.done_at, connection.ramp_at));
      return;
    case State::kIdle:
      connection.state = State::kBusy;
      connection.left = bytes;
      connection.anchor = now;
      connection.ramp.Begin(now);
      Count(connection, true);
      Begin(connection);
      Occupy(connection);
      Touch(id);
      return;
  }
}

void FlowNetwork::Begin(Connection& connection) {
  if (fifo_) {
    Standing& standing = StandingOf(connection);
    standing = {.sender = standing.sender};
  }
  connection.share = ShareOf(connection);
  connection.stale = true;
}

void FlowNetwork::SetCapacity(EdgeId edge, double bytes_per_s, Time now) {
  MoveTo(now);
  if (edge >= delays_.size()) throw std::invalid_argument("there is no such edge");
  EdgeQueue& queue = queues_[edge];
  queue.bytes_per_s = bytes_per_s;
  queue.reserved = 0.0;
  changed_ = fifo_;
  solver_.SetCapacity(edge, bytes_per_s);
  for (const ConnectionId id : queue.ackers) {
    NoteAcks(connections_[id]);
    Touch(id);  // its cap may be another
  }
  if (delegated_) calls_.push_back({ModelCall::Kind::kEdge, edge});
}

void FlowNetwork::SetDelay(EdgeId edge, Time delay) {
  if (delay < 0) throw std::invalid_argument("an edge's delay must not be negative");
  delays_.at(edge) = delay;
  if (delegated_) calls_.push_back({ModelCall::Kind::kEdge, edge});
}

double FlowNetwork::Left(ConnectionId id, Time now) const {
  const Connection& connection = connections_.at(id);
  if (connection.state == State::kIdle || connection.rate == kInfinity) return 0.0;
  const double elapsed = static_cast<double>(now - connection.anchor) / kSecond;
  return std::max(connection.left - connection.rate * elapsed, 0.0);
}

Time FlowNetwork::NextEvent() {
  Settle();
  return events_.empty() ? kNever : events_.top().at;
}

void FlowNetwork::Describe(Digest& digest) {
  Settle();
  for (const Connection& connection : connections_) {
    digest.Add(std::uint64_t{static_cast<std::uint8_t>(connection.state)});
    connection.ramp.Describe(digest);
    if (connection.state == State::kIdle) continue;
    digest.Add(connection.rate);
    digest.Add(connection.left);
    if (fifo_) DescribeQueue(connection, digest);
    digest.Moment(connection.anchor);
    digest.Moment(connection.done_at);
    digest.Moment(connection.ramp_at);
  }
  solver_.Describe(digest);
}

void FlowNetwork::Advance(Time now, std::vector<ConnectionId>* completed) {
  MoveTo(now);
  // Their places in the heap are updated once: by the next message, or when the instant is settled.
  events_.Due(now_, due_);
  for (const ConnectionId id : due_) {
    Connection& connection = connections_[id];
    if (connection.done_at <= now_) {
      completed->push_back(id);
      connection.state = State::kFinished;
      connection.done_at = kNever;
    }
    if (connection.ramp_at <= now_) {
      Integrate(connection);
      connection.ramp_at = kNever;
      if (!fifo_ || !StandingOf(connection).full) connection.share = ShareOf(connection);
      connection.stale = true;
    }
    Touch(id);
  }
}

void FlowNetwork::MoveTo(Time now) {
  if (now == now_) return;
  if (now < now_) throw std::logic_error("time must not decrease in the flow network");
  Settle();
  if (!events_.empty() && events_.top().at < now) {
    throw std::logic_error("the driver passed over an event at " +
                           std::to_string(events_.top().at) + " ns");
  }
  now_ = now;
}

void FlowNetwork::Settle() {
  if (fifo_ && !delegated_ && (!touched_.empty() || solver_.dirty() || changed_)) RenewShares();
  // Integrating may itself open or close a window, whose new demand is then solved as well. So are those
  // that follow from what stands in FIFO queues (standing.cc).
  for (int round = 0; !touched_.empty() || solver_.dirty() || changed_; ++round) {
    changed_ = false;
    settling_.swap(touched_);
    for (const ConnectionId id : settling_) {
      Connection& connection = connections_[id];
      connection.touched = false;
      if (connection.state == State::kBusy) {
        if (delegated_) continue;
        solver_.SetDemand(id, connection.share, Cap(connection));
        continue;
      }
      Integrate(connection);
      connection.ramp.End(now_);
      connection.state = State::kIdle;
      connection.rate = 0.0;
      connection.ramp_at = kNever;
      connection.stale = false;
      Release(connection);
      solver_.SetDemand(id, connection.share, 0.0);
      events_.Remove(id);
    }
    if (solver_.dirty()) {
      ++solves_;
      for (const ConnectionId id : solver_.Solve()) {
        Connection& connection = connections_[id];
        if (connection.state != State::kBusy) continue;
        const double cap = Cap(connection);
        Integrate(connection);
        if (Cap(connection) != cap) Touch(id);
        connection.rate = solver_.rate(id) * connection.efficiency;
        if (connection.back > 0) NoteAcks(connection);
        Schedule(id);
      }
    }
    for (const ConnectionId id : settling_) {
      Connection& connection = connections_[id];
      if (!connection.stale) continue;
      connection.rate = solver_.rate(id) * connection.efficiency;
      Schedule(id);
    }
    settling_.clear();
    if (round >= kMostRounds) continue;
    if (fifo_ && !delegated_) Queue(round);
    Reserve();
    if (fifo_ && !delegated_ && touched_.empty() && !solver_.dirty()) FindFull();
  }
}

void FlowNetwork::Integrate(Connection& connection) {
  if (now_ == connection.anchor) return;
  const double elapsed = static_cast<double>(now_ - connection.anchor) / kSecond;
  const double sent =
      connection.rate < kInfinity ? connection.rate * elapsed : std::max(connection.left, 0.0);
  if (fifo_) StandingOf(connection).waiting = Waiting(connection);
  connection.left -= sent;
  connection.ramp.Sent(sent, now_);
  connection.anchor = now_;
}

void FlowNetwork::Schedule(ConnectionId id) {
  Connection& connection = connections_[id];
  connection.stale = false;
  connection.done_at = Done(connection);
  connection.ramp_at = connection.ramp.NextChange(connection.rate);
  if (fifo_) {
    TakeWindow(connection);
    connection.ramp_at = std::min(connection.ramp_at, FullAt(connection));
  }
  events_.Set(id, std::min(connection.done_at, connection.ramp_at));
}

double FlowNetwork::Load(EdgeId edge) const {
  if (!delegated_) return solver_.Load(edge) + Acks(queues_.at(edge));
  double load = 0.0;
  for (ConnectionId id = 0; id < connections_.size(); ++id) {
    if (connections_[id].state != State::kBusy) continue;
    const ConnectionOptions& options = options_[id];
    const double rate = connections_[id].rate / options.efficiency;
    load += rate * static_cast<double>(std::ranges::count(options.path, edge));
    load += rate * options.reverse_share *
            static_cast<double>(std::ranges::count(options.reverse, edge));
  }
  return load;
}

std::vector<Time> FlowNetwork::EdgesBusy(Time now) const {
  std::vector<Time> busy;
  busy.reserve(uses_.size());
  for (const Use& use : uses_) busy.push_back(use.total + (use.active > 0 ? now - use.since : 0));
  return busy;
}

void FlowNetwork::Touch(ConnectionId id) {
  if (connections_[id].touched) return;
  connections_[id].touched = true;
  touched_.Add(id);
}

Time FlowNetwork::Done(const Connection& connection) const {
  if (connection.left <= kNothing || connection.rate == kInfinity) return now_;
  const double ns = connection.left / connection.rate * kSecond;
  if (!(ns < static_cast<double>(kNever - connection.anchor) / 2)) return kNever;
  return std::max(now_, connection.anchor + static_cast<Time>(std::ceil(ns - kForgiven)));
}

double FlowNetwork::Cap(const Connection& connection) const {
  double cap = connection.ramp.RateCap() / connection.efficiency;
  if (fifo_) cap = std::min(cap, StandingOf(connection).allowed);
  for (const EdgeId edge : Back(connection)) {
    cap = std::min(cap, queues_[edge].bytes_per_s / connection.ack_share);
  }
  return cap;
}

}  // namespace geomx::net
