// The pass over the whole tensor: accumulates, and collects the entries that reach the threshold.
#pragma once

#include "kernels/cuda/sparsify/choice.h"

namespace geomx::kernels::GEOMX_CUDA {
namespace {

template <bool kVelocity>
__global__ void __launch_bounds__(kThreads, 4)
    AccumulateKernel(Control* control, Tensor tensor, bool aligned, Aside aside, Tile* tiles) {
  __shared__ std::uint64_t room[kThreads / kWarp];
  __shared__ std::uint64_t shared_start;
  const float scale = control->scale;
  const std::uint32_t threshold = control->threshold;
  const std::uint64_t first = std::uint64_t{blockIdx.x} * kTile + 4 * threadIdx.x;

  float sums[kSteps][4];
#pragma unroll
  for (unsigned step = 0; step < kSteps; ++step) {
    const std::uint64_t i = first + step * kStepElements;
    float terms[4] = {};
#pragma unroll
    for (unsigned k = 0; k < 4; ++k) sums[step][k] = 0;
    Load4(tensor.term, i, tensor.n, aligned, terms);
    Load4(tensor.sum, i, tensor.n, aligned, sums[step]);
    float moves[4] = {};
    if constexpr (kVelocity) Load4(tensor.velocity, i, tensor.n, aligned, moves);
#pragma unroll
    for (unsigned k = 0; k < 4; ++k) {
      moves[k] = kVelocity ? MovedBy(scale, tensor.momentum, terms[k], moves[k]) : scale * terms[k];
      sums[step][k] += moves[k];
    }
    if constexpr (kVelocity) Store4(tensor.velocity, i, tensor.n, aligned, moves);
    Store4(tensor.sum, i, tensor.n, aligned, sums[step]);
  }

  // Hits of the four steps, 16 bits each: entries beyond the end count as none.
  std::uint64_t mine = 0;
#pragma unroll
  for (unsigned step = 0; step < kSteps; ++step) {
    const std::uint64_t i = first + step * kStepElements;
    std::uint64_t hits = 0;
#pragma unroll
    for (unsigned k = 0; k < 4; ++k) {
      hits += i + k < tensor.n && MagnitudeOf(sums[step][k]) >= threshold;
    }
    mine |= hits << 16 * step;
  }
  std::uint64_t total = 0;
  std::uint64_t before = SumBefore(mine, total, room);
  if (threadIdx.x == 0) {
    std::uint64_t hits = 0;
    for (unsigned step = 0; step < kSteps; ++step) hits += total >> 16 * step & 0xffffu;
    // The last to add decides: for that, what other threads have stored need not be visible.
    const std::uint64_t done = atomicAdd(&control->progress, hits | 1ull << kTilesAt);
    shared_start = done & kFound;
    if ((done >> kTilesAt) + 1 == gridDim.x) Decide(control, tensor, shared_start + hits, aside.room);
    tiles[blockIdx.x].start = shared_start;
    tiles[blockIdx.x].count = static_cast<std::uint32_t>(hits);
  }
  __syncthreads();
  std::uint64_t start = shared_start;
#pragma unroll
  for (unsigned step = 0; step < kSteps; ++step) {
    const std::uint64_t i = first + step * kStepElements;
    std::uint64_t place = start + (before >> 16 * step & 0xffffu);
#pragma unroll
    for (unsigned k = 0; k < 4; ++k) {
      if (i + k >= tensor.n || MagnitudeOf(sums[step][k]) < threshold) continue;
      if (place < aside.room) {
        aside.indices[place] = static_cast<std::uint32_t>(i + k);
        aside.values[place] = sums[step][k];
      }
      ++place;
    }
    start += total >> 16 * step & 0xffffu;
  }
}

}  // namespace
}  // namespace geomx::kernels::GEOMX_CUDA
