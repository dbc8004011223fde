// Parts of an encoded shard as numpy's arrays, for codecs in Python.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/codec.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace geomx {

// Whether items of a part are numbers of numpy's; others are shown as rows of bytes.
inline bool Numeric(const Part& part) { return part.bits == 8 || part.bits == 16 || part.bits == 32; }

// The numpy type of a part's items by their width, where nothing else is known; "values" is the one
// floating-point part.
inline std::string TypeOf(const Part& part) {
  if (part.name == "indices") return "<u4";
  if (!Numeric(part)) return "(" + std::to_string(part.bits / 8) + ",)u1";
  if (part.name == "values" && part.bits >= 16) return part.bits == 16 ? "<f2" : "<f4";
  return part.bits == 8 ? "|u1" : "<u" + std::to_string(part.bits / 8);
}

// `floats`: of a linear codec's own parts, which all are floating-point.
inline nb::dlpack::dtype Code(const Part& part, bool floats) {
  const bool floating = floats || (part.name == "values" && part.bits >= 16);
  const auto code = floating ? nb::dlpack::dtype_code::Float : nb::dlpack::dtype_code::UInt;
  if (!Numeric(part)) return {static_cast<std::uint8_t>(nb::dlpack::dtype_code::UInt), 8, 1};
  return {static_cast<std::uint8_t>(code), static_cast<std::uint8_t>(part.bits), 1};
}

// A numpy array's bytes, readable without the lock for as long as this lives.
class View {
 public:
  explicit View(nb::handle array) {
    if (PyObject_GetBuffer(array.ptr(), &view_, PyBUF_CONTIG_RO) != 0) throw nb::python_error();
  }
  View(View&& other) noexcept : view_(std::exchange(other.view_, Py_buffer{})) {}
  View& operator=(View&&) = delete;
  ~View() { PyBuffer_Release(&view_); }
  const void* data() const { return view_.buf; }
  std::size_t bytes() const { return static_cast<std::size_t>(view_.len); }

 private:
  Py_buffer view_{};
};

// Of a part whose items may be rows of an array: sets its width, if rows of so many items fit.
inline void SetWidth(const nb::object& array, const Part& said, Part& part) {
  const auto bytes = nb::cast<std::uint64_t>(array.attr("nbytes"));
  const auto items = nb::cast<std::uint64_t>(array.attr("shape")[nb::int_(0)]);
  if (items > 0 && bytes * 8 == items * said.bits) part.bits = said.bits;
}

// Decoded values, in this machine's byte order.
inline nb::object Float32(const nb::object& numpy, const nb::object& array) {
  const nb::object type = array.attr("dtype");
  if (!numpy.attr("float32").equal(type.attr("type"))) {
    throw std::invalid_argument("made \"values\" of " + nb::cast<std::string>(type.attr("name")) +
                                ", not float32");
  }
  return array.attr("astype")("<f4", "copy"_a = false);
}

}  // namespace geomx
