// Python's view of a loop's verbs for several keys at a time (io/many_keys.cc).
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/release_queue.h"
#include "io/loop.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace geomx::io {
namespace {

// The copies of small arrays lie in one block.
void PushAll(Loop& loop, const std::vector<Key>& keys, const std::vector<ConstHostArray>& arrays, bool copy,
             bool last) {
  ReleaseQueue::Instance().Release();
  if (keys.size() != arrays.size()) throw nb::value_error("as many arrays as keys are needed");
  std::vector<std::pair<Key, std::span<const float>>> values;
  std::size_t elements = 0;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    values.emplace_back(keys[i], std::span(arrays[i].data(), arrays[i].size()));
    elements += arrays[i].size();
  }
  std::shared_ptr<const void> owner;
  if (!copy) owner = ReleaseQueue::Instance().Keep(std::vector<ConstHostArray>(arrays));
  nb::gil_scoped_release unlocked;
  if (copy) {
    const auto block = std::make_shared<Buffer>(elements);
    float* at = block->data();
    for (auto& [key, value] : values) {
      std::copy(value.begin(), value.end(), at);
      value = {at, value.size()};
      at += value.size();
    }
    owner = block;
  }
  loop.PushAll(values, owner, {.last = last});
}

double WaitForValues(Loop& loop, const std::vector<std::pair<Key, Round>>& values, double timeout_s) {
  std::optional<double> complete;
  {
    nb::gil_scoped_release unlocked;
    complete = loop.WaitAll(values, timeout_s);
  }
  ReleaseQueue::Instance().Release();
  if (!complete) {
    PyErr_SetString(PyExc_TimeoutError, "not all values have arrived in time");
    throw nb::python_error();
  }
  return *complete;
}

void CopyValues(Loop& loop, const std::vector<Key>& keys, const std::vector<HostArray>& arrays) {
  if (keys.size() != arrays.size()) throw nb::value_error("as many arrays as keys are needed");
  std::vector<std::pair<Key, std::span<float>>> outs;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    outs.emplace_back(keys[i], std::span(arrays[i].data(), arrays[i].size()));
  }
  nb::gil_scoped_release unlocked;
  loop.Values(outs);
}

}  // namespace
}  // namespace geomx::io

void BindManyKeys(nb::class_<geomx::io::Loop>& loop) {
  using namespace geomx::io;

  loop.def("push_all", &PushAll, "keys"_a, "arrays"_a.noconvert(), "copy"_a, "last"_a = false,
           "Push several keys, in order. With `copy` the arrays may be changed afterwards.")
      .def("wait_all", &WaitForValues, "values"_a, "timeout_s"_a,
           "Wait for the values of several (key, round); return the arrival of the last.")
      .def("values", &CopyValues, "keys"_a, "arrays"_a.noconvert(),
           "Copy the last complete values of several keys into arrays; see `value`.");
}
