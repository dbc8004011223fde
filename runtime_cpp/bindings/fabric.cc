// Python's view of the simulated network: the Fabric and the workers' verbs in virtual time.
//
// Times are integer nanoseconds on both sides. The interpreter lock is held throughout: a simulation
// is one thread, and Python codecs may be called from inside.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstring>

#include "core/worker.h"
#include "fabric/fabric.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace geomx {
namespace {

using ConstFloatArray = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

std::shared_ptr<const Buffer> Copy(const ConstFloatArray& array) {
  return std::make_shared<const Buffer>(array.data(), array.data() + array.size());
}

nb::object ToNumpy(std::span<const float> values) {
  auto* copy = new float[values.size()];
  std::memcpy(copy, values.data(), values.size() * sizeof(float));
  nb::capsule owner(copy, [](void* memory) noexcept { delete[] static_cast<float*>(memory); });
  return nb::cast(nb::ndarray<nb::numpy, float, nb::ndim<1>>(copy, {values.size()}, owner));
}

std::vector<ShardInfo> Shards(
    const std::vector<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::int32_t>>& list) {
  std::vector<ShardInfo> shards;
  for (const auto& [offset, elements, server, priority] : list) {
    shards.push_back({.offset = offset, .elements = elements, .server = server, .priority = priority});
  }
  return shards;
}

const char* EventName(Event::Kind kind) {
  switch (kind) {
    case Event::Kind::kValueReady: return "value";
    case Event::Kind::kBarrier: return "barrier";
    case Event::Kind::kStopped: return "stopped";
    case Event::Kind::kDead: return "dead";
    case Event::Kind::kRefused: return "refused";
    case Event::Kind::kCommand: return "command";
    case Event::Kind::kReply: return "reply";
    default: return "other";
  }
}

const char* CategoryName(Span::Category category) {
  switch (category) {
    case Span::Category::kSend: return "send";
    case Span::Category::kAggregate: return "aggregate";
    case Span::Category::kUpdate: return "update";
    case Span::Category::kEncode: return "encode";
  }
  return "";
}

}  // namespace
}  // namespace geomx

