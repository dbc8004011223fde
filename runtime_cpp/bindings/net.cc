// Python's view of the network model: the two transfer calculators behind geomx.sim.transfer_times,
// and FlowNetwork itself, which tests and notebooks drive by hand. All arguments are copied; the
// interpreter lock is not held while the calculators run.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "net/bandwidth_schedule.h"
#include "net/flows.h"
#include "net/link.h"
#include "net/transfer.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace geomx::net {
namespace {

using Paths = std::vector<std::vector<EdgeId>>;
using Numbers = std::vector<double>;
using Schedules = std::vector<BandwidthSchedule>;

std::vector<TransferEdge> Edges(const Schedules& schedules, const Numbers& delays_s) {
  if (schedules.size() != delays_s.size()) throw std::invalid_argument("one delay per edge");
  std::vector<TransferEdge> edges(schedules.size());
  for (std::size_t i = 0; i < edges.size(); ++i) edges[i] = {schedules[i], delays_s[i]};
  return edges;
}

std::vector<TransferRoute> Routes(Paths paths, Paths reverses, const Numbers& losses) {
  if (paths.size() != reverses.size() || paths.size() != losses.size()) {
    throw std::invalid_argument("one way back and one loss per route");
  }
  std::vector<TransferRoute> routes(paths.size());
  for (std::size_t i = 0; i < routes.size(); ++i) {
    routes[i] = {std::move(paths[i]), std::move(reverses[i]), losses[i]};
  }
  return routes;
}

std::vector<Transfer> Transfers(const std::vector<std::uint32_t>& route, const Numbers& bytes,
                                const Numbers& starts_s) {
  if (route.size() != bytes.size() || route.size() != starts_s.size()) {
    throw std::invalid_argument("one size and one start per flow");
  }
  std::vector<Transfer> transfers(route.size());
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    if (!(bytes[i] >= 0.0 && bytes[i] < kInfinity) || !std::isfinite(starts_s[i])) {
      throw std::invalid_argument("flow " + std::to_string(i) +
                                  ": its size must be finite and not negative, its start finite");
    }
    transfers[i] = {route[i], bytes[i], starts_s[i]};
  }
  return transfers;
}

}  // namespace
}  // namespace geomx::net

