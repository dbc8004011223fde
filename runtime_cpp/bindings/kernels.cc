// Python's control over how arrays are computed: threads and vector instructions. Neither changes
// any result.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <memory>

#include "bindings/arrays.h"
#include "kernels/level.h"
#include "kernels/memory.h"
#include "kernels/thread_pool.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

nb::ndarray<nb::numpy, float, nb::ndim<1>> Copied(const geomx::ConstHostArray& array) {
  using Values = geomx::kernels::Unset<float>;
  const std::size_t elements = array.size();
  auto copy = std::make_unique<Values>(elements);
  {
    nb::gil_scoped_release unlocked;
    if (elements > 0) std::memcpy(copy->data(), array.data(), elements * sizeof(float));
  }
  float* const values = copy->data();
  nb::capsule owner(copy.release(), [](void* old) noexcept { delete static_cast<Values*>(old); });
  return {values, {elements}, owner};
}

}  // namespace

void init_kernels(nb::module_& m) {
  using namespace geomx;

  m.def("set_threads", &kernels::SetThreads, "threads"_a, nb::call_guard<nb::gil_scoped_release>(),
        "Set the number of threads of this process for one large array, including the caller's.\n"
        "RuntimeError if the system cannot start more.");
  m.def("threads", &kernels::Threads, "Return the number of threads, initially 1.");
  m.def("copied", &Copied, "array"_a.noconvert(),
        "Return a copy of a float32 array, as a vector, whose memory is used again when it is released.");
  m.def("vector_levels", [] {
    std::vector<std::string> names;
    for (const kernels::Level level : kernels::Levels()) names.emplace_back(kernels::Name(level));
    return names;
  }, "Return the vector instruction sets of this build that this machine supports, ascending.");
  m.def("vector_level", [] { return std::string(kernels::Name(kernels::Current())); },
        "Return the instruction set in use, initially the last of `vector_levels()`.");
  m.def("use_vector_level", [](const std::string& name) {
    for (const kernels::Level level : kernels::Levels()) {
      if (kernels::Name(level) == name) return kernels::Use(level);
    }
    throw nb::value_error(("this machine has no vector level " + name).c_str());
  }, "name"_a, "Set the instruction set, for tests and measurements, while no other thread uses the kernels.");
}
