// Python's view of a script's local steps: the rule (core/local_steps.h), and a loop's record.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <tuple>
#include <vector>

#include "core/local_steps.h"
#include "io/loop.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace geomx {
namespace {

using Bounds = std::optional<std::tuple<std::uint32_t, Time, Time>>;

Bounds BoundsOf(const std::optional<LocalStep>& step) {
  if (!step) return std::nullopt;
  return std::tuple(step->number, step->start, step->end);
}

std::vector<std::tuple<std::uint32_t, Time, Time, Time>> TakeSteps(io::Loop& loop) {
  std::vector<std::tuple<std::uint32_t, Time, Time, Time>> steps;
  for (const io::RecordedStep& step : loop.steps().Take()) {
    steps.emplace_back(step.number, step.start, step.computed, step.end);
  }
  return steps;
}

}  // namespace
}  // namespace geomx

void BindSteps(nb::module_& m, nb::class_<geomx::io::Loop>& loop) {
  using namespace geomx;

  nb::class_<LocalSteps>(m, "LocalSteps",
      "Where the local steps of a script begin and end, in nanoseconds. What returns a step that has ended\n"
      "returns its number, start and end.")
      .def(nb::init<Time>(), "now_ns"_a = 0)
      .def_prop_ro("told", &LocalSteps::told, "Whether the script tells where steps begin.")
      .def_prop_ro("done", &LocalSteps::done, "Number of steps that have ended.")
      .def("begin", [](LocalSteps& self, Time now) { return BoundsOf(self.Begin(now)); }, "now_ns"_a,
           "Begin a step, as the script tells; return the one that this ends.")
      .def("push", [](LocalSteps& self, Key key, Time returned) { return BoundsOf(self.Push(key, returned)); },
           "key"_a, "returned_ns"_a,
           "Note a push, before it is made; return the step that had ended when the store returned last.")
      .def("computed", &LocalSteps::Computed,
           "Note that the computing of the step is done; return whether it had not been before.")
      .def("leave", [](LocalSteps& self, Time returned) { return BoundsOf(self.Leave(returned)); },
           "returned_ns"_a, "Return the last step, which ended when the store returned last.");

  loop.def("record_steps", [](io::Loop& self) { self.steps().Start(); },
           "Record local steps from now on; pushes are recorded by themselves.")
      .def("begin_step", [](io::Loop& self) { self.steps().Begin(); }, "Begin a step, as the script tells.")
      .def("step_computed", [](io::Loop& self) { self.steps().Computed(); },
           "Note that the computing of the step is done.")
      .def("last_step", [](io::Loop& self) { self.steps().Leave(); }, "End the last step.")
      .def("take_steps", &TakeSteps,
           "Return the steps that have ended since the last call: number, start, computing (while no thread of the "
           "application waited) and end in nanoseconds since the start of the run.");
}
