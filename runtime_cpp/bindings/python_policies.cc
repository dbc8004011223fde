// Adapts party policies, coordinators and optimizers written in Python to the core's
// interfaces.
//
// They are called once per shard and round, or per report. Each node, or each shard, has a deep
// copy of the object that the hook returned.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "bindings/handles.h"
#include "bindings/python_call.h"
#include "core/coordinator.h"
#include "core/message.h"
#include "core/optimizers/family.h"
#include "core/overlay.h"
#include "core/policy.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace geomx {
namespace {

using Values = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// Copies a float32 vector, so that Python may keep it.
nb::object Copied(std::span<const float> values) {
  float* copy = new float[std::max<std::size_t>(values.size(), 1)];
  std::copy(values.begin(), values.end(), copy);
  nb::capsule owner(copy, [](void* data) noexcept { delete[] static_cast<float*>(data); });
  return nb::cast(nb::ndarray<nb::numpy, float, nb::ndim<1>>(copy, {values.size()}, owner));
}

// Copies Python's result to `out`; it must be float32, like the argument.
void Take(nb::handle answer, std::span<float> out) {
  if (answer.is_none()) throw std::invalid_argument("returned None, not float32 values");
  const nb::object numpy = nb::module_::import_("numpy");
  const nb::object array = numpy.attr("asarray")(answer);
  if (!numpy.attr("float32").equal(array.attr("dtype").attr("type"))) {
    throw std::invalid_argument("made values of " +
                                nb::cast<std::string>(array.attr("dtype").attr("name")) +
                                ", not float32");
  }
  const nb::object vector = numpy.attr("ascontiguousarray")(array, "float32").attr("ravel")();
  const auto values = nb::cast<Values>(vector.attr("copy")());
  if (values.size() != out.size()) {
    throw std::invalid_argument("made " + std::to_string(values.size()) + " values of " +
                                std::to_string(out.size()));
  }
  std::copy_n(values.data(), values.size(), out.begin());
}

nb::tuple Name(const ShardInfo& shard) { return nb::make_tuple(shard.key, shard.index); }

class PythonPolicy final : public PartyPolicy {
 public:
  PythonPolicy(nb::object policy, const std::string& label) : policy_(std::move(policy), label) {
    needs_initial_ = policy_.Has("initial");
    hears_answers_ = policy_.Has("answer");
    hears_members_ = policy_.Has("members");
    if (policy_.Has("makes_up")) makes_up_ = nb::cast<bool>(policy_.get().attr("makes_up"));
    counts_rounds_ = policy_.Has("party_rounds");
  }

  bool NeedsInitial() const override { return needs_initial_; }

  void Initial(const ShardInfo& shard, std::span<const float> value) override {
    if (!needs_initial_) return;
    sizes_only_ = value.empty();
    Guarded(policy_, "initial", "None",
            [&] { policy_.get().attr("initial")(Name(shard), Copied(value)); });
  }

  Action Complete(const PartyRound& round, std::span<float> sum) override {
    const char* wanted = "(whether it goes on to the global servers, values)";
    return Guarded(policy_, "complete", wanted, [&] {
      const nb::object answer = policy_.get().attr("complete")(Name(round.shard), round.round,
                                                               round.last, Copied(sum));
      if (!nb::isinstance<nb::tuple>(answer) || nb::len(answer) != 2) throw MustReturn(wanted, answer);
      const auto pair = nb::cast<nb::tuple>(answer);
      if (!nb::isinstance<nb::bool_>(pair[0])) throw MustReturn(wanted, answer);
      Take(pair[1], sum);
      return nb::cast<bool>(pair[0]) ? Action::kEscalate : Action::kReturn;
    });
  }

  void Update(const WorkerPush& push, std::span<float> value) override {
    Guarded(policy_, "update", "values", [&] {
      Take(policy_.get().attr("update")(Name(push.shard), push.worker, push.round, Copied(value)), value);
    });
  }

  std::optional<std::vector<float>> Send(const ShardInfo& shard, bool ends) override {
    const char* wanted = ends ? "values" : "values, or None";
    return Guarded(policy_, "send", wanted, [&]() -> std::optional<std::vector<float>> {
      const nb::object answer = policy_.get().attr("send")(Name(shard), ends);
      if (answer.is_none() && ends) throw std::bad_cast();
      if (answer.is_none()) return std::nullopt;
      std::vector<float> move(sizes_only_ ? 0 : shard.elements);
      Take(answer, move);
      return move;
    });
  }

  void Answer(const ShardInfo& shard, std::span<float> value) override {
    if (!hears_answers_) return;
    Guarded(policy_, "answer", "values", [&] {
      Take(policy_.get().attr("answer")(Name(shard), Copied(value)), value);
    });
  }

  bool MakesUp() const override { return makes_up_; }

