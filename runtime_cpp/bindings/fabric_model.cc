// What a model of the network in Python (geomx/plugin/wan.py) is told by a simulation, and tells it.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>

#include "fabric/fabric.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace geomx {
namespace {

const char* NameOf(net::ModelCall::Kind kind) {
  switch (kind) {
    case net::ModelCall::Kind::kEdge: return "edge";
    case net::ModelCall::Kind::kChanged: return "changed";
    case net::ModelCall::Kind::kNew: return "new";
    case net::ModelCall::Kind::kStart: return "start";
    case net::ModelCall::Kind::kCancelled: return "cancelled";
  }
  return "";
}

class FabricModel {
 public:
  explicit FabricModel(Fabric& fabric) : fabric_(fabric) { fabric.Delegate(); }

  std::vector<std::tuple<std::string, std::uint32_t, double>> TakeCalls() {
    std::vector<std::tuple<std::string, std::uint32_t, double>> calls;
    for (const net::ModelCall& call : fabric_.TakeModelCalls()) {
      calls.emplace_back(NameOf(call.kind), call.number, call.bytes);
    }
    return calls;
  }

  std::pair<double, Time> Edge(net::EdgeId edge) const {
    if (edge >= fabric_.network().edges()) throw std::invalid_argument("there is no such edge");
    return {fabric_.network().Capacity(edge), fabric_.network().EdgeDelay(edge)};
  }

  nb::tuple Connection(net::ConnectionId id) const {
    const net::ConnectionOptions& options = fabric_.network().Options(id);
    const auto [link, lane] = fabric_.LinkOf(id);
    const char* kind = link == nullptr           ? "transfer"
                       : lane == Lane::kReliable ? "training"
                                                 : "datagrams";
    std::vector<NodeId> ends;
    if (link != nullptr) ends = {link->source, link->target};
    const net::RampOptions& ramp = options.ramp;
    return nb::make_tuple(kind, ends, options.path, options.reverse, fabric_.network().Rtt(id),
                          options.efficiency, options.weight, options.priority_class,
                          Name(ramp.congestion), ramp.initial_window, ramp.window_limit,
                          ramp.rate_limit, options.reverse_share);
  }

  void Left(net::ConnectionId id, bool arrives, bool lost, Time now) {
    fabric_.MessageLeft(id, lost ? Fabric::Ending::kLost
                                 : arrives ? Fabric::Ending::kArrives : Fabric::Ending::kHeld, now);
  }
  void Arrived(net::ConnectionId id, Time now) { fabric_.MessageArrived(id, now); }
  void SetRate(net::ConnectionId id, double rate, Time now) { fabric_.MessageRate(id, rate, now); }

 private:
  Fabric& fabric_;
};

}  // namespace
}  // namespace geomx

void init_fabric_model(nb::module_& m) {
  using namespace geomx;

  nb::class_<FabricModel>(m, "FabricModel",
                          "A fabric that leaves its network to a model in Python. To be made before the "
                          "fabric is built.")
      .def(nb::init<Fabric&>(), "fabric"_a, nb::keep_alive<1, 2>())
      .def("take_calls", &FabricModel::TakeCalls,
           "Return and clear what has happened: (kind, number of an edge or a connection, bytes); kind is\n"
           "edge, changed, new, start or cancelled.")
      .def("edge", &FabricModel::Edge, "edge"_a, "Return an edge's bytes/s and its delay in nanoseconds.")
      .def("connection", &FabricModel::Connection, "connection"_a,
           "Return (kind, nodes at its ends, edges, edges back, round trip in ns, efficiency, weight,\n"
           "class, congestion control, first window, largest window, rate limit, bytes of acknowledgements per\n"
           "byte); a transfer has no nodes.")
      .def("left", &FabricModel::Left, "connection"_a, "arrives"_a, "lost"_a, "now_ns"_a,
           "Let the last byte of a connection's message have left.")
      .def("arrived", &FabricModel::Arrived, "connection"_a, "now_ns"_a,
           "Let a message arrive that has left with arrives=False.")
      .def("set_rate", &FabricModel::SetRate, "connection"_a, "bytes_per_s"_a, "now_ns"_a,
           "Note the present rate of a message.");
}
