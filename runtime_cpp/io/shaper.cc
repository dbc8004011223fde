#include "io/shaper.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace geomx::io {

namespace {

std::unique_ptr<Meters> MakeMeters(const Shape& shape, const std::map<NodeId, Passage>& passages) {
  if (passages.empty()) return nullptr;
  std::size_t count = 0;
  for (const Meter& meter : shape.meters) count = std::max<std::size_t>(count, meter.clock + 1);
  return std::make_unique<Meters>(shape.meters, passages,
                                  std::make_shared<Clocks>(shape.clocks, count));
}

}  // namespace

std::unique_ptr<Meters> ArrivalMeters(const Shape& shape) {
  return MakeMeters(shape, shape.arrivals);
}

Shaper::Shaper(const Shape& shape)
    : meters_(MakeMeters(shape, shape.departures)), random_(shape.seed) {
  for (const Shape::Edge& edge : shape.edges) {
    courses_.Add(network_.AddEdge(net::Course(edge.course).At(0), edge.delay), edge.course);
  }
  for (const auto& [peer, path] : shape.paths) {
    for (const Lane lane : {Lane::kReliable, Lane::kBestEffort}) {
      Link& link = links_[{peer, lane}];
      link.connection = network_.AddConnection(net::LaneOptions(path, lane));
      link.options = path;
      if (owners_.size() <= link.connection) owners_.resize(link.connection + 1);
      owners_[link.connection] = {peer, lane};
    }
  }
}

void Shaper::SetOrigin(Time now) {
  origin_ = now;
  if (meters_) meters_->SetOrigin(now);
}

void Shaper::Start(NodeId peer, Lane lane, Message message, Time now) {
  Link& link = links_.at({peer, lane});
  network_.Start(link.connection, static_cast<double>(message.wire_bytes()), now);
  link.message = std::move(message);
  link.started = now;
  Activity& activity = activity_[peer];
  if (activity.links++ == 0) activity.since = now;
}

Time Shaper::Busy(NodeId peer) const {
  const auto found = activity_.find(peer);
  return found == activity_.end() ? 0 : found->second.total;
}

Time Shaper::NextEvent() {
  const Time change = courses_.Next();
  Time next = network_.NextEvent();
  if (!held_.empty()) next = std::min(next, held_.top().until);
  return origin_ && change != kNever ? std::min(next, *origin_ + change) : next;
}

void Shaper::Advance(Time now, const OnSent& sent, const Next& next) {
  for (Time event = NextEvent(); event <= now; event = NextEvent()) {
    // The run may have begun before the network's last event.
    const Time at = std::max(event, network_.now());
    completed_.clear();
    network_.Advance(at, &completed_);
    for (const net::ConnectionId connection : completed_) {
      const LinkId id = owners_[connection];
      const Link& link = links_.at(id);
      const Time until =
          meters_ ? meters_->Pass(id.first, link.message->wire_bytes(), link.started, at) : at;
      held_.push({.until = until, .id = id});
    }
    while (!held_.empty() && held_.top().until <= at) {
      const LinkId id = held_.top().id;
      held_.pop();
      Finish(id, links_.at(id), at, sent);
      if (auto message = next(id.first, id.second)) {
        Start(id.first, id.second, std::move(*message), at);
      }
    }
    if (origin_) {
      courses_.Apply(at - *origin_, [&](net::EdgeId edge, double bytes_per_s) {
        network_.SetCapacity(edge, bytes_per_s, at);
      });
    }
  }
}

void Shaper::Finish(const LinkId& id, Link& link, Time now, const OnSent& sent) {
  Sent out{.peer = id.first,
           .lane = id.second,
           .message = std::move(*link.message),
           .started = link.started,
           .left = now,
           .arrives = now + network_.Delay(link.connection)};
  link.message.reset();
  Activity& activity = activity_[id.first];
  if (--activity.links == 0) activity.total += now - activity.since;
  if (id.second == Lane::kBestEffort) {
    const auto bytes = static_cast<double>(out.message.wire_bytes());
    out.lost = net::Overflowed(network_, link.options, bytes, now - link.started) ||
               (link.options.loss > 0.0 && Draw() >= net::Kept(link.options, bytes));
  }
  if (link.options.jitter > 0 && !out.lost) {
    out.arrives += static_cast<Time>(Draw() * static_cast<double>(link.options.jitter));
    if (id.second == Lane::kReliable) {  // a byte stream keeps its order
      out.arrives = link.last_arrival = std::max(out.arrives, link.last_arrival);
    }
  }
  sent(std::move(out));
}

}  // namespace geomx::io
