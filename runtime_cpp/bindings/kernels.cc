// Python's control over how arrays are computed: threads and vector instructions. Neither changes
// any result.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "kernels/level.h"
#include "kernels/thread_pool.h"

namespace nb = nanobind;
using namespace nb::literals;

void init_kernels(nb::module_& m) {
  using namespace geomx;

  m.def("set_threads", &kernels::SetThreads, "threads"_a, nb::call_guard<nb::gil_scoped_release>(),
        "How many threads of this process may work on one large array, the caller's included.\n"
        "RuntimeError if the system has no more.");
  m.def("threads", &kernels::Threads, "What `set_threads` was told last; 1 at first.");
  m.def("vector_levels", [] {
    std::vector<std::string> names;
    for (const kernels::Level level : kernels::Levels()) names.emplace_back(kernels::Name(level));
    return names;
  }, "Sets of vector instructions that this build has and this machine can run, ascending.");
  m.def("vector_level", [] { return std::string(kernels::Name(kernels::Current())); },
        "The one in use; at first the last of `vector_levels()`.");
  m.def("use_vector_level", [](const std::string& name) {
    for (const kernels::Level level : kernels::Levels()) {
      if (kernels::Name(level) == name) return kernels::Use(level);
    }
    throw nb::value_error(("this machine has no vector level " + name).c_str());
  }, "name"_a, "For tests and measurements, while nothing is running.");
}