  void OnMembers(std::uint32_t present, std::uint32_t all) override {
    if (!hears_members_) return;
    Guarded(policy_, "members", "None", [&] { policy_.get().attr("members")(present, all); });
  }

  Round PartyRounds(Round global) const override {
    if (!counts_rounds_) return global;
    return Guarded(policy_, "party_rounds", "a number of rounds", [&] {
      return nb::cast<Round>(policy_.get().attr("party_rounds")(global));
    });
  }

 private:
  PythonObject policy_;
  bool needs_initial_ = false, hears_answers_ = false, hears_members_ = false;
  bool makes_up_ = false, counts_rounds_ = false;
  bool sizes_only_ = false;  // by the initial value: arrays are empty
};

class PythonCoordinator final : public Coordinator {
 public:
  PythonCoordinator(nb::object coordinator, const std::string& label) : coordinator_(std::move(coordinator), label) {
    sleeps_ = coordinator_.Has("next_timeout");
    hears_members_ = coordinator_.Has("on_member");
    whose_ = label + ": " + nb::cast<std::string>(coordinator_.get().type().attr("__name__"));
  }

  std::string whose() const override { return whose_; }

  std::vector<Reply> OnReport(NodeId from, std::span<const double> values, Time now) override {
    return Guarded(coordinator_, "on_report", kReplies, [&] {
      const std::vector<double> numbers(values.begin(), values.end());
      return Replies(coordinator_.get().attr("on_report")(from, numbers, Seconds(now)));
    });
  }

  std::vector<Reply> OnMember(NodeId member, bool back, Time now) override {
    if (!hears_members_) return {};
    return Guarded(coordinator_, "on_member", kReplies, [&] {
      return Replies(coordinator_.get().attr("on_member")(member, back, Seconds(now)));
    });
  }

  std::vector<Reply> OnTimeout(Time now) override {
    if (!sleeps_) return {};
    return Guarded(coordinator_, "on_timeout", kReplies, [&] {
      at_once_ = now == timeout_ ? at_once_ + 1 : 1;
      timeout_ = now;
      if (at_once_ > kAtOnce) {
        throw std::invalid_argument("was called " + std::to_string(kAtOnce) + " times at " +
                                    nb::cast<std::string>(nb::str(nb::float_(Seconds(now)))) +
                                    " s of the run, as next_timeout returns no later time");
      }
      return Replies(coordinator_.get().attr("on_timeout")(Seconds(now)));
    });
  }

  Time NextTimeout() const override {
    if (!sleeps_) return kNever;
    return Guarded(coordinator_, "next_timeout", "seconds, or None", [&] {
      const nb::object answer = coordinator_.get().attr("next_timeout")();
      if (answer.is_none()) return kNever;
      const double seconds = nb::cast<double>(answer);
      if (std::isnan(seconds)) throw std::bad_cast();
      return seconds < kLongest ? NotBefore(seconds) : kNever;
    });
  }

 private:
  static constexpr const char* kReplies = "a list of (node id, list of numbers)";
  static constexpr double kLongest = 1e9;    // seconds; what comes later is never
  static constexpr int kAtOnce = 10'000;     // calls of on_timeout at one time

  static double Seconds(Time time) { return static_cast<double>(time) / kSecond; }

  // The first nanosecond that is not before `seconds`, also when converted back to a double:
  // otherwise a coordinator that compares the time of on_timeout with the one that it has requested
  // might request the same time again, and virtual time would not advance.
  static Time NotBefore(double seconds) {
    Time time = Nanoseconds(seconds);
    for (int tries = 0; tries < 256 && Seconds(time) < seconds; ++tries) ++time;
    return time;
  }

  static std::vector<Reply> Replies(const nb::object& answer) {
    std::vector<Reply> replies;
    for (nb::handle item : ItemsOf(answer, kReplies)) {
      const nb::tuple pair = ItemsOf(item, kReplies, 2);
      try {
        replies.push_back({nb::cast<NodeId>(pair[0]), nb::cast<std::vector<double>>(pair[1])});
      } catch (const std::bad_cast&) {
        throw MustReturn(kReplies, item);
      }
    }
    return replies;
  }

  PythonObject coordinator_;
  bool sleeps_ = false, hears_members_ = false;
  Time timeout_ = -1;  // of the latest on_timeout
  int at_once_ = 0;    // calls at that time
  std::string whose_;
};

class PythonOptimizer final : public ElementWise {
 public:
  PythonOptimizer(nb::object optimizer, const std::string& label, const OptimizerSpec& spec, Key key)
      : ElementWise(spec, key), optimizer_(std::move(optimizer), label) {}

  bool OnDevices() const override { return false; }

