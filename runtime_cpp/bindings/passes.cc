// A worker's passes over its layers, for a live worker in Python.
#include "bindings/passes.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>
#include <vector>

#include "core/pass_clock.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace geomx {
namespace {

using Arrivals = std::vector<std::tuple<Time, Key, Round>>;

Time Arrived(PassClock& self, const Arrivals& values, Time reply) {
  std::vector<PassClock::Arrival> arrivals;
  for (const auto& [at, key, round] : values) arrivals.push_back({at, key, round});
  return self.Arrived(std::move(arrivals), reply < 0 ? kNever : reply);
}

nb::list TakeSpans(PassClock& self) {
  static constexpr const char* kNames[] = {"forward", "backward", "wait"};
  nb::list out;
  for (const PassClock::Span& span : self.TakeSpans()) {
    nb::dict about;
    if (span.activity == WorkerLoop::Activity::kWait && span.key != WorkerLoop::kNoKey) {
      about["key"] = span.key;
      about["round"] = span.round;
    }
    out.append(nb::make_tuple(kNames[static_cast<int>(span.activity)], about, span.start, span.end));
  }
  return out;
}

}  // namespace
}  // namespace geomx

void init_passes(nb::module_& m) {
  using namespace geomx;

  nb::class_<Pace>(m, "Pace", "How long a worker's forward and backward passes take, by layer.")
      .def("__init__",
           [](Pace* self, std::vector<Time> forward, std::vector<Time> backward) {
             new (self) Pace{std::move(forward), std::move(backward)};
           }, "forward_ns"_a, "backward_ns"_a);

  nb::class_<PassClock>(m, "PassClock",
                        "The passes of a worker over its layers, on the clock of a nominal pace: the "
                        "rules by which\nsimulated workers wait and push, with arrivals that were "
                        "measured. Times are nanoseconds.\nAt time 0 all keys' initial values are "
                        "awaited.")
      .def("__init__",
           [](PassClock* self, std::vector<std::uint32_t> layer_of_key,
              std::shared_ptr<const Pace> pace) {
             const std::size_t count = pace->forward.size();
             auto layers = std::make_shared<const Layers>(count, std::move(layer_of_key));
             new (self) PassClock(std::move(layers), std::move(pace));
           }, "layer_of_key"_a, "pace"_a)
      .def("forward", &PassClock::Forward, "now_ns"_a,
           "Begin a forward pass; `arrived` carries it out.")
      .def("backward",
           [](PassClock& self, const std::string& push, bool last, bool reports, Time now) {
             return self.Backward({.push = PushNamed(push), .last = last, .reports = reports}, now);
           }, "push"_a, "last"_a, "reports"_a, "now_ns"_a,
           "Begin a backward pass and the wait for the next step: (key, ns) of all that it pushes,\n"
           "in that order. `arrived` carries it out.")
      .def("awaited", &PassClock::Awaited,
           "Keys whose values have to be there before the order is carried out.")
      .def("arrived", &Arrived, "values"_a, "reply_ns"_a = -1,
           "All that was awaited is there: (ns, key, round) of values, and when a reply came. Returns\n"
           "when the order was carried out.")
      .def_prop_ro("now_ns", &PassClock::now,
                   "How far the order has been carried out; behind `backward`, the end of the pass.")
      .def("take_spans", &TakeSpans,
           "(\"forward\", \"backward\" or \"wait\", about, start ns, end ns) since this was last asked;\n"
           "about is the key and the round that ended a wait.");
}
