// Adapts round policies written in Python (geomx.plugin.RoundPolicy) to the core's interface.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "bindings/handles.h"
#include "bindings/python_call.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace geomx {
namespace {

class PythonRounds final : public RoundPolicy {
 public:
  PythonRounds(nb::object policy, const std::string& label) : policy_(std::move(policy), label) {
    drops_ = policy_.Has("takes");
    weighs_ = policy_.Has("weigh");
    if (policy_.Has("relative")) relative_ = nb::cast<bool>(policy_.get().attr("relative"));
  }

  Time ClosesAt(const EarlyRound& round, Time before, Time now) override {
    return Guarded(policy_, "closes_at", "seconds, or None", [&] {
      const nb::object before_s = before == kNever ? nb::none() : nb::object(nb::float_(Seconds(before)));
      const nb::object answer = policy_.get().attr("closes_at")(Name(round.shard), List(round.contributions),
                                                                Ids(round.awaited), before_s, Seconds(now));
      if (answer.is_none()) return kNever;
      const double seconds = nb::cast<double>(answer);
      if (std::isnan(seconds)) throw std::bad_cast();
      // What was answered before stays the same time, whose seconds may be rounded.
      return before != kNever && seconds == Seconds(before) ? before : Nanoseconds(seconds);
    });
  }

  bool Relative() const override { return relative_; }

  bool Takes(const ShardInfo& shard, const Contribution& late) override {
    if (!drops_) return true;
    return Guarded(policy_, "takes", "True or False", [&] {
      return nb::cast<bool>(policy_.get().attr("takes")(Name(shard), One(late)));
    });
  }

  void Weigh(const EarlyRound& round, std::span<double> weights) override {
    if (!weighs_) return;
    Guarded(policy_, "weigh", "a weight for each contribution", [&] {
      const nb::object answer = policy_.get().attr("weigh")(Name(round.shard), List(round.contributions), round.workers);
      const auto made = nb::cast<std::vector<double>>(answer);
      if (made.size() != weights.size()) {
        throw std::invalid_argument("gave " + std::to_string(made.size()) + " weights for " +
                                    std::to_string(weights.size()) + " contributions");
      }
      const bool numbers = std::all_of(made.begin(), made.end(), [](double each) { return each >= 0 && std::isfinite(each); });
      const bool some = !relative_ || std::any_of(made.begin(), made.end(), [](double each) { return each > 0; });
      if (!numbers || !some) throw std::invalid_argument("gave weights that are negative or no numbers, or all 0");
      std::copy(made.begin(), made.end(), weights.begin());
    });
  }

 private:
  static double Seconds(Time time) { return static_cast<double>(time) / kSecond; }
  static std::vector<NodeId> Ids(std::span<const NodeId> ids) { return {ids.begin(), ids.end()}; }
  static nb::tuple Name(const ShardInfo& shard) { return nb::make_tuple(shard.key, shard.index); }
  static nb::object One(const Contribution& each) {
    return nb::module_::import_("geomx.plugin.rounds").attr("Contribution")(each.source, each.meant, each.age, each.workers,
                                                                           each.steps);
  }
  static nb::list List(std::span<const Contribution> contributions) {
    nb::list list;
    for (const Contribution& each : contributions) list.append(One(each));
    return list;
  }

  PythonObject policy_;
  bool drops_ = false, weighs_ = false, relative_ = true;
};

}  // namespace
}  // namespace geomx

void init_python_rounds(nb::module_& m) {
  using namespace geomx;
  m.def("python_rounds", [](nb::object prototype, const std::string& label) {
    nb::object copy = nb::module_::import_("copy").attr("deepcopy")(prototype);
    return RoundsHandle{std::make_shared<PythonRounds>(std::move(copy), label)};
  }, "prototype"_a, "label"_a = "", "Return a handle of a round policy in Python (geomx.plugin.RoundPolicy).");
}