 protected:
  void Apply(const kernels::DeviceContext&, float* weights, const float* gradient, std::uint64_t n,
             const Step& step) override {
    const std::span<float> weight(weights, n);
    std::vector<float> scaled(n);
    for (std::size_t i = 0; i < scaled.size(); ++i) {
      scaled[i] = std::clamp(gradient[i] * step.rescale, -step.clip, step.clip) + step.wd * weight[i];
    }
    Guarded(optimizer_, "update", "new weights", [&] {
      Take(optimizer_.get().attr("update")(Copied(weight), Copied(scaled), step.rate), weight);
    });
  }

  // One vector, in the format of the object; nothing for an object without attributes.
  void ExchangeOwn(OptimizerArchive& archive) override {
    std::vector<float> values;
    if (!archive.loading()) values = Saved();
    archive.Vector("saved", values);
    if (!archive.loading() || (values.empty() && IsBare())) return;
    CheckMethod("load");
    Guarded(optimizer_, "load", "None", [&] { optimizer_.get().attr("load")(Copied(values)); });
  }

 private:
  std::vector<float> Saved() {
    if (IsBare()) return {};
    CheckMethod("save");
    return Guarded(optimizer_, "save", "a float32 vector", [&] {
      const nb::object saved = optimizer_.get().attr("save")();
      std::vector<float> values(nb::len(saved));
      Take(saved, values);
      return values;
    });
  }
  bool IsBare() {
    nb::gil_scoped_acquire lock;
    const nb::object own = nb::getattr(optimizer_.get(), "__dict__", nb::dict());
    return nb::len(own) == 0 && !nb::hasattr(optimizer_.get(), "save");
  }
  void CheckMethod(const char* method) {
    nb::gil_scoped_acquire lock;
    if (nb::hasattr(optimizer_.get(), method)) return;
    throw StateError(optimizer_.label() + ": its optimizer keeps state and cannot tell it: give it the methods "
                     "save and load (geomx.plugin.Optimizer)");
  }

  PythonObject optimizer_;
};

class PythonOptimizers final : public OptimizerFactory {
 public:
  PythonOptimizers(nb::object prototype, const std::string& label)
      : prototype_(std::move(prototype), label) {}

  std::unique_ptr<Optimizer> Make(const OptimizerSpec& spec, Key key) const override {
    return Guarded(prototype_, "__deepcopy__", "a copy", [&]() -> std::unique_ptr<Optimizer> {
      return std::make_unique<PythonOptimizer>(prototype_.Copy(), prototype_.label(), spec, key);
    });
  }

 private:
  PythonObject prototype_;
};

nb::object Copied(const nb::object& prototype) {
  return nb::module_::import_("copy").attr("deepcopy")(prototype);
}

}  // namespace
}  // namespace geomx

void init_python_policies(nb::module_& m) {
  using namespace geomx;

  m.def("python_policy", [](nb::object prototype, const std::string& label) {
    return PolicyHandle{std::make_shared<PythonPolicy>(Copied(prototype), label)};
  }, "prototype"_a, "label"_a = "", "Return a handle of a party policy in Python (geomx.plugin.PartySync or PartyModel).");
  m.def("python_coordinator", [](nb::object prototype, double seed, const std::string& label) {
    nb::object coordinator = Copied(prototype);
    coordinator.attr("seed") = nb::int_(static_cast<std::int64_t>(seed));
    return CoordinatorHandle{std::make_shared<PythonCoordinator>(std::move(coordinator), label)};
  }, "prototype"_a, "seed"_a, "label"_a = "",
     "Return a handle of a coordinator in Python (geomx.plugin.Coordinator), with its seed.");
  m.def("python_optimizer",
        [](std::string name, nb::object prototype, const std::string& label) {
          return OptimizerHandle{std::move(name),
                                 std::make_shared<PythonOptimizers>(prototype, label)};
        }, "name"_a, "prototype"_a, "label"_a = "",
        "Return a handle of an optimizer in Python (geomx.plugin.Optimizer), with the name by which "
        "instructions select it.");

  m.def("read_overlay_report", [](const std::vector<double>& numbers) {
    const auto report = OverlayReport::Unpack(numbers);
    if (!report) throw nb::value_error("not an overlay's report");
    static constexpr const char* kWhat[] = {"ready", "merged", "origin", "has"};
    return nb::make_tuple(kWhat[static_cast<std::size_t>(report->what)], report->root, report->key,
                          report->shard, report->round, report->priority, report->from,
                          report->bytes, report->members);
  }, "numbers"_a, "Read a member's report; return the fields of geomx.plugin.OverlayReport.");
  m.def("overlay_order",
        [](const std::string& direction, NodeId root, Key key, std::uint32_t shard, Round round,
           NodeId target) {
          const OverlayOrder order{direction == "push" ? Direction::kPush : Direction::kPull, root,
                                   key, shard, round, target};
          return order.Pack();
        }, "direction"_a, "root"_a, "key"_a, "shard"_a, "round"_a, "target"_a,
        "Return an order to send the contribution (push) or the value (pull) to `target`, as numbers.");
}
