// Choosing exactly as many entries as wanted among those that passed, or among all.
#pragma once

#include "kernels/cuda/sparsify/shared.h"

namespace geomx::kernels::GEOMX_CUDA {
namespace {

__global__ void DecideKernel(Control* control, Tensor tensor, std::uint64_t room) {
  Control now = *control;
  const bool again = now.found < tensor.rows && tensor.exact && now.threshold > 1;
  now.everything = now.found > room || again;
  now.items = now.everything != 0 ? tensor.n : now.found;
  now.selecting = now.everything != 0 || now.found > tensor.rows;
  now.rank = tensor.rows - 1;
  now.prefix = 0;
  now.least = now.threshold;
  now.ties = kNoBound;
  *control = now;
}

// Zeros are never chosen: if the rank is that of a zero, all other entries are.
__global__ void LeastKernel(Control* control) {
  if (control->selecting == 0) return;
  control->least = control->prefix == 0 ? 1 : control->prefix;
  control->ties = control->prefix == 0 ? kNoBound : control->rank + 1;
}

struct Item {
  bool greater, equal;
  float value;
};

__device__ inline std::uint64_t TileCount(const Control& control, const Tensor& tensor,
                                          const Tile* tiles, std::uint64_t tile) {
  if (control.everything == 0) return tiles[tile].count;
  const std::uint64_t left = tensor.n - tile * kTile;
  return left < kTile ? left : kTile;
}

__device__ inline Item ItemAt(const Control& control, const Tensor& tensor, const Aside& aside,
                              const Tile* tiles, std::uint64_t tile, std::uint64_t i,
                              std::uint64_t count) {
  if (i >= count) return {false, false, 0};
  const float value = control.everything != 0 ? tensor.sum[tile * kTile + i]
                                              : aside.values[tiles[tile].start + i];
  const std::uint32_t magnitude = MagnitudeOf(value);
  return {magnitude > control.least, magnitude == control.least, value};
}

// A warp per tile.
__global__ void __launch_bounds__(kThreads)
    CountKernel(const Control* control, Tensor tensor, Aside aside, Tile* tiles,
                std::uint64_t tile_count) {
  const Control now = *control;
  const unsigned lane = threadIdx.x % kWarp;
  for (std::uint64_t tile = Place() / kWarp; tile < tile_count; tile += Stride() / kWarp) {
    const std::uint64_t count = TileCount(now, tensor, tiles, tile);
    std::uint32_t greater = 0, equal = 0;
    for (std::uint64_t at = 0; at < count; at += kWarp) {
      const Item item = ItemAt(now, tensor, aside, tiles, tile, at + lane, count);
      greater += static_cast<std::uint32_t>(__popc(__ballot_sync(kAll, item.greater)));
      equal += static_cast<std::uint32_t>(__popc(__ballot_sync(kAll, item.equal)));
    }
    if (lane == 0) {
      tiles[tile].greater = greater;
      tiles[tile].equal = equal;
    }
  }
}

// By one block.
__global__ void __launch_bounds__(kThreads)
    ScanKernel(Control* control, Tile* tiles, std::uint64_t tile_count) {
  __shared__ std::uint64_t room[2][kThreads / kWarp];
  std::uint64_t greater = 0, equal = 0;
  for (std::uint64_t first = 0; first < tile_count; first += kThreads) {
    const std::uint64_t tile = first + threadIdx.x;
    const bool there = tile < tile_count;
    std::uint64_t all_greater = 0, all_equal = 0;
    const std::uint64_t greater_before =
        SumBefore(there ? tiles[tile].greater : 0, all_greater, room[0]);
    const std::uint64_t equal_before = SumBefore(there ? tiles[tile].equal : 0, all_equal, room[1]);
    if (there) {
      tiles[tile].greater_before = greater + greater_before;
      tiles[tile].equal_before = equal + equal_before;
    }
    greater += all_greater;
    equal += all_equal;
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    control->kept = greater + (equal < control->ties ? equal : control->ties);
  }
}

// A warp per tile. Writes the entries to the output if there are as many as wanted; otherwise to
// `waiting`, for FillKernel.
__global__ void __launch_bounds__(kThreads)
    EmitKernel(const Control* control, Tensor tensor, Aside aside, const Tile* tiles,
               std::uint64_t tile_count, Rows wanted, Rows waiting) {
  const Control now = *control;
  const Rows rows = now.kept == tensor.rows ? wanted : waiting;
  const unsigned lane = threadIdx.x % kWarp;
  const unsigned below = (1u << lane) - 1;
  for (std::uint64_t tile = Place() / kWarp; tile < tile_count; tile += Stride() / kWarp) {
    const std::uint64_t count = TileCount(now, tensor, tiles, tile);
    std::uint64_t greater = tiles[tile].greater_before, equal = tiles[tile].equal_before;
    for (std::uint64_t at = 0; at < count; at += kWarp) {
      const Item item = ItemAt(now, tensor, aside, tiles, tile, at + lane, count);
      const unsigned greaters = __ballot_sync(kAll, item.greater);
      const unsigned equals = __ballot_sync(kAll, item.equal);
      const std::uint64_t equal_here = equal + static_cast<unsigned>(__popc(equals & below));
      if (item.greater || (item.equal && equal_here < now.ties)) {
        const std::uint64_t place = greater + static_cast<unsigned>(__popc(greaters & below)) +
                                    (equal_here < now.ties ? equal_here : now.ties);
        const std::uint64_t index = now.everything != 0 ? tile * kTile + at + lane
                                                        : aside.indices[tiles[tile].start + at + lane];
        rows.indices[place] = static_cast<std::uint32_t>(index);
        rows.values[place] = item.value;
        TakeOut(tensor, index);
      }
      greater += static_cast<unsigned>(__popc(greaters));
      equal += static_cast<unsigned>(__popc(equals));
    }
  }
}

}  // namespace
}  // namespace geomx::kernels::GEOMX_CUDA
