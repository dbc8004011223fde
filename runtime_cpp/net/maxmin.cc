// Weighted max-min rates by progressive filling of the streams that a change can reach; the header
// explains why that is exact. `kSlack` is the tolerance of every comparison between rates: the
// levels of streams that were solved at different times differ by rounding, and must count as
// equal.
#include "net/maxmin.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

namespace geomx::net {

namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr double kSlack = 1e-9;
constexpr double kSame = 1e-12;  // two results for one rate that differ by rounding only
constexpr double kSmall = 1e-3;  // of a weight; less is not computed as a difference
constexpr int kLocalAttempts = 3;

}  // namespace

EdgeId MaxMin::AddEdge(double capacity) {
  if (!(capacity >= 0.0)) throw std::invalid_argument("an edge's capacity must not be negative");
  edges_.push_back({});
  edges_.back().capacity = capacity;
  return static_cast<EdgeId>(edges_.size() - 1);
}

StreamId MaxMin::AddStream(std::span<const Hop> hops, int priority_class) {
  Stream stream{};
  SetHops(stream, hops, priority_class);
  streams_.push_back(stream);
  return static_cast<StreamId>(streams_.size() - 1);
}

void MaxMin::MoveStream(StreamId id, std::span<const Hop> hops, int priority_class) {
  SetDemand(id, 1.0, 0.0);
  SetHops(streams_[id], hops, priority_class);
}

void MaxMin::SetHops(Stream& stream, std::span<const Hop> hops, int priority_class) {
  std::vector<StreamHop> merged;
  for (const Hop& hop : hops) {
    if (hop.edge >= edges_.size()) throw std::invalid_argument("a path names an unknown edge");
    const auto known = std::find_if(
        merged.begin(), merged.end(), [&](const StreamHop& other) { return other.edge == hop.edge; });
    if (known != merged.end()) {
      known->share += hop.share;
    } else if (hop.share > 0.0) {
      merged.push_back({hop.edge, hop.share, 0});
    }
  }
  stream.hop_count = static_cast<std::uint32_t>(merged.size());
  if (stream.hop_count > stream.hop_room) {
    stream.first_hop = static_cast<std::uint32_t>(hops_.size());
    stream.hop_room = stream.hop_count;
    hops_.resize(hops_.size() + merged.size());
  }
  std::copy(merged.begin(), merged.end(), hops_.begin() + stream.first_hop);
  stream.priority_class = priority_class;
  const auto place = std::ranges::lower_bound(classes_, priority_class);
  if (place == classes_.end() || *place != priority_class) classes_.insert(place, priority_class);
}

void MaxMin::SetCapacity(EdgeId edge, double capacity) {
  if (!(capacity >= 0.0)) throw std::invalid_argument("an edge's capacity must not be negative");
  if (edges_[edge].capacity == capacity) return;
  edges_[edge].capacity = capacity;
  MarkEdge(edge);
}

void MaxMin::SetDemand(StreamId id, double weight, double cap) {
  Stream& stream = streams_[id];
  if (!(cap > 0.0)) {
    if (stream.active) Deactivate(id);
    return;
  }
  if (stream.active && stream.weight == weight && stream.cap == cap) return;
  stream.weight = weight;
  stream.cap = cap;
  if (!stream.active) Activate(id);
  if (!stream.dirty) {
    stream.dirty = true;
    dirty_streams_.Add(id);
  }
}

double MaxMin::Load(EdgeId edge) const {
  double load = 0.0;
  for (const Member& member : edges_[edge].members) {
    load += Share(member) * streams_[member.stream].rate;
  }
  return load;
}

bool MaxMin::Limits(EdgeId edge) const {
  return std::ranges::any_of(edges_[edge].members, [&](const Member& member) {
    return streams_[member.stream].bottleneck == static_cast<std::int32_t>(edge);
  });
}

void MaxMin::Describe(Digest& digest) const {
  for (const Edge& edge : edges_) {
    digest.Add(edge.capacity);
    digest.Add(std::uint64_t{edge.members.size()});
    for (const Member& member : edge.members) digest.Add(std::uint64_t{member.stream});
  }
  for (const Stream& stream : streams_) {
    if (!stream.active) continue;
    for (const double x : {stream.weight, stream.cap, stream.rate, stream.level}) digest.Add(x);
    digest.Add(static_cast<std::uint64_t>(stream.bottleneck));
  }
  if (dirty()) digest.Unknown();
}

void MaxMin::Activate(StreamId id) {
  Stream& stream = streams_[id];
  stream.active = true;
  stream.bottleneck = kNoEdge;
  const auto hops = Hops(stream);
  for (std::uint32_t i = 0; i < hops.size(); ++i) {
    auto& members = edges_[hops[i].edge].members;
    hops[i].position = static_cast<std::uint32_t>(members.size());
    members.push_back({id, i});
  }
}