void init_fabric(nb::module_& m) {
  using namespace geomx;

  nb::class_<Costs>(m, "Costs", "What an endpoint's work takes: seconds per message and per byte.")
      .def(nb::init<>())
      .def("set",
           [](Costs& self, const std::string& work, double per_message, double per_byte) {
             Cost* cost = work == "receive"     ? &self.receive
                          : work == "send"      ? &self.send
                          : work == "encode"    ? &self.encode
                          : work == "decode"    ? &self.decode
                          : work == "aggregate" ? &self.aggregate
                          : work == "update"    ? &self.update
                                                : nullptr;
             if (cost == nullptr) throw nb::value_error(("no such work: " + work).c_str());
             *cost = {per_message, per_byte};
           },
           "work"_a, "per_message_s"_a, "per_byte_s"_a);

  nb::class_<Fabric>(m, "Fabric", "All nodes of an experiment over the fluid WAN, in virtual time.")
      .def(nb::init<std::uint64_t, std::size_t>(), "seed"_a, "max_spans"_a = 0)
      .def("add_edge", &Fabric::AddEdge, "course"_a, "delay_ns"_a)
      .def("add_node", &Fabric::AddNode, "config"_a, "costs"_a)
      .def("connect",
           [](Fabric& self, NodeId source, NodeId target, std::vector<net::EdgeId> path,
              std::vector<net::EdgeId> reverse, const std::string& congestion, double window_limit,
              double efficiency, double loss, Time rtt, Time jitter) {
             LinkOptions options;
             options.path = std::move(path);
             options.reverse = std::move(reverse);
             options.congestion = net::CongestionNamed(congestion);
             options.window_limit = window_limit;
             options.efficiency = efficiency;
             options.loss = loss;
             options.rtt = rtt;
             options.jitter = jitter;
             self.Connect(source, target, options);
           },
           "source"_a, "target"_a, "path"_a, "reverse"_a, "congestion"_a, "window_limit"_a,
           "efficiency"_a, "loss"_a, "rtt_ns"_a, "jitter_ns"_a)
      .def("advance", [](Fabric& self, Time limit) {
        const Time reached = self.Advance(limit);
        return reached;
      }, "limit_ns"_a)
      .def("take_events",
           [](Fabric& self) {
             nb::list out;
             for (const auto& [node, event] : self.TakeEvents()) {
               out.append(nb::make_tuple(node, EventName(event.kind), event.key, event.round,
                                         event.text, event.reason, event.values));
             }
             return out;
           },
           "(node, kind, key, round, text, reason, values) of everything applications must hear of.")
      .def("declare",
           [](Fabric& self, NodeId node, Key key, std::uint32_t elements,
              const std::vector<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t,
                                           std::int32_t>>& shards) {
             self.node(node).worker().Declare(key, elements, Shards(shards));
           }, "node"_a, "key"_a, "elements"_a, "shards"_a)
      .def("init",
           [](Fabric& self, NodeId node, Key key, std::optional<ConstFloatArray> value, Time now) {
             auto owner = value ? Copy(*value) : nullptr;
             self.node(node).worker().Init(key, owner ? owner->data() : nullptr, owner, now);
             self.Touch(node, now);
           }, "node"_a, "key"_a, "value"_a.none(), "now_ns"_a)
      .def("push",
           [](Fabric& self, NodeId node, Key key, std::optional<ConstFloatArray> value, float loss,
              bool last, Time now) {
             auto owner = value ? Copy(*value) : nullptr;
             const float* data = owner ? owner->data() : nullptr;
             const Round round = self.node(node).worker().Submit(
                 key, {.value = data, .owner = owner, .loss = loss, .last = last}, now);
             self.Touch(node, now);
             return round;
           }, "node"_a, "key"_a, "value"_a.none(), "loss"_a, "last"_a, "now_ns"_a)
      .def("request", [](Fabric& self, NodeId node, Key key, Time now) {
        self.node(node).worker().Request(key, now);
        self.Touch(node, now);
      }, "node"_a, "key"_a, "now_ns"_a)
      .def("command", [](Fabric& self, NodeId node, const std::string& text, Time now) {
        self.node(node).worker().Command(text, now);
        self.Touch(node, now);
      }, "node"_a, "text"_a, "now_ns"_a)
      .def("report",
           [](Fabric& self, NodeId node, NodeId host, std::uint32_t number,
              const std::vector<double>& values, Time now) {
             self.node(node).Report(host, number, values);
             self.Touch(node, now);
           }, "node"_a, "host"_a, "number"_a, "values"_a, "now_ns"_a)
      .def("value", [](Fabric& self, NodeId node, Key key) {
        return ToNumpy(self.node(node).worker().Value(key));
      }, "node"_a, "key"_a, "A copy of the last complete value of a tensor at a worker.")
      .def("links",
           [](const Fabric& self) {
             nb::list out;
             for (const LinkStats& link : self.Links()) {
               out.append(nb::make_tuple(link.source, link.target, link.bytes, link.messages,
                                         link.control_bytes, link.busy));
             }
             return out;
           }, "(source, target, bytes, messages, control bytes, busy ns) per directed link.")
      .def("spans",
           [](const Fabric& self) {
             nb::list out;
             for (const Span& span : self.spans()) {
               out.append(nb::make_tuple(span.node, span.peer, CategoryName(span.category), span.key,
                                         span.round, span.start, span.end));
             }
             return out;
           }, "(node, peer, category, key, round, start ns, end ns)")
      .def("node_stats",
           [](Fabric& self, NodeId node) {
             const NodeStats stats = self.node(node).stats();
             nb::dict out;
             out["rounds"] = stats.rounds;
             out["late_slices"] = stats.late_slices;
             out["refused_slices"] = stats.refused_slices;
             out["missing_slices"] = stats.missing_slices;
             out["dropped_slices"] = stats.dropped_slices;
             out["staleness_sum"] = stats.staleness_sum;
             out["staleness_max"] = stats.staleness_max;
             return out;
           }, "node"_a)
      .def_prop_ro("spans_dropped", &Fabric::spans_dropped)
      .def_prop_ro("messages", &Fabric::processed)
      .def_prop_ro("lost_messages", &Fabric::lost_messages)
      .def_prop_ro("solves", &Fabric::solves);
}
