#include "emulation/underlay.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace geomx::emulation {

EdgeId Underlay::AddEdge(Edge edge) {
  Line& line = lines_.emplace_back();
  line.options = std::move(edge);
  net::BandwidthSchedule& schedule = line.options.schedule;
  Time at = 0;
  while (at != kNever && !(schedule.At(at) > 0.0)) at = schedule.Next(at);
  if (at == kNever) throw std::invalid_argument("an edge that carries nothing, ever");
  line.first_rate = schedule.At(at);
  return static_cast<EdgeId>(lines_.size() - 1);
}

RouteId Underlay::AddRoute(std::vector<EdgeId> edges) {
  for (const EdgeId edge : edges) {
    if (edge >= lines_.size()) throw std::invalid_argument("a route over no such edge");
  }
  routes_.push_back(std::move(edges));
  return static_cast<RouteId>(routes_.size() - 1);
}

void Underlay::Set(EdgeId edge, std::optional<Time> delay, std::optional<double> loss) {
  if (edge >= lines_.size()) throw std::invalid_argument("there is no such edge");
  Edge& options = lines_[edge].options;
  options.delay = delay.value_or(options.delay);
  options.loss = loss.value_or(options.loss);
}

Time Underlay::Finish(Line& line, Time from, double bytes) {
  if (origin_) {
    const Time done = line.options.schedule.Finish(from - *origin_, bytes);
    return done == kNever ? kNever : *origin_ + done;
  }
  if (line.first_rate == net::kInfinity) return from;
  return from + static_cast<Time>(bytes / line.first_rate * kSecond);
}

void Underlay::Cross(Move move) {
  Line& line = lines_[routes_[move.packet.route][move.hop]];
  const Edge& edge = line.options;
  while (!line.queue.empty() && line.queue.front().until <= move.at) {
    line.queued_bytes -= line.queue.front().bytes;
    line.queue.pop_front();
  }
  const std::uint32_t bytes = move.packet.bytes;
  if (!line.queue.empty() &&
      line.queued_bytes - line.queue.front().bytes + bytes > edge.queue_bytes) {
    ++counts_.overflowed;
    gone_.push_back(move.packet.id);
    return;
  }
  const Time begin = std::max(line.free_at, move.at);
  const Time left = Finish(line, begin, bytes);
  counts_.waited += begin - move.at;
  if (left > move.at) {
    line.free_at = left;
    line.queue.push_back({left, bytes});
    line.queued_bytes += bytes;
  }
  if (edge.loss > 0.0 && Draw() < edge.loss) {
    ++counts_.lost;
    gone_.push_back(move.packet.id);
    return;
  }
  move.at = left + edge.delay;
  if (edge.jitter > 0) {
    if (left >= line.drawn_at + edge.jitter) {
      line.drawn_at = left;
      line.extra = static_cast<Time>(Draw() * static_cast<double>(edge.jitter));
    }
    move.at += line.extra;
  }
  move.at = line.last_arrival = std::max(move.at, line.last_arrival);
  move.order = order_++;
  ++move.hop;
  moves_.push(move);
}

}  // namespace geomx::emulation
