// Python's view of the protocol: a node's configuration, the native parts, the optimizers.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/handles.h"
#include "bindings/shards.h"
#include "core/natives.h"
#include "core/node.h"
#include "core/worker.h"
#include "core/optimizer.h"
#include "io/tls.h"
#include "kernels/level.h"
#include "kernels/queue.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace geomx {
namespace {

using FloatArray = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using ConstFloatArray = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

Role RoleOf(const std::string& name) {
  if (name == "worker") return Role::kWorker;
  if (name == "server") return Role::kServer;
  if (name == "global_server") return Role::kGlobalServer;
  if (name == "scheduler") return Role::kScheduler;
  if (name == "standby") return Role::kStandby;
  throw nb::value_error(("no role " + name).c_str());
}

Direction DirectionOf(const std::string& name) {
  if (name == "push") return Direction::kPush;
  if (name == "pull") return Direction::kPull;
  throw nb::value_error(("no direction " + name).c_str());
}

void AddLink(NodeConfig& config, NodeId peer, const std::string& direction,
             const std::vector<CodecHandle>& codecs, const std::vector<SlicerHandle>& slicers,
             double grace_s) {
  LinkPlan link;
  for (const CodecHandle& codec : codecs) link.codecs.push_back(codec.factory);
  for (const SlicerHandle& slicer : slicers) link.slicers.push_back(slicer.factory);
  link.grace = Nanoseconds(grace_s);
  config.links[{peer, DirectionOf(direction)}] = std::move(link);
}

class PyOptimizer {
 public:
  PyOptimizer(const std::string& text, Key key, const std::vector<OptimizerHandle>& plugins) {
    OptimizerFactories factories;
    for (const OptimizerHandle& plugin : plugins) factories[plugin.name] = plugin.factory;
    optimizer_ = Optimizer::Make(OptimizerSpec::Parse(text, factories), key);
  }

  void Update(FloatArray weight, ConstFloatArray gradient, std::uint32_t merge_count,
              NodeId source) {
    if (weight.size() != gradient.size()) throw nb::value_error("weight and gradient differ in size");
    nb::gil_scoped_release release;
    optimizer_->Update({weight.data(), weight.size()}, {gradient.data(), gradient.size()},
                       {.merge_count = merge_count, .source = source});
  }

  nb::bytes Save() {
    const std::vector<std::byte> saved = optimizer_->Save();
    return nb::bytes(reinterpret_cast<const char*>(saved.data()), saved.size());
  }

  void Load(const nb::bytes& saved, std::uint64_t elements) {
    optimizer_->Load(std::as_bytes(std::span(saved.c_str(), saved.size())), elements);
  }

  bool ScaleFree() const { return optimizer_->ScaleFree(); }

 private:
  std::unique_ptr<Optimizer> optimizer_;
};

}  // namespace
}  // namespace geomx

