// The arithmetic of one element (levels/elements.h), as device code. No product is contracted into
// a sum (by the build's flags), and divisions and roots are rounded to nearest, so results equal
// the processor's.
#pragma once

#include "kernels/bfloat.h"
#include "kernels/cuda/launch.h"
#include "kernels/steps.h"

namespace geomx::kernels::GEOMX_CUDA {

#define GEOMX_EACH __device__ inline
GEOMX_EACH std::uint32_t BitsOf(float value) { return __float_as_uint(value); }
GEOMX_EACH float FloatOf(std::uint32_t bits) { return __uint_as_float(bits); }
GEOMX_EACH float RootOf(float value) { return __fsqrt_rn(value); }
#include "kernels/levels/elements.h"
#undef GEOMX_EACH

// As geomx::kernels::Magnitude.
__device__ inline std::uint32_t MagnitudeOf(float value) { return BitsOf(value) & 0x7fffffffu; }

}  // namespace geomx::kernels::GEOMX_CUDA