void MaxMin::Deactivate(StreamId id) {
  Note(id);
  Stream& stream = streams_[id];
  stream.active = false;
  stream.rate = stream.level = 0.0;
  stream.bottleneck = kNoEdge;
  for (const StreamHop& hop : Hops(stream)) {
    auto& members = edges_[hop.edge].members;
    const Member last = members.back();
    members[hop.position] = last;
    hops_[streams_[last.stream].first_hop + last.hop].position = hop.position;
    members.pop_back();
    MarkEdge(hop.edge);
  }
}

void MaxMin::Note(StreamId id) {
  Stream& stream = streams_[id];
  if (stream.noted == solve_stamp_) return;
  stream.noted = solve_stamp_;
  stream.before = stream.rate;
  noted_.Add(id);
}

void MaxMin::MarkEdge(EdgeId edge) {
  if (edges_[edge].dirty) return;
  edges_[edge].dirty = true;
  dirty_edges_.Add(edge);
}

void MaxMin::Choose(StreamId id) {
  Stream& stream = streams_[id];
  if (stream.chosen == class_stamp_) return;
  stream.chosen = class_stamp_;
  Note(id);
  chosen_.Add(id);
  for (const StreamHop& hop : Hops(stream)) Touch(hop.edge);
}

void MaxMin::Touch(EdgeId edge) {
  if (edges_[edge].touched == class_stamp_) return;
  edges_[edge].touched = class_stamp_;
  touched_.Add(edge);
}

const IdList& MaxMin::Solve() {
  changed_.clear();
  if (!dirty()) return changed_;
  for (const int priority_class : classes_) SolveClass(priority_class);
  for (const EdgeId edge : dirty_edges_) edges_[edge].dirty = false;
  for (const StreamId id : dirty_streams_) streams_[id].dirty = false;
  dirty_edges_.clear();
  dirty_streams_.clear();
  for (const StreamId id : noted_) {
    Stream& stream = streams_[id];
    if (stream.rate == stream.before) continue;
    if (std::fabs(stream.rate - stream.before) <= kSame * std::min(stream.rate, stream.before)) {
      stream.rate = stream.before;
    } else {
      changed_.Add(id);
    }
  }
  noted_.clear();
  ++solve_stamp_;
  std::sort(changed_.begin(), changed_.end());
  return changed_;
}

void MaxMin::SolveClass(int priority_class) {
  ++class_stamp_;
  chosen_.clear();
  touched_.clear();
  for (const StreamId id : dirty_streams_) {
    const Stream& stream = streams_[id];
    if (stream.active && stream.priority_class == priority_class) Choose(id);
  }
  // The capacity that lower classes leave may have changed, so all streams of higher classes are
  // checked.
  const bool all = priority_class != classes_.front();
  for (const EdgeId edge : dirty_edges_) {
    Touch(edge);
    for (const Member& member : edges_[edge].members) {
      const Stream& stream = streams_[member.stream];
      if (stream.priority_class != priority_class) continue;
      if (all || stream.bottleneck == static_cast<std::int32_t>(edge)) {
        Choose(member.stream);
      }
    }
  }
  for (int attempt = 1;; ++attempt) {
    if (!chosen_.empty()) Fill(priority_class);
    if (!Expand(priority_class)) break;
    if (attempt == kLocalAttempts) ChooseComponent(priority_class);
  }
  if (priority_class == classes_.back()) return;
  for (const StreamId id : chosen_) {
    if (streams_[id].rate == streams_[id].before) continue;
    for (const StreamHop& hop : Hops(streams_[id])) MarkEdge(hop.edge);
  }
}

void MaxMin::ChooseComponent(int priority_class) {
  for (std::size_t i = 0; i < chosen_.size(); ++i) {
    const Stream stream = streams_[chosen_[i]];
    for (const StreamHop& hop : Hops(stream)) {
      Edge& edge = edges_[hop.edge];
      if (edge.capacity == kInfinite || edge.spread == class_stamp_) continue;
      edge.spread = class_stamp_;
      for (const Member& member : edge.members) {
        if (streams_[member.stream].priority_class == priority_class) Choose(member.stream);
      }
    }
  }
}

