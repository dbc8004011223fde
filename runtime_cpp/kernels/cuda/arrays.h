// Element-wise work on several float32 arrays at once, each read and written once.
#pragma once

#include "kernels/cuda/launch.h"

namespace geomx::kernels::GEOMX_CUDA {

template <int kArrays>
struct Arrays {
  float* at[kArrays];
};

// op(values) for every element: `values` has its entry of each array, and the first Op::kWritten of
// them are written back.
template <class Op>
__global__ void __launch_bounds__(kThreads)
    ApplyKernel(Op op, Arrays<Op::kArrays> arrays, std::uint64_t n, bool aligned) {
  const std::uint64_t fours = aligned ? n / 4 : 0;
  for (std::uint64_t four = Place(); four < fours; four += Stride()) {
    float values[Op::kArrays][4];
#pragma unroll
    for (int a = 0; a < Op::kArrays; ++a) LoadFour(arrays.at[a] + 4 * four, values[a]);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      float element[Op::kArrays];
#pragma unroll
      for (int a = 0; a < Op::kArrays; ++a) element[a] = values[a][k];
      op(element);
#pragma unroll
      for (int a = 0; a < Op::kWritten; ++a) values[a][k] = element[a];
    }
#pragma unroll
    for (int a = 0; a < Op::kWritten; ++a) StoreFour(arrays.at[a] + 4 * four, values[a]);
  }
  for (std::uint64_t i = 4 * fours + Place(); i < n; i += Stride()) {
    float element[Op::kArrays];
#pragma unroll
    for (int a = 0; a < Op::kArrays; ++a) element[a] = arrays.at[a][i];
    op(element);
#pragma unroll
    for (int a = 0; a < Op::kWritten; ++a) arrays.at[a][i] = element[a];
  }
}

// `written` arrays first, then those that are only read.
template <class Op>
void Apply(const Context& context, const Op& op, const Arrays<Op::kArrays>& arrays,
           std::uint64_t n) {
  bool aligned = true;
  for (const float* array : arrays.at) aligned = aligned && Aligned16(array);
  const std::uint64_t items = aligned ? n / 4 + n % 4 : n;
  Launch(context, BlocksFor(context, items), kThreads, &ApplyKernel<Op>, op, arrays, n, aligned);
}

}  // namespace geomx::kernels::GEOMX_CUDA
