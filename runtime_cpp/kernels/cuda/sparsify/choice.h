// Choosing exactly as many entries as wanted among those that passed, or among all.
#pragma once

#include "kernels/cuda/sparsify/filling.h"

namespace geomx::kernels::GEOMX_CUDA {
namespace {

// By one thread, after `found` entries have reached the threshold.
__device__ inline void Decide(Control* control, const Tensor& tensor, std::uint64_t found,
                              std::uint64_t room) {
  Control now = *control;
  const bool again = found < tensor.rows && tensor.exact && now.threshold > 1;
  now.everything = found > room || again;
  now.items = now.everything != 0 ? tensor.n : found;
  now.selecting = now.everything != 0 || found > tensor.rows;
  now.rank = tensor.rows - 1;
  now.prefix = 0;
  now.least = now.threshold;
  now.ties = kNoBound;
  *control = now;
}

// Zeros are never chosen: if the rank is that of a zero, all other entries are.
struct UseAsLeast {
  __device__ void operator()(Control* control) const {
    control->least = control->prefix == 0 ? 1 : control->prefix;
    control->ties = control->prefix == 0 ? kNoBound : control->rank + 1;
  }
};

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

// How many of a group's entries are in earlier groups, and how many are chosen; by one block.
__device__ inline void AddGroups(Control* control, Group* groups, std::uint64_t group_count) {
  __shared__ std::uint64_t room[2][kThreads / kWarp];
  std::uint64_t greater = 0, equal = 0;
  for (std::uint64_t first = 0; first < group_count; first += kThreads) {
    const std::uint64_t group = first + threadIdx.x;
    const bool there = group < group_count;
    std::uint64_t all_greater = 0, all_equal = 0;
    const std::uint64_t greater_before =
        SumBefore(there ? groups[group].greater : 0, all_greater, room[0]);
    const std::uint64_t equal_before = SumBefore(there ? groups[group].equal : 0, all_equal, room[1]);
    if (there) {
      groups[group].greater_before = greater + greater_before;
      groups[group].equal_before = equal + equal_before;
    }
    greater += all_greater;
    equal += all_equal;
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    control->kept = greater + (equal < control->ties ? equal : control->ties);
  }
}

// A block per group, a warp per tile; the last block adds up the groups.
__global__ void __launch_bounds__(kThreads)
    CountKernel(Control* control, Tensor tensor, Aside aside, Tile* tiles, std::uint64_t tile_count,
                Group* groups) {
  __shared__ std::uint64_t counts[kGroup];  // greater, and from bit 32 on equal
  __shared__ std::uint64_t room[kThreads / kWarp];
  const Control now = *control;
  const unsigned lane = threadIdx.x % kWarp;
  const std::uint64_t first = std::uint64_t{blockIdx.x} * kGroup;
  for (unsigned mine = threadIdx.x / kWarp; mine < kGroup; mine += kThreads / kWarp) {
    const std::uint64_t tile = first + mine;
    const std::uint64_t count = tile < tile_count ? TileCount(now, tensor, tiles, tile) : 0;
    std::uint64_t greater = 0, equal = 0;
    for (std::uint64_t at = 0; at < count; at += kWarp) {
      const Item item = ItemAt(now, tensor, aside, tiles, tile, at + lane, count);
      greater += static_cast<unsigned>(__popc(__ballot_sync(kAll, item.greater)));
      equal += static_cast<unsigned>(__popc(__ballot_sync(kAll, item.equal)));
    }
    if (lane == 0) counts[mine] = greater | equal << 32;
  }
  __syncthreads();
  std::uint64_t total = 0;
  const bool there = threadIdx.x < kGroup && first + threadIdx.x < tile_count;
  const std::uint64_t before = SumBefore(there ? counts[threadIdx.x] : 0, total, room);
  if (there) {
    tiles[first + threadIdx.x].greater_before = static_cast<std::uint32_t>(before);
    tiles[first + threadIdx.x].equal_before = static_cast<std::uint32_t>(before >> 32);
  }
  if (threadIdx.x == 0) {
    groups[blockIdx.x].greater = total & 0xffffffffu;
    groups[blockIdx.x].equal = total >> 32;
  }
  if (IsLastBlock(&control->ended)) AddGroups(control, groups, gridDim.x);
}

// A warp per tile. Writes the entries to the output if there are as many as wanted; otherwise to
// `waiting`, for FillKernel, for which the last block prepares.
__global__ void __launch_bounds__(kThreads)
    EmitKernel(Control* control, Tensor tensor, Aside aside, const Tile* tiles,
               std::uint64_t tile_count, const Group* groups, Rows wanted, Rows waiting,
               std::uint64_t* next_fill) {
  const Control now = *control;
  const Rows rows = now.kept == tensor.rows ? wanted : waiting;
  const unsigned lane = threadIdx.x % kWarp;
  const unsigned below = (1u << lane) - 1;
  for (std::uint64_t tile = Place() / kWarp; tile < tile_count; tile += Stride() / kWarp) {
    const std::uint64_t count = TileCount(now, tensor, tiles, tile);
    const Group group = groups[tile / kGroup];
    std::uint64_t greater = group.greater_before + tiles[tile].greater_before;
    std::uint64_t equal = group.equal_before + tiles[tile].equal_before;
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
  if (now.kept >= tensor.rows || !IsLastBlock(&control->ended) || threadIdx.x > 0) return;
  Reach(control, tensor, waiting.indices, next_fill);
}

}  // namespace
}  // namespace geomx::kernels::GEOMX_CUDA
