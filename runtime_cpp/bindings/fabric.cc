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
#include <map>

#include "bindings/handles.h"
#include "bindings/shards.h"
#include "bindings/passes.h"
#include "core/replica.h"
#include "core/worker.h"
#include "fabric/fabric.h"
#include "kernels/memory.h"

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
    case Notice::Kind::kTransferred: return "transferred";
    case Notice::Kind::kMoved: return "moved";
    case Notice::Kind::kNonFinite: return "non_finite";
    case Notice::Kind::kReleased: return "released";
    case Notice::Kind::kStopped: return "stopped";
    case Notice::Kind::kState: return "state";
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

// The values of the pushed keys, in their order, by key.
Values ByKey(const Trainer::Step& step, std::size_t keys) {
  const std::vector<Key>& pushed = step.part->pushed;
  if (pushed.size() != step.values.size()) {
    throw std::invalid_argument("a backward pass needs one value per pushed key");
  }
  Values values(keys);
  for (std::size_t i = 0; i < pushed.size(); ++i) values.at(pushed[i]) = step.values[i];
  return values;
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

  nb::class_<Costs>(m, "Costs", "Execution times of an endpoint: seconds per message and per byte, by kind of work.")
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

  nb::class_<TrainingPlan>(m, "TrainingPlan", "The layers and tensors that all workers train.")
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

  nb::class_<TransferOptions>(m, "TransferModel",
                              "The way of a transfer and its TCP, its weight and class, and its pace: bytes/s on the "
                              "edges;\ninfinite for TCP's own. A lower class goes first; training is class 0.")
      .def("__init__",
           [](TransferOptions* self, net::LinkOptions link, double weight, int priority_class, double pace) {
             if (!(pace > 0.0)) throw std::invalid_argument("a transfer's pace must be above 0");
             new (self) TransferOptions{std::move(link), weight, priority_class, pace};
           }, "link"_a, "weight"_a = 1.0, "priority_class"_a = 0, "pace"_a = net::kInfinity);

  nb::class_<Fabric> fabric(m, "Fabric", "All nodes of an experiment over the fluid WAN, in virtual time.");
  fabric
      .def(nb::init<std::uint64_t, std::size_t, bool>(), "seed"_a, "max_spans"_a = 0,
           "fifo"_a = false)
      .def("add_edge", &Fabric::AddEdge, "schedule"_a, "delay_ns"_a)
      .def("add_node",
           [](Fabric& self, NodeConfig config, std::shared_ptr<const Costs> costs) {
             kernels::GrowHeapInHugePages();
             self.AddNode(std::move(config), std::move(costs));
           }, "config"_a, "costs"_a)
      .def("share_cores", &Fabric::ShareCores, "count"_a,
           "Let all nodes share this number of cores; 0: each has its own.")
      .def("connect", &Fabric::Connect, "source"_a, "target"_a, "link"_a,
           "Add the link from `source` to `target`.")
      .def("advance", [](Fabric& self, Time limit) {
        kernels::GrowHeapInHugePages();
        return self.Advance(limit);
      }, "limit_ns"_a)
      .def("take_notices",
           [](Fabric& self) {
             // Most notices have neither texts nor values: they share one object of each.
             const nb::object nothing = nb::str(""), whole = nb::none();
             std::map<Notice::Kind, nb::object> kinds;
             const auto text = [&](const std::string& given) -> nb::object {
               return given.empty() ? nothing : nb::str(given.data(), given.size());
             };
             nb::list out;
             for (const Notice& notice : self.TakeNotices()) {
               nb::object& kind = kinds[notice.kind];
               if (!kind.is_valid()) kind = nb::str(KindName(notice.kind));
               const bool binary = notice.kind == Notice::Kind::kState;
               const auto& [shard, workers, above, late, dropped] = notice.partial;
               out.append(nb::make_tuple(
                   notice.node, kind, notice.key, notice.round,
                   binary ? nb::bytes(notice.text.data(), notice.text.size()) : text(notice.text),
                   text(notice.reason), notice.values,
                   notice.kind == Notice::Kind::kPartial
                       ? nb::object(nb::make_tuple(shard, workers, above, late, dropped))
                       : whole));
             }
             return out;
           },
           "Return and clear the notices for Python: (node, kind, key, round, text, reason, values,\n"
           "partial); partial, in notices of that kind, is (shard, workers, global round, late, dropped) of a\n"
           "round without some nodes, or with contributions that were late: (node, round that it was\n"
           "pushed for), the last `dropped` of which do not count. text is bytes in notices of kind state.")
      .def("expect_faults", &Fabric::ExpectFaults,
           "Enable faults of connections; to be called after building and before running.")
      .def("cut", &Fabric::Cut, "one"_a, "other"_a, "now_ns"_a,
           "Drop all messages between two nodes, also those in flight, until `heal`. Cuts add up.\n\n"
           "Returns:\n    How often the connection has broken, while messages waited, since one arrived.")
      .def("heal", &Fabric::Heal, "one"_a, "other"_a, "now_ns"_a, "End one `cut`, with a new connection.")
      .def("reconnect", &Fabric::Reconnect, "one"_a, "other"_a, "now_ns"_a,
           "End one `cut`, with the old connection.")
      .def("pause", &Fabric::Pause, "node"_a, "duration_ns"_a, "now_ns"_a,
           "Pause a node: it does not compute, handle messages or fire timers for this time.")
      .def("reset", &Fabric::Reset, "one"_a, "other"_a, "now_ns"_a,
           "Break the connection between two nodes; messages in flight are lost and sent again.\n\n"
           "Returns:\n    What `cut` returns.")
      .def("kill", &Fabric::Kill, "node"_a, "reason"_a, "now_ns"_a,
           "Kill a node's process; the scheduler receives the reason.")
      .def("restart", &Fabric::Restart, "config"_a, "now_ns"_a,
           "Start a new process of a killed node; a worker needs another call of `train`.")
      .def("stand_by", &Fabric::StandBy, "config"_a, "standby"_a,
           "Let a node of the role standby repeat what the global server of `config` does, and take its place "
           "when it is lost.")
      .def("detour", &Fabric::Detour, "source"_a, "target"_a, "link"_a,
           "Set the path of a link once the standby of one of its ends has taken that end's place.")
      .def("leave", &Fabric::Leave, "worker"_a, "now_ns"_a, "Let a worker leave the run.")
      .def("round", [](Fabric& self, NodeId node, Key key) {
        return self.node(node).worker().ValueRound(key);
      }, "node"_a, "key"_a, "Return the round of a worker's last complete value of a tensor.")
      .def("reached", [](Fabric& self, NodeId node, Key key) {
        return self.node(node).worker().Reached(key);
      }, "node"_a, "key"_a, "Return the rounds that other parties have completed by that value.")
      .def("report_values", &Fabric::ReportValues, "report"_a,
           "Set whether every new value at a worker creates a notice.")
      .def("run_optimizer", [](Fabric& self, NodeId node, const std::string& optimizer, bool unless_given, Time now) {
        self.node(node).worker().Command(Instruction(optimizer), now, unless_given);
        self.Touch(node, now);
      }, "node"_a, "optimizer"_a, "unless_given"_a, "now_ns"_a,
           "Have all global servers run an optimizer. See Loop.run_optimizer.")
      .def("train", &Fabric::Train, "node"_a, "plan"_a, "pace"_a,
           "Let the fabric execute a worker's training loop.")
      .def("start",
           [](Fabric& self, NodeId node, bool master,
              const std::optional<std::vector<ConstFloatArray>>& initial, Time now) {
             self.trainer(node).Start(master, CopyAll(initial), now);
           }, "node"_a, "master"_a, "initial"_a.none(), "now_ns"_a,
           "Declare and request all tensors; the master also initialises them. Ends with \"ready\".")
      .def("forward", [](Fabric& self, NodeId node, Time now, const std::vector<Key>& needs) {
        self.trainer(node).Forward(now, needs);
      }, "node"_a, "now_ns"_a, "needs"_a = std::vector<Key>(),
           "Begin a forward pass, which waits for the answers to `needs` too. Ends with \"forward\".")
      .def("backward",
           [](Fabric& self, NodeId node, const std::string& push,
              const std::optional<std::vector<ConstFloatArray>>& values, float loss, bool last,
              std::optional<std::tuple<NodeId, std::uint32_t, std::vector<double>>> report,
              Time now, std::optional<KeyLists> part) {
             Trainer::Step step{.push = PushNamed(push), .part = PartOf(std::move(part)),
                                .values = CopyAll(values), .loss = loss, .last = last};
             if (step.part && !step.values.empty()) step.values = ByKey(step, self.trainer(node).keys());
             if (report) {
               auto& [host, coordinator, numbers] = *report;
               step.report = {host, coordinator, std::move(numbers)};
             }
             self.trainer(node).Backward(std::move(step), now);
           }, "node"_a, "push"_a, "values"_a.none(), "loss"_a, "last"_a, "report"_a.none(),
           "now_ns"_a, "part"_a.none() = nb::none(),
           "Begin a backward pass that pushes \"nothing\", or each layer's \"gradients\" or "
           "\"parameters\" after it. Ends with \"ready\", when the next step can begin.\n"
           "part: (keys that are pushed, whose values these are; keys whose answers the next step needs); "
           "None: all, and these.")
      .def("recurs", &Fabric::Recurs, "now_ns"_a,
           "Return whether the state equals the marked one; None without a mark, or if unknown.")
      .def("mark", &Fabric::Mark, "now_ns"_a, "Mark the state of the last call of `recurs`.")
      .def("repeat", &Fabric::Repeat, "times"_a, "now_ns"_a,
           "Count everything since the mark `times` more times.")
      .def("value", [](Fabric& self, NodeId node, Key key) {
        return ToNumpy(self.node(node).worker().Value(key));
      }, "node"_a, "key"_a, "Return a copy of the last complete value of a tensor at a worker.")
      .def("awaits_reply", [](Fabric& self, NodeId node) { return self.trainer(node).AwaitsReply(); },
           "node"_a, "Return whether a worker waits for a coordinator's reply.")
      .def("waits",
           [](const Fabric& self, NodeId node) {
             std::vector<std::tuple<Key, Round, std::uint32_t, std::vector<NodeId>>> waits;
             for (const Wait& wait : self.node(node).ListWaits()) {
               if (wait.kind == Wait::Kind::kOrder) continue;
               const bool initial = wait.kind == Wait::Kind::kInitial;
               waits.emplace_back(wait.key, initial ? 0 : wait.round, wait.keys, wait.whom);
             }
             return waits;
           }, "node"_a,
           "Return the values for which a worker or a server waits, grouped by awaited nodes:\n"
           "(first key, round, number of keys, nodes); round 0 is the initial value.")
      .def("orders_due",
           [](const Fabric& self, NodeId node) {
             std::vector<std::uint32_t> coordinators;
             for (const Wait& wait : self.node(node).ListWaits()) {
               if (wait.kind == Wait::Kind::kOrder) coordinators.push_back(wait.key);
             }
             return coordinators;
           }, "node"_a,
           "Return the coordinators on a node without whose orders an overlay can do nothing.")
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
           }, "Return (source, target, push, pull, control bytes, busy ns) per directed link; push and\n"
              "pull are (bytes, messages).")
      .def("worked", &Fabric::Worked,
           "Return the time that each node has spent on messages, in nanoseconds, by id.")
      .def("edges_busy", &Fabric::EdgesBusy,
           "Return the time in which each edge had messages in flight, in nanoseconds, by id.")
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
           }, "Return (node, peer, category, kind of the message, about, start ns, end ns) of each span;\n"
              "about contains key, shard, round, bytes and channel.")
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
             out["shards"] = stats.shards;
             return out;
           }, "node"_a)
      .def_prop_ro("spans_dropped", [](const Fabric& self) { return self.spans().dropped(); })
      .def_prop_ro("messages", &Fabric::processed)
      .def_prop_ro("idle", &Fabric::idle, "Whether no event is scheduled at any time, nor a change of a "
                   "bandwidth that something waits for.")
      .def_prop_ro("events", &Fabric::happened)
      .def_prop_ro("lost_messages", &Fabric::lost_messages)
      .def_prop_ro("solves", &Fabric::solves);

  fabric
      .def("set_capacity", &Fabric::SetCapacity, "edge"_a, "bytes_per_s"_a, "now_ns"_a,
           "Set an edge's bandwidth from now on; its schedule ends.")
      .def("set_edge_up", &Fabric::SetEdgeUp, "edge"_a, "up"_a, "now_ns"_a,
           "Let nothing pass an edge, or what could by now had it been up; its schedule goes on.")
      .def("set_delay", &Fabric::SetDelay, "edge"_a, "delay_ns"_a,
           "Set an edge's delay, for links and transfers that are added or changed from now on.")
      .def("change_link", &Fabric::ChangeLink, "source"_a, "target"_a, "link"_a, "now_ns"_a,
           "Change the way of messages that leave from now on, its delay or its loss.")
      .def("start_transfer", &Fabric::StartTransfer, "transfer"_a, "bytes"_a, "now_ns"_a,
           "Send bytes over a connection of their own; ends with \"transferred\". Returns its number.")
      .def("change_transfer", &Fabric::ChangeTransfer, "id"_a, "transfer"_a, "now_ns"_a)
      .def("cancel_transfer", &Fabric::CancelTransfer, "id"_a, "now_ns"_a,
           "Give a transfer up; return the bytes that have left.")
      .def("transfer_left", &Fabric::TransferLeft, "id"_a, "now_ns"_a,
           "Return the bytes of a transfer that have not left.")
      .def("transfer_rate", &Fabric::TransferRate, "id"_a, "Return a transfer's payload bytes/s.")
      .def("stretch", &Fabric::Stretch, "node"_a, "computing"_a, "work"_a,
           "Let a node's computing and its work on messages take multiples of their times.")
      .def("load", &Fabric::Load, "edge"_a, "Return the bytes/s on an edge.")
      .def("capacity", &Fabric::Capacity, "edge"_a, "now_ns"_a, "Return an edge's bandwidth in bytes/s.")
      .def("edges_queued", &Fabric::EdgesQueued, "now_ns"_a,
           "Return the bytes that senders hold for each edge, by id.")
      .def("flows",
           [](const Fabric& self, Time now) {
             nb::list out;
             for (const ActiveFlow& flow : self.Flows(now)) {
               out.append(nb::make_tuple(flow.transfer, flow.source, flow.target, flow.id,
                                         flow.reliable, flow.rate, flow.left));
             }
             return out;
           }, "now_ns"_a,
           "Return (whether a transfer, source, target, transfer, reliable, payload bytes/s, payload bytes\n"
           "left) of each message and transfer under way.")
      .def("edges_carried",
           [](const Fabric& self, Time now) {
             nb::list out;
             for (const Carried& bytes : self.EdgesCarried(now)) {
               out.append(nb::make_tuple(bytes.data, bytes.control));
             }
             return out;
           }, "now_ns"_a, nb::sig("def edges_carried(self, now_ns: int) -> list[tuple[float, float]]"),
           "Return the bytes that have been sent over each edge, by id: of training and transfers, and of\n"
           "control traffic.");
}
