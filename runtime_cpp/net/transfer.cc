// Both families step from event to event: the next flow that starts or ends.
#include "net/transfer.h"

#include <algorithm>
#include <queue>
#include <stdexcept>

#include "net/link.h"

namespace geomx::net {

namespace {

// Relative difference below which two end times in double seconds count as equal.
constexpr double kSameMoment = 1e-13;

void Check(const std::vector<TransferRoute>& routes, const std::vector<Transfer>& transfers) {
  for (const Transfer& transfer : transfers) {
    if (transfer.route >= routes.size()) throw std::invalid_argument("a flow has no such route");
    if (!(transfer.bytes >= 0.0) || !(transfer.bytes < kInfinity)) {
      throw std::invalid_argument("a flow's size must not be negative");
    }
    if (!(transfer.start_s >= 0.0) || !(transfer.start_s < kInfinity)) {
      throw std::invalid_argument("a flow's start must not be negative");
    }
  }
}

std::vector<std::uint32_t> ByMoment(const std::vector<double>& moments) {
  std::vector<std::uint32_t> order(moments.size());
  for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return moments[a] < moments[b]; });
  return order;
}

// The flows of one route. `progress` is what each of them has received since time 0 had it been
// there from the start; a flow that joins at progress p with b bytes ends at progress p + b.
struct RouteState {
  struct Goal {
    double progress;
    std::uint32_t flow;
    bool operator>(const Goal& other) const {
      return progress > other.progress || (progress == other.progress && flow > other.flow);
    }
  };
  double weight = 1.0, cap = kInfinity;  // of one flow
  double rate = 0.0;                     // payload bytes/s of one flow since `anchor`
  double progress = 0.0, anchor = 0.0;
  std::priority_queue<Goal, std::vector<Goal>, std::greater<>> goals;
  bool touched = false;

  void Integrate(double now) {
    if (now > anchor && rate < kInfinity) progress += rate * (now - anchor);
    anchor = now;
  }
  double End() const {
    if (goals.empty() || rate <= 0.0) return kInfinity;
    return anchor + std::max(goals.top().progress - progress, 0.0) / rate;
  }
};

// The flows of one connection in the order in which it carries them; `head` is on the wire.
struct Line {
  std::vector<std::uint32_t> flows;
  std::size_t head = 0;
};

double PathDelay(const std::vector<TransferEdge>& edges, const std::vector<EdgeId>& path) {
  double delay_s = 0.0;
  for (const EdgeId edge : path) delay_s += edges.at(edge).delay_s;
  return delay_s;
}

}  // namespace

FluidModel FluidModel::Named(std::string_view name) {
  if (name == "maxmin") return {.latency = false};
  if (name == "CM02") return {.window_bytes = 4194304.0, .cross_traffic = 0.05};
  if (name == "LV08") {
    return {.latency_factor = 13.01,
            .bandwidth_factor = 0.97,
            .weight_s = 20537.0,
            .window_bytes = 4194304.0,
            .cross_traffic = 0.05};
  }
  throw std::invalid_argument("a fluid model is one of maxmin, CM02, LV08");
}

std::vector<double> FluidTransfers(const std::vector<TransferEdge>& edges,
                                   const std::vector<TransferRoute>& routes,
                                   const std::vector<Transfer>& transfers,
                                   const FluidModel& model) {
  Check(routes, transfers);
  MaxMin solver;
  std::vector<double> bytes_per_s;
  for (const TransferEdge& edge : edges) {
    BandwidthSchedule schedule = edge.schedule;
    if (schedule.Next(0) != kNever) throw std::invalid_argument("a bandwidth changes");
    bytes_per_s.push_back(schedule.At(0));
    solver.AddEdge(bytes_per_s.back());
  }
  std::vector<RouteState> states(routes.size());
  std::vector<double> latencies(routes.size(), 0.0);
  for (std::size_t i = 0; i < routes.size(); ++i) {
    std::vector<Hop> hops;
    double inverse_weight = 0.0;
    for (const EdgeId edge : routes[i].path) {
      hops.push_back({edge, 1.0});
      inverse_weight += model.weight_s / bytes_per_s.at(edge);
    }
    for (const EdgeId edge : routes[i].reverse) hops.push_back({edge, model.cross_traffic});
    solver.AddStream(hops);
    // The slowest edge needs no cap: its capacity limits the flow.
    if (!model.latency) continue;
    latencies[i] = PathDelay(edges, routes[i].path);
    inverse_weight += latencies[i];
    if (inverse_weight > 0.0 && inverse_weight < kInfinity) states[i].weight = 1 / inverse_weight;
    if (model.window_bytes > 0.0 && latencies[i] > 0.0) {
      states[i].cap = model.window_bytes / (2 * latencies[i]);
    }
  }
  std::vector<double> joins(transfers.size());
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    joins[i] = transfers[i].start_s + model.latency_factor * latencies[transfers[i].route];
  }
  const std::vector<std::uint32_t> order = ByMoment(joins);
  std::vector<double> finish_s(transfers.size(), kInfinity);
  IndexedHeap<double> ends;
  std::vector<std::uint32_t> touched;
  const auto touch = [&](std::uint32_t route) {
    if (!states[route].touched) touched.push_back(route);
    states[route].touched = true;
  };
  std::size_t next = 0;
  for (;;) {
    const double end = ends.empty() ? kInfinity : ends.top().at;
    const double join = next < order.size() ? joins[order[next]] : kInfinity;
    const double now = std::min(end, join);
    if (now == kInfinity) break;
    const double same = now + kSameMoment * now;
    while (!ends.empty() && ends.top().at <= same) {
      const std::uint32_t route = ends.top().id;
      RouteState& state = states[route];
      // The first one has ended by definition; so have those within rounding of it.
      const double over = state.goals.top().progress * (1.0 + kSameMoment);
      while (!state.goals.empty() && state.goals.top().progress <= over) {
        finish_s[state.goals.top().flow] = now;
        state.goals.pop();
      }
      ends.Set(route, kInfinity);
      touch(route);
    }
    for (; next < order.size() && joins[order[next]] <= now; ++next) {
      const std::uint32_t flow = order[next];
      RouteState& state = states[transfers[flow].route];
      state.Integrate(now);
      state.goals.push({state.progress + transfers[flow].bytes, flow});
      touch(transfers[flow].route);
    }
    for (const std::uint32_t route : touched) {
      const auto flows = static_cast<double>(states[route].goals.size());
      solver.SetDemand(route, std::max(flows, 1.0) * states[route].weight,
                       flows > 0.0 ? flows * states[route].cap : 0.0);
    }
    const auto settle = [&](std::uint32_t route) {
      RouteState& state = states[route];
      state.Integrate(now);
      const auto flows = static_cast<double>(std::max<std::size_t>(state.goals.size(), 1));
      state.rate = model.bandwidth_factor * solver.rate(route) / flows;
      ends.Set(route, state.End());
    };
    for (const StreamId route : solver.Solve()) settle(route);
    // Without a window as the limit, a stream keeps its rate when its number of flows changes.
    for (const std::uint32_t route : touched) {
      states[route].touched = false;
      settle(route);
    }
    touched.clear();
  }
  return finish_s;
}

