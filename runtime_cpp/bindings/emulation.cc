// Python's view of the packet network: the router between network namespaces.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <utility>

#include "emulation/namespaces.h"
#include "emulation/router.h"
#include "io/clock.h"

namespace nb = nanobind;
using namespace nb::literals;

void init_emulation(nb::module_& m) {
  using namespace geomx;
  using namespace geomx::emulation;

  m.def("why_no_namespaces", &WhyNoNamespaces, nb::call_guard<nb::gil_scoped_release>(),
        "Return the reason why network namespaces cannot be created here; empty if they can.");
  m.def("enter_namespace", &EnterNamespace, "fd"_a,
        "Move the calling thread, and its later children, to the namespace of descriptor `fd`.");

  nb::class_<Router>(m, "Router", R"(Network namespaces, joined by emulated links.

Sites, edges and routes first, then start(). IPv4 addresses are numbers. Whatever it made is gone when
it is, or its process.)")
      .def(nb::init<std::uint64_t>(), "seed"_a)
      .def("add_site", &Router::AddSite, "addresses"_a, "settings"_a,
           nb::call_guard<nb::gil_scoped_release>(),
           "Create a namespace with these addresses and these settings below /proc/sys/net; return its "
           "descriptor. RuntimeError if that is not permitted.")
      .def(
          "add_edge",
          [](Router& self, net::BandwidthSchedule schedule, Time delay, Time jitter, double loss,
             std::uint64_t queue_bytes) {
            return self.AddEdge({std::move(schedule), delay, jitter, loss, queue_bytes});
          },
          "schedule"_a, "delay_ns"_a, "jitter_ns"_a, "loss"_a, "queue_bytes"_a,
          "Add one direction of a link; return its id. Loss is per packet.")
      .def("add_route", &Router::AddRoute, "source"_a, "target"_a, "edges"_a,
           "Set the route of packets between two addresses.")
      .def("start", &Router::Start, "Forward packets on a separate thread.")
      .def(
          "set_origin", [](Router& self, double monotonic_s) {
            self.SetOrigin(Nanoseconds(monotonic_s));
          },
          "monotonic_s"_a, "Set the start of the run, from which the schedules of bandwidth count.")
      .def("set", &Router::Set, "edge"_a, "delay_ns"_a.none(), "loss"_a.none(),
           nb::call_guard<nb::gil_scoped_release>(),
           "Change an edge's delay and loss from now on; what is None stays.")
      .def("stop", &Router::Stop, nb::call_guard<nb::gil_scoped_release>(), "End the thread.")
      .def(
          "counts",
          [](const Router& self) {
            const Router::Counts counts = self.counts();
            nb::dict made;
            made["delivered"] = counts.underlay.delivered;
            made["overflowed"] = counts.underlay.overflowed;
            made["lost"] = counts.underlay.lost;
            made["mean_wait_s"] = io::Seconds(counts.underlay.waited) /
                                  std::max<double>(1.0, static_cast<double>(counts.underlay.delivered));
            made["strangers"] = counts.strangers;
            made["refused"] = counts.refused;
            made["late_s"] = io::Seconds(counts.late);
            return made;
          },
          "Return the packets by outcome, how long a delivered one waited in queues on average, and the "
          "largest lateness of a packet; after stop().");
}