void init_core(nb::module_& m) {
  using namespace geomx;

  m.attr("HEADER_BYTES") = kHeaderBytes;
  m.attr("MAX_SHARD_ELEMENTS") = kMaxShardElements;
  m.attr("WIRE_VERSION") = kWireVersion;

  m.def("build_info", [] {
    return std::map<std::string, std::string>{
        {"compiler", __VERSION__},
#ifdef NDEBUG
        {"build", "release"},
#else
        {"build", "debug"},
#endif
        {"vectors", kernels::Name(kernels::Current())},
        {"gpu", kernels::CudaBuild()},
        {"tls", io::TlsBuild()},
        {"wire version", std::to_string(kWireVersion)}};
  }, "Return the options of this module's build, and the vector instructions in use.");

  nb::class_<CodecHandle>(m, "Codec", "A handle of a codec.");
  nb::class_<SlicerHandle>(m, "Slicer", "A handle of a slicer.");
  nb::class_<CoordinatorHandle>(m, "Coordinator", "A handle of a coordinator.");
  nb::class_<OptimizerHandle>(m, "OptimizerFactory", "A handle of a plugin's optimizer.");
  nb::class_<RoundsHandle>(m, "RoundPolicy", "A handle of the part of a sync policy that closes a server's rounds.");
  nb::class_<PolicyHandle>(m, "PartyPolicy", "A handle of a local server's part of a sync policy.");

  m.def("native_codec", [](const std::string& name, const Options& options) {
    return CodecHandle{NativeCodecs::Instance().Create(name, options)};
  }, "name"_a, "options"_a, "Return the compiled codec `name`; ValueError if there is none.");
  m.def("codec_by_size",
        [](std::uint64_t bound, const std::vector<CodecHandle>& small,
           const std::vector<CodecHandle>& large) {
          const auto factories = [](const std::vector<CodecHandle>& codecs) {
            CodecChain::Factories list;
            for (const CodecHandle& codec : codecs) list.push_back(codec.factory);
            return list;
          };
          return CodecHandle{
              std::make_shared<BySizeFactory>(bound, factories(small), factories(large))};
        },
        "bound"_a, "small"_a, "large"_a,
        "Return a codec that uses chain `large` for shards of at least `bound` elements, else `small`.");
  m.def("native_slicer", [](const std::string& name, const Options& options) {
    return SlicerHandle{NativeSlicers::Instance().Create(name, options)};
  }, "name"_a, "options"_a, "Return the compiled slicer `name`; ValueError if there is none.");
  m.def("native_policy", [](const std::string& name, const Options& options) {
    return PolicyHandle{NativePolicies::Instance().Create(name, options)};
  }, "name"_a, "options"_a, "Return the compiled party policy `name`; ValueError if there is none.");
  m.def("native_rounds", [](const std::string& name, const Options& options) {
    return RoundsHandle{NativeRounds::Instance().Create(name, options)};
  }, "name"_a, "options"_a, "Return the compiled round policy `name`; ValueError if there is none.");
  m.def("quorum_rounds", [](std::uint32_t parties, double deadline_s) {
    return RoundsHandle{std::make_shared<QuorumRounds>(parties, Nanoseconds(deadline_s))};
  }, "parties"_a, "deadline_s"_a,
     "Return a round policy that closes a round that long after so many parties have contributed.");
  m.def("natives", [] {
    return std::map<std::string, std::vector<std::string>>{
        {"codec", NativeCodecs::Instance().Names()},
        {"slicer", NativeSlicers::Instance().Names()},
        {"policy", NativePolicies::Instance().Names()},
        {"rounds", NativeRounds::Instance().Names()},
        {"coordinator", NativeCoordinators::Instance().Names()}};
  }, "Return the names of the compiled parts, by kind.");

  nb::class_<NodeConfig>(m, "NodeConfig", "The configuration of a node; see core/node_config.h.")
      .def("__init__", [](NodeConfig* self, NodeId id, std::string name, const std::string& role) {
        new (self) NodeConfig{};
        self->id = id;
        self->name = std::move(name);
        self->role = RoleOf(role);
      }, "id"_a, "name"_a, "role"_a)
      .def("add_peer", [](NodeConfig& self, NodeId id, std::string name, const std::string& role) {
        self.peers.push_back({id, std::move(name), RoleOf(role)});
      }, "id"_a, "name"_a, "role"_a)
      .def("add_link", &AddLink, "peer"_a, "direction"_a, "codecs"_a, "slicers"_a, "grace_s"_a = 0.0)
      .def("set_policy", [](NodeConfig& self, const PolicyHandle& policy) {
        self.policy = policy.policy;
      }, "policy"_a)
      .def("add_coordinator",
           [](NodeConfig& self, std::uint32_t number, const std::string& name,
              const Options& options) {
             self.coordinators[number] = NativeCoordinators::Instance().Create(name, options);
           }, "number"_a, "name"_a, "options"_a)
      .def("add_coordinator", [](NodeConfig& self, std::uint32_t number, const CoordinatorHandle& coordinator) {
        self.coordinators[number] = coordinator.coordinator;
      }, "number"_a, "coordinator"_a)
      .def_rw("coordinated", &NodeConfig::coordinated)
      .def("add_optimizer", [](NodeConfig& self, const OptimizerHandle& optimizer) {
        self.optimizers[optimizer.name] = optimizer.factory;
      }, "optimizer"_a, "Add a plugin's optimizer, which instructions may name.")
      .def("add_group",
           [](NodeConfig& self, NodeId root, std::vector<NodeId> members, NodeId host,
              std::uint32_t number, bool push, bool pull, bool ahead, std::string label) {
             self.groups.push_back(
                 {root, std::move(members), host, number, push, pull, ahead, std::move(label)});
           }, "root"_a, "members"_a, "host"_a, "number"_a, "push"_a, "pull"_a, "ahead"_a = false,
           "label"_a = "",
           "Add an overlay of which this node is the root or a member; see core/overlay_group.h. `label`\n"
           "is used in errors.")
      .def("set_rounds",
           [](NodeConfig& self, bool together, std::optional<std::uint32_t> staleness_bound,
              bool update_at_party, std::uint32_t steps_of, bool workers_together, bool moves) {
             self.rounds.together = together;
             self.rounds.workers_together = workers_together;
             self.rounds.staleness_bound = staleness_bound.value_or(UINT32_MAX);
             self.rounds.update_at_party = update_at_party;
             self.rounds.step_first = steps_of > 0 && !moves;
             self.rounds.moves = steps_of > 0 && moves;
             self.rounds.workers = steps_of;
           }, "together"_a, "staleness_bound"_a.none(), "update_at_party"_a, "steps_of"_a = 0,
           "workers_together"_a = true, "moves"_a = false,
           "Set how rounds complete. `steps_of`: all workers, if parties exchange steps of the\n"
           "optimizer, or `moves` of parameters, and keep what is not sent; 0: they do not.")
      .def("set_round_policy", [](NodeConfig& self, const RoundsHandle& policy) {
        self.round_policy = policy.policy;
      }, "policy"_a, "On a server: set when its rounds close, if `early_rounds`.")
      .def_rw("parameter_scales", &NodeConfig::parameter_scales,
              "On a local server with a round policy: the factors of workers that push parameters, by id.")
      .def_prop_rw("early_rounds", [](const NodeConfig& self) { return self.rounds.early; },
                   [](NodeConfig& self, bool early) { self.rounds.early = early; },
                   "Whether rounds of some servers may close without members that are late.")
      .def_rw("parents", &NodeConfig::parents)
      .def_rw("children", &NodeConfig::children)
      .def_rw("master", &NodeConfig::master)
      .def_rw("open", &NodeConfig::open)
      .def_rw("standby", &NodeConfig::standby, nb::arg().none(), "On a global server: the node that stands by it.")
      .def_rw("standbys", &NodeConfig::standbys, "On the scheduler: (global server, its standby).")
      .def("set_tree", [](NodeConfig& self, std::vector<std::pair<NodeId, NodeId>> tree) {
        std::sort(tree.begin(), tree.end());
        self.tree = std::move(tree);
      }, "tree"_a, "On the scheduler: (parent, child) of all that are connected in the tree.")
      .def("declare", [](NodeConfig& self, const std::vector<ShardTuples>& tensors) {
        std::vector<std::vector<ShardInfo>> shards;
        for (const ShardTuples& tensor : tensors) shards.push_back(Shards(tensor));
        self.declared = std::make_shared<const Declaration>(std::move(shards));
      }, "tensors"_a, "The shards of the experiment's tensors: no other is taken.")
      .def_rw("scheduler", &NodeConfig::scheduler)
      .def_rw("quorum", &NodeConfig::quorum)
      .def_rw("stands_for", &NodeConfig::stands_for)
      .def_rw("frame_bytes", &NodeConfig::frame_bytes)
      .def_rw("most_early_bytes", &NodeConfig::most_early_bytes,
              "The most bytes of messages that are kept because they cannot be used yet.")
      .def_rw("bundle", &NodeConfig::bundle)
      .def_rw("borrow_values", &NodeConfig::borrow_values)
      .def_rw("phantom", &NodeConfig::phantom)
      .def_rw("continues", &NodeConfig::continues)
      .def_rw("absent", &NodeConfig::absent)
      .def_rw("experiment", &NodeConfig::experiment)
      .def_ro("id", &NodeConfig::id)
      .def_ro("name", &NodeConfig::name)
      .def("set_device", [](NodeConfig& self, const std::string& device) {
        self.device = std::make_shared<kernels::Device>(
            [&] { return kernels::OpenQueue(device); }, kernels::Device::kLeastElements);
      }, "device"_a, "Set the device on which a server updates and encodes; ValueError if it does not exist.")
      .def("set_non_finite", [](NodeConfig& self, const std::string& name) {
        self.non_finite = name == "refuse" ? NonFinite::kRefuse
                          : name == "warn" ? NonFinite::kWarn
                                           : NonFinite::kIgnore;
      }, "rule"_a, "Set the treatment of pushes that contain NaN or infinity: warn, refuse or ignore.")
      .def("set_heartbeat", [](NodeConfig& self, double interval_s, double timeout_s) {
        self.heartbeat_interval = Nanoseconds(interval_s);
        self.failure_timeout = Nanoseconds(timeout_s);
      }, "interval_s"_a, "timeout_s"_a)
      .def("party_rounds",
           [](const NodeConfig& self, Round rounds) {
             return self.policy ? self.policy->PartyRounds(rounds) : rounds;
           },
           "rounds"_a, "On a local server: the rounds of its party that lead to so many global ones.")
      .def("set_recovery", [](NodeConfig& self, double patience_s, double redial_s) {
        self.patience = Nanoseconds(patience_s);
        self.redial = Nanoseconds(redial_s);
      }, "patience_s"_a, "redial_s"_a,
         "Set the patience with silent peers (0: none), and the longest pause between reconnections.");

  m.def("non_finite_text", &NonFiniteText, "worker"_a, "key"_a, "round"_a, "what"_a, "refused"_a,
        "Return the message about a push that contains NaN or infinity.");

  nb::class_<PyOptimizer>(m, "Optimizer",
      "The optimizer of one tensor. `text` is its name, then one 'option value' per line; it may name\n"
      "an optimizer of the core or of `plugins`.")
      .def(nb::init<const std::string&, Key, const std::vector<OptimizerHandle>&>(), "text"_a,
           "key"_a, "plugins"_a = std::vector<OptimizerHandle>())
      .def("update", &PyOptimizer::Update, "weight"_a, "gradient"_a, "merge_count"_a = 1,
           "source"_a = 0,
           "Update `weight` in place; both are float32 vectors of equal length. The gradient is the sum\n"
           "of `merge_count` workers, pushed by node `source`.")
      .def_prop_ro("scale_free", &PyOptimizer::ScaleFree,
                   "Whether the length of a step does not depend on the scale of the gradients.")
      .def("save", &PyOptimizer::Save,
           "Return the state on which later updates depend, besides options and weights.")
      .def("load", &PyOptimizer::Load, "saved"_a, "elements"_a,
           "Load a state that `save` returned of an optimizer of the same name, for a tensor of so many\n"
           "elements. RuntimeError if it is invalid; the object must not be used after that.");
  m.def("optimizers", &Optimizer::Names);
}
