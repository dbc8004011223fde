// Arrays of float32 that Python passes: contiguous, on the host, of any shape.
#pragma once

#include <nanobind/ndarray.h>

namespace geomx {

using ConstHostArray = nanobind::ndarray<const float, nanobind::c_contig, nanobind::device::cpu>;
using HostArray = nanobind::ndarray<float, nanobind::c_contig, nanobind::device::cpu>;

}  // namespace geomx
