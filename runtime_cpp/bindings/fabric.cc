// Python's view of the simulated network: the Fabric and the workers' verbs in virtual time.
//
// Times are integer nanoseconds on both sides. The interpreter lock is held throughout: a simulation
// is one thread, and Python codecs may be called from inside.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <cstring>

#include "bindings/handles.h"
#include "bindings/passes.h"
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

using ShardTuples =
    std::vector<std::tuple<std::uint64_t, std::uint32_t, std::uint32_t, std::int32_t>>;

std::vector<ShardInfo> Shards(const ShardTuples& list) {
  std::vector<ShardInfo> shards;
  for (const auto& [offset, elements, server, priority] : list) {
    shards.push_back({.offset = offset, .elements = elements, .server = server, .priority = priority});
  }
  return shards;
}

const char* KindName(Notice::Kind kind) {
  switch (kind) {
    case Notice::Kind::kForward: return "forward";
    case Notice::Kind::kReady: return "ready";
    case Notice::Kind::kReply: return "reply";
    case Notice::Kind::kValue: return "value";
    case Notice::Kind::kRefused: return "refused";
    case Notice::Kind::kLost: return "lost";
    case Notice::Kind::kGone: return "gone";
    case Notice::Kind::kTakesPart: return "takes_part";
    case Notice::Kind::kEnds: return "ends";
    case Notice::Kind::kPartial: return "partial";
    case Notice::Kind::kNonFinite: return "non_finite";
  }
  return "";
}

const char* CategoryName(Span::Category category) {
  switch (category) {
    case Span::Category::kSend: return "send";
    case Span::Category::kAggregate: return "aggregate";
    case Span::Category::kUpdate: return "update";
    case Span::Category::kEncode: return "encode";
    case Span::Category::kForward: return "forward";
    case Span::Category::kBackward: return "backward";
    case Span::Category::kWait: return "wait";
  }
  return "";
}