std::vector<double> TcpTransfers(const std::vector<TransferEdge>& edges,
                                 const std::vector<TransferRoute>& routes,
                                 const std::vector<Transfer>& transfers, const TcpModel& model) {
  Check(routes, transfers);
  FlowNetwork network(model.fifo);
  BandwidthSchedules schedules;
  for (const TransferEdge& edge : edges) {
    const double rate = BandwidthSchedule(edge.schedule).At(0);
    schedules.Add(network.AddEdge(rate, Nanoseconds(edge.delay_s)), edge.schedule);
  }
  const auto connect = [&](const TransferRoute& route) {
    const double forth = PathDelay(edges, route.path);
    const double back = route.reverse.empty() ? forth : PathDelay(edges, route.reverse);
    ConnectionOptions options = LaneOptions({.path = route.path,
                                             .reverse = route.reverse,
                                             .congestion = model.congestion,
                                             .streams = model.streams,
                                             .window_limit = model.window_bytes,
                                             .efficiency = model.efficiency,
                                             .loss = route.loss,
                                             .rtt = Nanoseconds(forth + back)},
                                            Lane::kReliable);
    options.ramp.rtt = Nanoseconds(forth + back);
    options.reverse_share = model.reverse_share;
    return network.AddConnection(options);
  };

  // One connection per flow, or one per route with its flows waiting in line.
  std::vector<ConnectionId> connection_of(transfers.size());
  std::vector<ConnectionId> of_route(routes.size(), UINT32_MAX);
  std::vector<double> begins(transfers.size());
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    const Transfer& transfer = transfers[i];
    ConnectionId& shared = of_route[transfer.route];
    if (model.new_connections || shared == UINT32_MAX) shared = connect(routes[transfer.route]);
    connection_of[i] = shared;
    begins[i] = transfer.start_s;
    if (model.new_connections) {
      begins[i] += static_cast<double>(network.Rtt(shared)) / kSecond;
    }
  }
  const std::vector<std::uint32_t> order = ByMoment(begins);
  std::vector<Line> lines(model.new_connections ? transfers.size() : routes.size());
  std::vector<double> finish_s(transfers.size(), kInfinity);
  std::vector<ConnectionId> completed;
  std::size_t next = 0, under_way = 0;
  const auto start = [&](ConnectionId connection, double bytes, Time now) {
    network.Start(connection, bytes, now);
    ++under_way;
  };
  for (;;) {
    const Time begin = next < order.size() ? Nanoseconds(begins[order[next]]) : kNever;
    const Time due = std::min(network.NextEvent(), begin);
    const auto limits = [&](EdgeId edge) { return network.Limits(edge); };
    const Time now = under_way > 0 ? std::min(due, schedules.Next(due, limits)) : due;
    if (now == kNever) break;
    schedules.Apply(now, [&](EdgeId edge, double rate) { network.SetCapacity(edge, rate, now); });
    completed.clear();
    network.Advance(now, &completed);
    for (const ConnectionId connection : completed) {
      Line& line = lines[connection];
      finish_s[line.flows[line.head]] =
          static_cast<double>(now + network.Delay(connection)) / kSecond;
      --under_way;
      if (++line.head == line.flows.size()) {
        if (model.new_connections) network.Retire(connection);
        continue;
      }
      start(connection, transfers[line.flows[line.head]].bytes, now);
    }
    for (; next < order.size() && Nanoseconds(begins[order[next]]) == now; ++next) {
      const std::uint32_t flow = order[next];
      Line& line = lines[connection_of[flow]];
      line.flows.push_back(flow);
      if (line.head + 1 == line.flows.size()) {
        start(connection_of[flow], transfers[flow].bytes, now);
      }
    }
  }
  return finish_s;
}

}  // namespace geomx::net
