// The verbs of one simulated worker for a training script, which runs in a process of its own and
// pushes what it has computed whenever it has computed it (sim/scripts).
//
// Workers of experiments do without: the fabric runs their training loop (fabric/trainer.h). Values
// are copied, because the memory that they come from belongs to a message of the script's process;
// once, also where several workers push them.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <stdexcept>

#include "bindings/shards.h"
#include "core/optimizer_states.h"
#include "core/replica.h"
#include "core/worker.h"
#include "fabric/fabric.h"
#include "kernels/sums.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace geomx {
namespace {

using Input = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Output = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// Values that one worker or several may push.
class PushedValues {
 public:
  explicit PushedValues(const Input& array)
      : values_(std::make_shared<const Buffer>(array.data(), array.data() + array.size())),
        finite_(kernels::AllFinite(array.data(), array.size())) {}

  // The values for a tensor of `elements`; throws std::invalid_argument if it has another number.
  const std::shared_ptr<const Buffer>& Of(Key key, std::uint64_t elements) const {
    if (values_->size() != elements) {
      throw std::invalid_argument("key " + std::to_string(key) + " has " +
                                  std::to_string(elements) + " elements, not " +
                                  std::to_string(values_->size()));
    }
    return values_;
  }

  bool finite() const { return finite_; }

 private:
  std::shared_ptr<const Buffer> values_;
  bool finite_;
};

class FabricWorker {
 public:
  FabricWorker(Fabric& fabric, NodeId id) : fabric_(fabric), id_(id) { worker(); }

  void Declare(Key key, std::uint64_t elements, const ShardTuples& tuples, const std::string& name) {
    const std::uint32_t digest = name.empty() ? 0 : NameDigest(name);
    worker().Declare(key, elements, Worker::Cut(key, elements, Shards(tuples), digest));
  }
  void Init(Key key, const Input& array, Time now) {
    const auto value = PushedValues(array).Of(key, worker().Elements(key));
    worker().Init(key, value->data(), value, now);
    fabric_.Touch(id_, now);
  }
  void Request(Key key, Time now) {
    worker().Request(key, now);
    fabric_.Touch(id_, now);
  }
  Round Push(Key key, const PushedValues& values, float loss, bool last, bool absent, Time now) {
    const auto& value = values.Of(key, worker().Elements(key));
    const Round round = worker().Submit(key,
                                        {.value = value->data(),
                                         .owner = value,
                                         .loss = loss,
                                         .last = last,
                                         .finite = values.finite(),
                                         .absent = absent},
                                        now);
    fabric_.Touch(id_, now, key, round);
    return round;
  }
  void Barrier(Time now) {
    worker().Barrier(now);
    fabric_.Touch(id_, now);
  }
  void Report(NodeId host, std::uint32_t number, const std::vector<double>& values, Time now) {
    fabric_.node(id_).Report(host, number, values);
    fabric_.Touch(id_, now);
  }
  void RunOptimizer(const std::string& optimizer, bool unless_given, Time now) {
    Command(Instruction(optimizer), unless_given, now);
  }
  void ExpectOptimizer(Time now) { Command("", false, now); }
  void AskStates(Time now) { Command(kAskVerb, false, now); }
  void LoadState(Key key, std::uint32_t shard, const nb::bytes& saved, Time now) {
    const std::string bytes(saved.c_str(), saved.size());
    for (const std::string& text : WriteParts(kLoadVerb, {key, shard}, bytes)) {
      Command(text, false, now);
    }
  }
  void Value(Key key, const Output& out) {
    const std::span<const float> value = worker().Value(key);
    if (value.size() != out.size()) {
      throw std::invalid_argument("key " + std::to_string(key) + " has " +
                                  std::to_string(value.size()) + " values, not " +
                                  std::to_string(out.size()));
    }
    std::memcpy(out.data(), value.data(), value.size_bytes());
  }
  Worker& worker() { return fabric_.node(id_).worker(); }