void init_net(nb::module_& m) {
  using namespace geomx;
  using namespace geomx::net;

  nb::class_<BandwidthSchedule>(m, "BandwidthSchedule",
                                R"(The bandwidth of an edge over time, from the start of the run on.

Made of a bandwidth in bytes/s, and then what changes it; each setter raises ValueError for what
makes no sense, or would leave the edge down for ever.)")
      .def(nb::init<double>(), "bytes_per_s"_a = kInfinity)
      .def(
          "set_trace",
          [](BandwidthSchedule& schedule, const std::vector<std::pair<double, double>>& changes) {
            std::vector<std::pair<Time, double>> trace;
            for (const auto& [time_s, rate] : changes) {
              trace.emplace_back(Nanoseconds(time_s), rate);
            }
            schedule.SetTrace(std::move(trace));
          },
          "changes"_a, "Set the bandwidth from each time on: (seconds, bytes/s).")
      .def(
          "set_redraw",
          [](BandwidthSchedule& schedule, double every_s, double low, double high,
             std::uint64_t stream) {
            schedule.SetRedraw(Nanoseconds(every_s), low, high, stream);
          },
          "every_s"_a, "low"_a, "high"_a, "stream"_a, "Draw the bandwidth periodically, uniformly between two bounds.")
      .def(
          "add_outage",
          [](BandwidthSchedule& schedule, double start_s, double end_s, double every_s) {
            schedule.AddOutage(Nanoseconds(start_s), Nanoseconds(end_s), Nanoseconds(every_s));
          },
          "start_s"_a, "end_s"_a, "every_s"_a = 0.0, "Add an outage, which repeats if every_s is above 0.")
      .def(
          "add_failures",
          [](BandwidthSchedule& schedule, double mean_up_s, double mean_down_s, std::uint64_t stream) {
            schedule.AddFailures(Nanoseconds(mean_up_s), Nanoseconds(mean_down_s), stream);
          },
          "mean_up_s"_a, "mean_down_s"_a, "stream"_a, "Add alternating up and down times, exponentially distributed.")
      .def("at",
           [](BandwidthSchedule& schedule, double time_s) {
             return schedule.At(Nanoseconds(time_s));
           },
           "time_s"_a, "Return the bandwidth at a time, in bytes/s.")
      .def(
          "next",
          [](BandwidthSchedule& schedule, double time_s) -> std::optional<double> {
            const Time next = schedule.Next(Nanoseconds(time_s));
            if (next == kNever) return std::nullopt;
            return static_cast<double>(next) / kSecond;
          },
          "time_s"_a, "Return the first time after `time_s` at which it may change; None if there is none.")
      .def(
          "finish",
          [](BandwidthSchedule& schedule, double from_s, double bytes) {
            const Time finish = schedule.Finish(Nanoseconds(from_s), bytes);
            return finish == kNever ? kInfinity : static_cast<double>(finish) / kSecond;
          },
          "from_s"_a, "bytes"_a, "Return when that many bytes have passed; infinite if never.")
      .def("carries",
           [](BandwidthSchedule& schedule, double end_s) {
             return schedule.Carries(Nanoseconds(end_s));
           },
           "end_s"_a, "Return the bytes that can pass until `end_s`; infinite without a limit.");
  nb::implicitly_convertible<double, BandwidthSchedule>();

  nb::class_<LinkOptions>(m, "LinkModel", R"(One direction between two nodes, for Fabric and Shape.

Edges of the way there and back by id; the congestion control, the number of TCP streams and the
window of each; payload bytes per byte; loss per packet; round trip, jitter and queue in
nanoseconds (no queue: no datagram is dropped for being late); what routers do with datagrams:
priority (serve them last) or fifo; its share of an edge, and the classes of its reliable lane and of
datagrams, lower ones of which go first; bytes of acknowledgements on the way back per byte of TCP.)")
      .def(
          "__init__",
          [](LinkOptions* self, std::vector<EdgeId> path, std::vector<EdgeId> reverse,
             const std::string& congestion, int streams, double window_limit, double efficiency,
             double loss, Time rtt, Time jitter, std::optional<Time> queue,
             const std::string& queueing, double weight, int priority_class, int datagram_class,
             double ack_share) {
            if (streams < 1) throw std::invalid_argument("a link needs a stream");
            if (!(window_limit > 0.0) || !(efficiency > 0.0 && efficiency <= 1.0) ||
                !(loss >= 0.0 && loss < 1.0) || rtt < 0 || jitter < 0 ||
                !(ack_share >= 0.0 && ack_share <= 1.0)) {
              throw std::invalid_argument(
                  "a link needs a window above 0, an efficiency in (0, 1], a loss in [0, 1), a round "
                  "trip and jitter that are not negative, and a share of acknowledgements in [0, 1]");
            }
            new (self) LinkOptions{.path = std::move(path),
                                   .reverse = std::move(reverse),
                                   .congestion = CongestionNamed(congestion),
                                   .streams = streams,
                                   .window_limit = window_limit,
                                   .efficiency = efficiency,
                                   .loss = loss,
                                   .rtt = rtt,
                                   .jitter = jitter,
                                   .queue = queue.value_or(kNever),
                                   .queueing = QueueingNamed(queueing),
                                   .weight = weight,
                                   .priority_class = priority_class,
                                   .datagram_class = datagram_class,
                                   .ack_share = ack_share};
          },
          "path"_a, "reverse"_a, "congestion"_a = "bbr", "streams"_a = 1,
          "window_limit"_a = kWindowLimit, "efficiency"_a = kPayloadShare, "loss"_a = 0.0,
          "rtt_ns"_a = 0, "jitter_ns"_a = 0, "queue_ns"_a.none() = nb::none(),
          "queueing"_a = "priority", "weight"_a = 1.0, "priority_class"_a = 0, "datagram_class"_a = 1,
          "ack_share"_a = 0.0);

  m.def(
      "fluid_transfers",
      [](const std::string& model, const Schedules& schedules, const Numbers& delays_s,
         Paths paths, Paths reverses, const Numbers& losses,
         const std::vector<std::uint32_t>& route, const Numbers& bytes, const Numbers& starts_s) {
        nb::gil_scoped_release unlocked;
        return FluidTransfers(Edges(schedules, delays_s),
                              Routes(std::move(paths), std::move(reverses), losses),
                              Transfers(route, bytes, starts_s), FluidModel::Named(model));
      },
      "model"_a, "schedules"_a, "delays_s"_a, "paths"_a, "reverses"_a, "losses"_a, "route"_a,
      "bytes"_a, "starts_s"_a, "Return the finish times in seconds under a fluid model (maxmin, CM02, LV08).");

  m.def(
      "tcp_transfers",
      [](const std::string& congestion, int streams, double window_bytes, double efficiency,
         double reverse_share, bool new_connections, bool fifo,
         const Schedules& schedules, const Numbers& delays_s, Paths paths, Paths reverses,
         const Numbers& losses, const std::vector<std::uint32_t>& route, const Numbers& bytes,
         const Numbers& starts_s) {
        nb::gil_scoped_release unlocked;
        TcpModel model{CongestionNamed(congestion), streams, window_bytes, efficiency,
                       reverse_share, new_connections, fifo};
        return TcpTransfers(Edges(schedules, delays_s),
                            Routes(std::move(paths), std::move(reverses), losses),
                            Transfers(route, bytes, starts_s), model);
      },
      "congestion"_a, "streams"_a, "window_bytes"_a, "efficiency"_a, "reverse_share"_a,
      "new_connections"_a, "fifo"_a, "schedules"_a, "delays_s"_a, "paths"_a, "reverses"_a,
      "losses"_a, "route"_a, "bytes"_a, "starts_s"_a, "Return the finish times in seconds under the TCP model.");

  nb::class_<FlowNetwork>(m, "FlowNetwork",
                          "The fluid model of connections over shared edges; times are integer nanoseconds.")
      .def(nb::init<bool>(), "fifo"_a = false)
      .def("add_edge", &FlowNetwork::AddEdge, "bytes_per_s"_a, "delay_ns"_a = 0)
      .def(
          "add_connection",
          [](FlowNetwork& network, std::vector<EdgeId> path, std::vector<EdgeId> reverse,
             double reverse_share, double weight, int priority_class, double efficiency,
             Time rtt_ns, const std::string& congestion, double window_bytes) {
            ConnectionOptions options;
            options.path = std::move(path);
            options.reverse = std::move(reverse);
            options.reverse_share = reverse_share;
            options.weight = weight;
            options.priority_class = priority_class;
            options.efficiency = efficiency;
            options.ramp.rtt = rtt_ns;
            options.ramp.congestion = CongestionNamed(congestion);
            options.ramp.window_limit = window_bytes;
            return network.AddConnection(options);
          },
          "path"_a, "reverse"_a = std::vector<EdgeId>{}, "reverse_share"_a = 0.0, "weight"_a = 1.0,
          "priority_class"_a = 0, "efficiency"_a = kPayloadShare, "rtt_ns"_a = 0,
          "congestion"_a = "bbr", "window_bytes"_a = kWindowLimit)
      .def("start", &FlowNetwork::Start, "connection"_a, "bytes"_a, "now_ns"_a)
      .def("set_capacity", &FlowNetwork::SetCapacity, "edge"_a, "bytes_per_s"_a, "now_ns"_a)
      .def(
          "next_event",
          [](FlowNetwork& network) -> nb::object {
            const Time next = network.NextEvent();
            return next == kNever ? nb::none() : nb::cast(next);
          },
          "Return the time of the next event in nanoseconds; None if there is none.")
      .def(
          "advance",
          [](FlowNetwork& network, Time now) {
            std::vector<ConnectionId> completed;
            network.Advance(now, &completed);
            return completed;
          },
          "now_ns"_a, "Return the connections whose messages were sent completely at `now_ns`.")
      .def("rate", &FlowNetwork::Rate, "connection"_a, "Return the payload bytes/s of a connection.")
      .def("load", &FlowNetwork::Load, "edge"_a, "Return the load of an edge in bytes/s.")
      .def("capacity", &FlowNetwork::Capacity, "edge"_a)
      .def("delay", &FlowNetwork::Delay, "connection"_a, "Return the one-way delay in nanoseconds.")
      .def("window", [](const FlowNetwork& network,
                        ConnectionId id) { return network.Ramp(id).window(); }, "connection"_a)
      .def_prop_ro("solves", &FlowNetwork::solves);
}
