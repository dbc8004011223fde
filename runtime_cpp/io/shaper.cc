#include "io/shaper.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace geomx::io {

namespace {

constexpr double kSameShare = 1e-3;  // of the edge's capacity; smaller differences are ignored

bool Same(double one, double other, double whole) {
  if (one == other) return true;
  return std::isfinite(whole) && std::abs(one - other) <= kSameShare * whole;
}

}  // namespace

Shaper::Shaper(const Shape& shape) : random_(shape.seed) {
  if (!shape.shared.empty()) {
    usage_ = std::make_unique<UsageTable>(shape.usage_file, shape.slots, shape.slot);
  }
  std::map<net::EdgeId, std::size_t> shared;  // by edge, into `shared_`
  for (const auto& [edge, row] : shape.shared) {
    if (edge >= shape.edges.size()) throw std::invalid_argument("a shared edge that does not exist");
    if (row >= usage_->rows()) throw std::invalid_argument("a shared edge without a row");
    shared[edge] = shared_.size();
    net::BandwidthSchedule schedule = shape.edges[edge].schedule;
    const double whole = schedule.At(0);
    shared_.push_back({.edge = edge, .row = row, .schedule = std::move(schedule), .ours = whole});
  }
  for (const Shape::Edge& edge : shape.edges) {
    const net::EdgeId id = network_.AddEdge(net::BandwidthSchedule(edge.schedule).At(0), edge.delay);
    if (!shared.contains(id)) schedules_.Add(id, edge.schedule);
  }
  for (const auto& [peer, path] : shape.paths) {
    for (const Lane lane : {Lane::kReliable, Lane::kBestEffort}) {
      Link& link = links_[{peer, lane}];
      const net::ConnectionOptions options = net::LaneOptions(path, lane);
      link.connection = network_.AddConnection(options);
      for (const net::EdgeId edge : path.path) {
        if (const auto found = shared.find(edge); found != shared.end()) {
          shared_[found->second].crossings.push_back({link.connection, options.priority_class,
                                                      network_.Weight(link.connection),
                                                      options.efficiency});
        }
      }
      link.options = path;
      if (owners_.size() <= link.connection) owners_.resize(link.connection + 1);
      owners_[link.connection] = {peer, lane};
    }
  }
}

void Shaper::SetOrigin(Time now) { origin_ = now; }

Time Shaper::HeldUntil(NodeId peer, Time now) {
  Link& link = links_.at({peer, Lane::kBestEffort});
  const net::ConnectionId reliable = links_.at({peer, Lane::kReliable}).connection;
  return net::HeldUntil(network_, link.options, reliable, link.pacer, now);
}

void Shaper::Start(NodeId peer, Lane lane, Message message, Time now) {
  Link& link = links_.at({peer, lane});
  if (lane == Lane::kBestEffort) link.pacer.Spend(message.wire_bytes());
  network_.Start(link.connection, static_cast<double>(message.wire_bytes()), now);
  link.message = std::move(message);
  link.started = now;
  Activity& activity = activity_[peer];
  if (activity.links++ == 0) activity.since = now;
  if (usage_ && !advancing_) Share(now);
}

void Shaper::Outdate(NodeId peer) {
  for (const Lane lane : {Lane::kReliable, Lane::kBestEffort}) {
    const auto found = links_.find({peer, lane});
    if (found != links_.end()) found->second.outdated = found->second.message.has_value();
  }
}

Time Shaper::Busy(NodeId peer) const {
  const auto found = activity_.find(peer);
  return found == activity_.end() ? 0 : found->second.total;
}

Time Shaper::NextEvent() {
  const Time change = schedules_.Next();
  const Time next = std::min(network_.NextEvent(), next_look_);
  return origin_ && change != kNever ? std::min(next, *origin_ + change) : next;
}

void Shaper::Advance(Time now, const OnSent& sent, const Next& next) {
  advancing_ = true;
  for (Time event = NextEvent(); event <= now; event = NextEvent()) {
    // The run may have begun before the network's last event.
    const Time at = std::max(event, network_.now());
    completed_.clear();
    network_.Advance(at, &completed_);
    for (const net::ConnectionId connection : completed_) {
      const LinkId id = owners_[connection];
      Link& link = links_.at(id);
      Finish(id, link, at, sent);
      if (auto message = next(id.first, id.second)) {
        Start(id.first, id.second, std::move(*message), at);
      }
    }
    if (origin_) {
      schedules_.Apply(at - *origin_, [&](net::EdgeId edge, double bytes_per_s) {
        network_.SetCapacity(edge, bytes_per_s, at);
      });
    }
    if (usage_ && (at >= next_look_ || !completed_.empty())) Share(at);
  }
  advancing_ = false;
}

void Shaper::Share(Time now) {
  bool sending = false;
  network_.NextEvent();  // settles rates
  for (SharedEdge& shared : shared_) {
    const Use use = UseOf(shared);
    if (use.weight[0] <= 0.0 && use.weight[1] <= 0.0) continue;
    sending = true;
    const double whole = shared.schedule.At(OfRun(now));
    const double ours = usage_->Share(shared.row, whole, use, now);
    if (Same(ours, shared.ours, whole)) continue;
    shared.ours = ours;
    network_.SetCapacity(shared.edge, ours, now);
  }
  network_.NextEvent();
  for (const SharedEdge& shared : shared_) usage_->Write(shared.row, UseOf(shared), now);
  next_look_ = sending ? now + kLook : kNever;
}

double Shaper::Whole(net::EdgeId edge, Time now) {
  const auto shared = std::ranges::find(shared_, edge, &SharedEdge::edge);
  if (shared == shared_.end()) return network_.Capacity(edge);
  return shared->schedule.At(OfRun(now));
}

Use Shaper::UseOf(const SharedEdge& shared) const {
  Use use;
  for (const Crossing& crossing : shared.crossings) {
    if (!network_.Busy(crossing.connection)) continue;
    const auto of = static_cast<std::size_t>(crossing.priority_class);
    use.load[of] += network_.Rate(crossing.connection) / crossing.efficiency;
    use.weight[of] += crossing.weight;
  }
  const double full = (1.0 - kSameShare) * shared.ours;
  use.hungry[0] = use.weight[0] > 0.0 && use.load[0] >= full;
  use.hungry[1] = use.weight[1] > 0.0 && use.load[0] + use.load[1] >= full;
  return use;
}

void Shaper::Finish(const LinkId& id, Link& link, Time now, const OnSent& sent) {
  Sent out{.peer = id.first,
           .lane = id.second,
           .message = std::move(*link.message),
           .started = link.started,
           .left = now,
           .arrives = now + network_.Delay(link.connection),
           .outdated = std::exchange(link.outdated, false)};
  link.message.reset();
  Activity& activity = activity_[id.first];
  if (--activity.links == 0) activity.total += now - activity.since;
  if (id.second == Lane::kBestEffort) {
    const auto bytes = static_cast<double>(out.message.wire_bytes());
    const auto whole = [&](net::EdgeId edge) { return Whole(edge, now); };
    out.lost = net::Overflowed(link.options, bytes, now - link.started, whole) ||
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