void MaxMin::Fill(int priority_class) {
  ++fill_stamp_;
  by_cap_.clear();
  heap_.clear();
  filling_.clear();
  work_ += chosen_.size();
  for (const StreamId id : chosen_) {
    Stream& stream = streams_[id];
    stream.open = true;
    if (stream.cap < kInfinite) by_cap_.Add(id);
    for (const StreamHop& hop : Hops(stream)) {
      Edge& edge = edges_[hop.edge];
      if (edge.capacity == kInfinite) continue;
      if (edge.filled != fill_stamp_) {
        edge.filled = fill_stamp_;
        edge.weight = 0.0;
        edge.open = 0;
        edge.free = edge.capacity;
        for (const Member& member : edge.members) {
          const Stream& other = streams_[member.stream];
          if (other.chosen == class_stamp_ || other.priority_class > priority_class) continue;
          edge.free -= Share(member) * other.rate;
        }
        edge.free = std::max(edge.free, 0.0);
        filling_.Add(hop.edge);
      }
      edge.weight += hop.share * stream.weight;
      ++edge.open;
    }
  }
  const auto later = [](const Level& a, const Level& b) {
    return a.value > b.value || (a.value == b.value && a.edge > b.edge);
  };
  for (const EdgeId id : filling_) heap_.push_back({edges_[id].free / edges_[id].weight, id});
  std::make_heap(heap_.begin(), heap_.end(), later);
  const auto cap_level = [this](StreamId id) { return streams_[id].cap / streams_[id].weight; };
  std::sort(by_cap_.begin(), by_cap_.end(), [&](StreamId a, StreamId b) {
    return cap_level(a) < cap_level(b) || (cap_level(a) == cap_level(b) && a < b);
  });
  std::size_t next_cap = 0;
  for (;;) {
    while (next_cap < by_cap_.size() && !streams_[by_cap_[next_cap]].open) ++next_cap;
    const double by_cap = next_cap < by_cap_.size() ? cap_level(by_cap_[next_cap]) : kInfinite;
    if (heap_.empty() || by_cap <= heap_.front().value) {
      // Levels in the heap are lower bounds: freezing streams only raises an edge's level.
      if (next_cap == by_cap_.size()) break;
      Freeze(by_cap_[next_cap], by_cap, kNoEdge);
      continue;
    }
    std::pop_heap(heap_.begin(), heap_.end(), later);
    Level level = heap_.back();
    heap_.pop_back();
    const Edge& edge = edges_[level.edge];
    if (edge.open == 0) continue;
    const double value = edge.free / edge.weight;
    if (value > level.value * (1.0 + kSame)) {
      heap_.push_back({value, level.edge});
      std::push_heap(heap_.begin(), heap_.end(), later);
      continue;
    }
    for (const Member& member : edge.members) {
      if (streams_[member.stream].open) {
        Freeze(member.stream, value, static_cast<std::int32_t>(level.edge));
      }
    }
  }
  for (const StreamId id : chosen_) {
    if (streams_[id].open) Freeze(id, kInfinite, kNoEdge);  // nothing limits it
  }
}

void MaxMin::Freeze(StreamId id, double level, std::int32_t bottleneck) {
  Stream& stream = streams_[id];
  stream.open = false;
  stream.level = level;
  stream.bottleneck = bottleneck;
  stream.rate = bottleneck == kNoEdge ? stream.cap : std::min(level * stream.weight, stream.cap);
  for (const StreamHop& hop : Hops(stream)) {
    Edge& edge = edges_[hop.edge];
    if (edge.capacity == kInfinite) continue;
    edge.free = std::max(edge.free - hop.share * stream.rate, 0.0);
    edge.weight -= hop.share * stream.weight;
    if (--edge.open > 0 && edge.weight < kSmall * hop.share * stream.weight) Weigh(edge);
  }
}

void MaxMin::Weigh(Edge& edge) const {
  edge.weight = 0.0;
  for (const Member& member : edge.members) {
    const Stream& stream = streams_[member.stream];
    if (stream.open) edge.weight += Share(member) * stream.weight;
  }
}

bool MaxMin::Expand(int priority_class) {
  const std::size_t chosen_before = chosen_.size();
  const std::size_t edges = touched_.size();
  for (std::size_t i = 0; i < edges; ++i) {
    const EdgeId id = touched_[i];
    const Edge& edge = edges_[id];
    const auto here = static_cast<std::int32_t>(id);
    double load = 0.0, highest = 0.0, lowest = kInfinite;
    for (const Member& member : edge.members) {
      const Stream& stream = streams_[member.stream];
      if (stream.priority_class > priority_class) continue;
      load += Share(member) * stream.rate;
      if (stream.priority_class < priority_class) continue;
      highest = std::max(highest, stream.level);
      if (stream.bottleneck == here && stream.chosen == class_stamp_) {
        lowest = std::min(lowest, stream.level);
      }
    }
    const bool finite = edge.capacity < kInfinite;
    const bool full = finite && load >= edge.capacity * (1.0 - kSlack);
    const bool over = finite && load > edge.capacity * (1.0 + kSlack);
    const std::size_t before = chosen_.size();
    for (const Member& member : edge.members) {
      const Stream& stream = streams_[member.stream];
      if (stream.priority_class != priority_class || stream.chosen == class_stamp_) continue;
      const bool could_rise =
          stream.bottleneck == here && (!full || stream.level < highest * (1.0 - kSlack));
      const bool must_share = stream.level > lowest * (1.0 + kSlack);
      if (over || could_rise || must_share) Choose(member.stream);
    }
    if (over && chosen_.size() == before && chosen_before == before) {
      throw std::logic_error("edge " + std::to_string(id) + " carries " + std::to_string(load) +
                             " of " + std::to_string(edge.capacity) + " bytes/s");
    }
  }
  return chosen_.size() > chosen_before;
}

}  // namespace geomx::net