 private:
  void Command(const std::string& text, bool unless_given, Time now) {
    worker().Command(text, now, unless_given);
    fabric_.Touch(id_, now);
  }
  Fabric& fabric_;
  NodeId id_;
};

std::tuple<Key, std::uint32_t, std::uint32_t, std::uint32_t, nb::bytes> StatePart(
    const nb::bytes& text) {
  const std::string whole(text.c_str(), text.size());
  const auto part = ReadPart(whole);
  if (!part) throw std::runtime_error("a malformed state of an optimizer");
  return {part->shard.first, part->shard.second, part->part, part->parts,
          nb::bytes(part->bytes.data(), part->bytes.size())};
}

}  // namespace
}  // namespace geomx

void init_fabric_worker(nb::module_& m) {
  using namespace geomx;

  nb::class_<PushedValues>(m, "PushedValues",
      "A copy of float32 values, which several workers may push.")
      .def(nb::init<const Input&>(), "array"_a.noconvert());

  nb::class_<FabricWorker>(m, "FabricWorker",
      "The verbs of a simulated worker, called at their virtual times. What they lead to are notices of\n"
      "the fabric: value, reply, released, state.")
      .def(nb::init<Fabric&, NodeId>(), "fabric"_a, "node"_a, nb::keep_alive<1, 2>())
      .def("declare", &FabricWorker::Declare, "key"_a, "elements"_a, "shards"_a, "name"_a = "",
           "Declare a tensor and its shards: (offset, elements, global server, priority). All workers must "
           "call it `name`, unless that is empty.")
      .def("init", &FabricWorker::Init, "key"_a, "array"_a.noconvert(), "now_ns"_a,
           "Set the initial value of a tensor for all nodes.")
      .def("request", &FabricWorker::Request, "key"_a, "now_ns"_a,
           "Request the current value, which completes its round.")
      .def("push", &FabricWorker::Push, "key"_a, "values"_a, "loss"_a, "last"_a, "absent"_a, "now_ns"_a,
           "Contribute to the next round; return the round. See Loop.push.")
      .def("barrier", &FabricWorker::Barrier, "now_ns"_a, "Come to the next barrier.")
      .def("run_optimizer", &FabricWorker::RunOptimizer, "optimizer"_a, "unless_given"_a, "now_ns"_a,
           "Have all global servers run an optimizer. See Loop.run_optimizer.")
      .def("expect_optimizer", &FabricWorker::ExpectOptimizer, "now_ns"_a, "See Loop.expect_optimizer.")
      .def("report", &FabricWorker::Report, "host"_a, "number"_a, "values"_a, "now_ns"_a,
           "Send numbers to the coordinator `number` on node `host`, after all earlier pushes.")
      .def("ask_states", &FabricWorker::AskStates, "now_ns"_a,
           "Ask all global servers for the state of their optimizers.")
      .def("load_state", &FabricWorker::LoadState, "key"_a, "shard"_a, "saved"_a, "now_ns"_a,
           "Have the optimizer of a shard continue from a state, before later pushes.")
      .def("value", &FabricWorker::Value, "key"_a, "out"_a.noconvert(),
           "Copy the last complete value into a float32 array.")
      .def("absent", [](FabricWorker& self, Key key) { return self.worker().Absent(key); }, "key"_a,
           "Return whether no worker contributed to the last complete value.")
      .def("reached", [](FabricWorker& self, Key key) { return self.worker().Reached(key); }, "key"_a,
           "Return the rounds that other parties have completed by the last complete value.")
      .def("round", [](FabricWorker& self, Key key) { return self.worker().ValueRound(key); }, "key"_a,
           "Return the round of the last complete value; 0 before the first push.");

  m.def("state_part", &StatePart, "text"_a,
        "Read the text of a notice of kind state: (key, shard, part, parts, bytes).");
}
