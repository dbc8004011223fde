// A worker's passes over its layers, for a live worker in Python.
#include "bindings/passes.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
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

using ArrivedValues = std::vector<std::tuple<Time, Key, Round>>;

Time Arrived(PassClock& self, const ArrivedValues& values, Time reply) {
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

  nb::class_<Pace>(m, "Pace", "The durations of a worker's forward and backward passes, by layer.")
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
      .def("forward", &PassClock::Forward, "now_ns"_a, "needs"_a = std::vector<Key>(),
           "Begin a forward pass, which waits for the answers to `needs` too; `arrived` completes it.")
      .def("backward",
           [](PassClock& self, const std::string& push, bool last, bool reports, Time now,
              std::optional<KeyLists> part) {
             return self.Backward({.push = PushNamed(push), .last = last, .reports = reports,
                                   .part = PartOf(std::move(part))}, now);
           }, "push"_a, "last"_a, "reports"_a, "now_ns"_a, "part"_a.none() = nb::none(),
           "Begin a backward pass and the wait for the next step; return (key, ns) of its pushes, in\n"
           "order. `arrived` completes it. part: (pushed keys, keys whose answers the next step needs);\n"
           "None: all, and these.")
      .def("stretch", &PassClock::Stretch, "times"_a,
           "From the next layer on, computing takes `times` as long as the pace says.")
      .def("slow", &PassClock::Slow, "start_ns"_a, "end_ns"_a, "times"_a,
           "Computing that begins then takes `times` as long as that; several such events multiply. They\n"
           "are told before the pass in which they are.")
      .def("times", &PassClock::Times, "at_ns"_a,
           "Return how many times as long as the pace says a layer takes that begins then.")
      .def("pause", &PassClock::Pause, "start_ns"_a, "end_ns"_a,
           "The process is stopped then, and its computation continues afterwards. Pauses are told in\n"
           "order, each before the pass in which it is.")
      .def("awaited", &PassClock::Awaited,
           "Return the keys whose values are needed to complete the pass.")
      .def("arrived", &Arrived, "values"_a, "reply_ns"_a = -1,
           "Complete the pass, given (ns, key, round) of all awaited values, and the time of a reply.\n"
           "Returns the time at which the pass was complete.")
      .def_prop_ro("now_ns", &PassClock::now,
                   "The time up to which the pass is complete; after `backward`, the end of the pass.")
      .def("take_spans", &TakeSpans,
           "(\"forward\", \"backward\" or \"wait\", about, start ns, end ns) since this was last asked;\n"
           "about is the key and the round that ended a wait.");
}
