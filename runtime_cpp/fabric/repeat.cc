// Repetition: a simulation that returns to an earlier state need not be simulated further; the
// totals in between are counted as often as they would occur.
#include <algorithm>

#include "fabric/fabric.h"

namespace geomx {

Digest Fabric::Describe(Time now) {
  Digest digest(now);
  const auto add = [&](std::uint32_t place) {
    digest.Add(messages_[place].message, LevelOf(messages_[place].message));
  };
  if (faults_ || programmed_) digest.Unknown();
  network_.Describe(digest);
  for (const Endpoint& endpoint : endpoints_) {
    endpoint.node->Describe(digest);
    if (endpoint.trainer) endpoint.trainer->Describe(digest);
    digest.Moment(std::max(endpoint.busy_until, now));
    digest.Moment(endpoint.timer);
    digest.Add(std::uint64_t{endpoint.release_due});
    for (std::uint32_t place = endpoint.waiting.first; place != kNone;) {
      add(place);
      place = messages_[place].next;
    }
    digest.Add(std::uint64_t{kNone});  // end of the list
  }
  cores_.Describe(digest, now);
  for (const Link& link : links_) {
    digest.Add(static_cast<std::uint64_t>(link.active));
    if (link.gives_way && link.pacer.used()) {
      link.pacer.Describe(digest);
      digest.Add(network_.Ramp(link.lanes[0]).Delivered());
    }
    for (const int lane : {0, 1}) {
      if (!network_.Busy(link.lanes[lane])) continue;
      add(link.in_flight[lane]);
      if (link.options.queue != kNever) digest.Moment(link.started[lane]);  // may be too late
    }
    for (const auto& [place, since] : link.queued) {
      add(place);
      if (link.options.queue != kNever) digest.Moment(since);
    }
  }
  for (const auto& [time, action] : agenda_.Coming()) {
    digest.Moment(time);
    digest.Add(std::uint64_t{static_cast<std::uint8_t>(action.kind)} << 32 | action.node);
    if (action.kind == Action::Kind::kDeliver) add(action.which);
    if (action.kind == Action::Kind::kPace) digest.Add(std::uint64_t{action.which});
  }
  digest.Add(random_);  // advances with every random loss or delay
  if (!notices_.empty() || schedules_.Next() != kNever) digest.Unknown();
  return digest;
}

// Party and global rounds: a server distinguishes them by the sender.
Digest::Level Fabric::LevelOf(const Message& message) const {
  const Role from = endpoints_[message.header.source].node->config().role;
  const bool value = message.header.kind == Kind::kValue;
  const bool global = from == (value ? Role::kGlobalServer : Role::kServer);
  return global ? Digest::Level::kGlobal : Digest::Level::kParty;
}

std::optional<bool> Fabric::Recurs(Time now) {
  state_ = Describe(now);
  if (!state_->known() || !marked_state_) return std::nullopt;
  return state_->lanes() == marked_state_->lanes();
}

Fabric::Totals Fabric::CountAll(Time now) {
  Totals totals{.time = now, .processed = processed_, .spans = spans_.seen()};
  totals.links = Links();
  for (std::size_t i = 0; i < links_.size(); ++i) {
    if (links_[i].active > 0) totals.links[i].busy += now - links_[i].active_since;
  }
  totals.edges = network_.EdgesBusy(now);
  totals.worked = Worked();
  for (const Endpoint& endpoint : endpoints_) totals.nodes.push_back(endpoint.node->node().counts());
  return totals;
}

void Fabric::Mark(Time now) {
  marked_state_ = state_ && state_->known() ? state_ : std::nullopt;
  marked_ = CountAll(now);
}

void Fabric::Repeat(std::uint64_t times, Time now) {
  const Totals totals = CountAll(now);
  processed_ += times * (totals.processed - marked_.processed);
  for (std::size_t i = 0; i < links_.size(); ++i) {
    LinkStats& link = links_[i].stats;
    const LinkStats &after = totals.links[i], &before = marked_.links[i];
    for (int way = 0; way < kDirections; ++way) {
      link.data[way].bytes += times * (after.data[way].bytes - before.data[way].bytes);
      link.data[way].messages += times * (after.data[way].messages - before.data[way].messages);
    }
    link.control_bytes += times * (after.control_bytes - before.control_bytes);
    link.busy += static_cast<Time>(times) * (after.busy - before.busy);
  }
  for (net::EdgeId edge = 0; edge < totals.edges.size(); ++edge) {
    network_.AddBusy(edge, static_cast<Time>(times) * (totals.edges[edge] - marked_.edges[edge]));
  }
  for (std::size_t i = 0; i < endpoints_.size(); ++i) {
    NodeStats& node = endpoints_[i].node->node().counts();
    const NodeStats &after = totals.nodes[i], &before = marked_.nodes[i];
    endpoints_[i].worked += static_cast<Time>(times) * (totals.worked[i] - marked_.worked[i]);
    node.rounds += times * (after.rounds - before.rounds);
    node.dropped_slices += times * (after.dropped_slices - before.dropped_slices);
    node.staleness_sum += times * (after.staleness_sum - before.staleness_sum);
  }
  for (const auto level : {Digest::Level::kParty, Digest::Level::kGlobal}) {
    skipped_rounds_[static_cast<int>(level)] +=
        static_cast<Round>(times) * (state_->base(level) - marked_state_->base(level));
  }
  spans_.Skip(static_cast<Time>(times) * (now - marked_.time), times * (totals.spans - marked_.spans));
}

}  // namespace geomx