Values CopyAll(const std::optional<std::vector<ConstFloatArray>>& arrays) {
  Values values;
  if (arrays) {
    for (const ConstFloatArray& array : *arrays) values.push_back(Copy(array));
  }
  return values;
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
             if (!std::isfinite(per_message) || !std::isfinite(per_byte)) {
               throw nb::value_error(("what " + work + " takes must be finite").c_str());
             }
             *cost = {per_message, per_byte};
           },
           "work"_a, "per_message_s"_a, "per_byte_s"_a);

  nb::class_<TrainingPlan>(m, "TrainingPlan", "What all workers train.")
      .def("__init__",
           [](TrainingPlan* self, std::size_t layers,
              const std::vector<std::tuple<std::uint64_t, std::uint32_t, ShardTuples>>& tensors) {
             std::vector<TrainingPlan::Tensor> list;
             for (const auto& [elements, layer, shards] : tensors) {
               const auto key = static_cast<Key>(list.size());
               list.push_back({elements, layer, Worker::Cut(key, elements, Shards(shards))});
             }
             new (self) TrainingPlan(layers, std::move(list));
           }, "layers"_a, "tensors"_a,
           "The number of layers; (elements, layer, [(offset, elements, server, priority)]) by key.");

  nb::class_<Fabric>(m, "Fabric", "All nodes of an experiment over the fluid WAN, in virtual time.")
      .def(nb::init<std::uint64_t, std::size_t>(), "seed"_a, "max_spans"_a = 0)
      .def("add_edge", &Fabric::AddEdge, "schedule"_a, "delay_ns"_a)
      .def("add_node", &Fabric::AddNode, "config"_a, "costs"_a)
      .def("share_cores", &Fabric::ShareCores, "count"_a,
           "All nodes run on one machine with so many cores; 0: each has its own.")
      .def("connect", &Fabric::Connect, "source"_a, "target"_a, "link"_a,
           "What `source` may send to `target`.")
      .def("advance", [](Fabric& self, Time limit) {
        const Time reached = self.Advance(limit);
        return reached;
      }, "limit_ns"_a)
      .def("take_notices",
           [](Fabric& self) {
             nb::list out;
             for (const Notice& notice : self.TakeNotices()) {
               const auto& [shard, workers, above] = notice.partial;
               out.append(nb::make_tuple(notice.node, KindName(notice.kind), notice.key,
                                         notice.round, notice.text, notice.reason, notice.values,
                                         nb::make_tuple(shard, workers, above)));
             }
             return out;
           },
           "(node, kind, key, round, text, reason, values, partial) of everything Python must hear of;\n"
           "partial is (shard, workers, global round) of a round that was closed without some.")
      .def("expect_faults", &Fabric::ExpectFaults,
           "Connections will break: to be called after building and before running.")
      .def("cut", &Fabric::Cut, "one"_a, "other"_a, "now_ns"_a,
           "Nothing passes between two nodes until `heal`; what is under way is lost. Cuts add up.")
      .def("heal", &Fabric::Heal, "one"_a, "other"_a, "now_ns"_a, "Ends one `cut`.")
      .def("reconnect", &Fabric::Reconnect, "one"_a, "other"_a, "now_ns"_a,
           "Ends one `cut`; the connection has been there all the time.")
      .def("pause", &Fabric::Pause, "node"_a, "duration_ns"_a, "now_ns"_a,
           "A node does not run for so long: it computes nothing, handles nothing and hears no timer.")
      .def("reset", &Fabric::Reset, "one"_a, "other"_a, "now_ns"_a,
           "The connection between two nodes breaks; what is under way is lost, and sent again.")
      .def("kill", &Fabric::Kill, "node"_a, "reason"_a, "now_ns"_a,
           "A node's process dies; the scheduler is told why.")
      .def("restart", &Fabric::Restart, "config"_a, "now_ns"_a,
           "Another process of a node that was killed joins the run; a worker is to be trained anew.")
      .def("leave", &Fabric::Leave, "worker"_a, "now_ns"_a, "A worker has trained: it leaves.")
      .def("round", [](Fabric& self, NodeId node, Key key) {
        return self.node(node).worker().ValueRound(key);
      }, "node"_a, "key"_a, "The round that a worker's last complete value of a tensor belongs to.")
      .def("report_values", &Fabric::ReportValues, "report"_a,
           "Whether every new value at a trainer makes a notice.")
      .def("command", [](Fabric& self, NodeId node, const std::string& text, Time now) {
        self.node(node).worker().Command(text, now);
        self.Touch(node, now);
      }, "node"_a, "text"_a, "now_ns"_a)
      .def("train", &Fabric::Train, "node"_a, "plan"_a, "pace"_a,
           "Let a worker train; the fabric executes its loop from now on.")
      .def("start",
           [](Fabric& self, NodeId node, bool master,
              const std::optional<std::vector<ConstFloatArray>>& initial, Time now) {
             self.trainer(node).Start(master, CopyAll(initial), now);
           }, "node"_a, "master"_a, "initial"_a.none(), "now_ns"_a,
           "Declare and ask for all tensors; the master also gives them. Ends with \"ready\".")
      .def("forward", [](Fabric& self, NodeId node, Time now) {
        self.trainer(node).Forward(now);
      }, "node"_a, "now_ns"_a, "Begin a forward pass. Ends with \"forward\".")
      .def("backward",
           [](Fabric& self, NodeId node, const std::string& push,
              const std::optional<std::vector<ConstFloatArray>>& values, float loss, bool last,
              std::optional<std::tuple<NodeId, std::uint32_t, std::vector<double>>> report,
              Time now) {
             Trainer::Step step{.push = PushNamed(push), .values = CopyAll(values), .loss = loss,
                                .last = last};
             if (report) {
               auto& [host, coordinator, numbers] = *report;
               step.report = {host, coordinator, std::move(numbers)};
             }
             self.trainer(node).Backward(std::move(step), now);
           }, "node"_a, "push"_a, "values"_a.none(), "loss"_a, "last"_a, "report"_a.none(),
           "now_ns"_a,
           "Begin a backward pass that pushes \"nothing\", \"gradients\" as they come or "
           "\"parameters\" at its end. Ends with \"ready\", when the next step can begin.")
      .def("recurs", &Fabric::Recurs, "now_ns"_a,
           "Whether the state equals the marked one; None if there is no mark, or it is unknown.")
      .def("mark", &Fabric::Mark, "now_ns"_a, "Mark the state that `recurs` saw last.")
      .def("repeat", &Fabric::Repeat, "times"_a, "now_ns"_a,
           "Count everything since the mark another `times` times.")
      .def("value", [](Fabric& self, NodeId node, Key key) {
        return ToNumpy(self.node(node).worker().Value(key));
      }, "node"_a, "key"_a, "A copy of the last complete value of a tensor at a worker.")
      .def("awaits_reply", [](Fabric& self, NodeId node) { return self.trainer(node).AwaitsReply(); },
           "node"_a, "Whether a worker waits for a coordinator's reply.")
      .def("waits",
           [](const Fabric& self, NodeId node) {
             std::vector<std::tuple<Key, Round, std::uint32_t, std::vector<NodeId>>> waits;
             for (const Wait& wait : self.node(node).ListWaits()) {
               const bool initial = wait.kind == Wait::Kind::kInitial;
               waits.emplace_back(wait.key, initial ? 0 : wait.round, wait.keys, wait.whom);
             }
             return waits;
           }, "node"_a,
           "The values that a worker or a server waits for now, those from the same nodes together:\n"
           "(first key, round, number of keys, from which nodes); round 0: the initial value.")
      .def("links",
           [](const Fabric& self) {
             nb::list out;
             for (const LinkStats& link : self.Links()) {
               const Traffic& push = link.data[static_cast<int>(Direction::kPush)];
               const Traffic& pull = link.data[static_cast<int>(Direction::kPull)];
               out.append(nb::make_tuple(link.source, link.target, Pair(push), Pair(pull),
                                         link.control_bytes, link.busy));
             }
             return out;
           }, "(source, target, push, pull, control bytes, busy ns) per directed link; push and pull are\n"
              "(bytes, messages).")
      .def("worked", &Fabric::Worked,
           "How long each node has worked on messages, in nanoseconds, by its id.")
      .def("edges_busy", &Fabric::EdgesBusy,
           "How long each edge had a message under way, in nanoseconds, by its id.")
      .def("spans",
           [](const Fabric& self) {
             nb::list out;
             for (const Span& span : self.spans().Kept()) {
               const bool send = span.category == Span::Category::kSend;
               nb::dict about;
               if (span.key != Span::kNoKey) {
                 about["key"] = span.key;
                 if (send) about["shard"] = span.shard;
                 about["round"] = span.round;
               }
               if (send) about["bytes"] = span.bytes;
               if (span.channel > 0) about["channel"] = span.channel;
               out.append(nb::make_tuple(span.node, span.peer, CategoryName(span.category),
                                         send ? KindName(span.kind) : "", about, span.start,
                                         span.end));
             }
             return out;
           }, "(node, peer, category, kind of what is sent, about, start ns, end ns); about is what a\n"
              "timeline shows with it: key, shard, round, bytes, channel.")
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
             out["partial_rounds"] = stats.partial_rounds;
             return out;
           }, "node"_a)
      .def_prop_ro("spans_dropped", [](const Fabric& self) { return self.spans().dropped(); })
      .def_prop_ro("messages", &Fabric::processed)
      .def_prop_ro("idle", &Fabric::idle, "Whether nothing is left to happen, at whatever time.")
      .def_prop_ro("events", &Fabric::happened)
      .def_prop_ro("lost_messages", &Fabric::lost_messages)
      .def_prop_ro("solves", &Fabric::solves);
}
