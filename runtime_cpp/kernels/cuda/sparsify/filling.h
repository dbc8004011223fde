// Filling up with other entries if fewer than wanted were chosen.
#pragma once

#include "kernels/cuda/sparsify/shared.h"

namespace geomx::kernels::GEOMX_CUDA {
namespace {

// Queries on the chosen, ascending entries.
struct Chosen {
  const std::uint32_t* indices;
  std::uint64_t count;

  // How many are smaller than `bound`.
  __device__ std::uint64_t Below(std::uint64_t bound) const {
    std::uint64_t low = 0, high = count;
    while (low < high) {
      const std::uint64_t middle = (low + high) / 2;
      if (indices[middle] < bound) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }
  // How many entries that are not chosen lie in [first, end).
  __device__ std::uint64_t Others(std::uint64_t first, std::uint64_t end) const {
    return end <= first ? 0 : end - first - (Below(end) - Below(first));
  }
  // The same around the array, `reach` entries from `start` on.
  __device__ std::uint64_t OthersAround(std::uint64_t start, std::uint64_t reach,
                                        std::uint64_t n) const {
    const std::uint64_t end = start + reach;
    return end <= n ? Others(start, end) : Others(start, n) + Others(0, end - n);
  }
  // The distance from `start` that includes `wanted` of them.
  __device__ std::uint64_t ReachFor(std::uint64_t start, std::uint64_t wanted,
                                    std::uint64_t n) const {
    std::uint64_t low = wanted, high = wanted + count;
    while (low < high) {
      const std::uint64_t middle = (low + high) / 2;
      if (OthersAround(start, middle, n) < wanted) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }
};

// By one thread.
__device__ inline void Reach(Control* control, const Tensor& tensor, const std::uint32_t* chosen,
                             std::uint64_t* next_fill) {
  const Chosen taken{chosen, control->kept};
  const std::uint64_t start = *next_fill % tensor.n;
  const std::uint64_t reach = taken.ReachFor(start, tensor.rows - control->kept, tensor.n);
  control->start = start;
  control->reach = reach;
  *next_fill = (start + reach) % tensor.n;
}

// Merges the chosen entries and those that fill up, in ascending order.
__global__ void __launch_bounds__(kThreads)
    FillKernel(const Control* control, Tensor tensor, Rows waiting, Rows wanted) {
  const Control now = *control;
  if (now.kept >= tensor.rows) return;
  const Chosen taken{waiting.indices, now.kept};
  const std::uint64_t missing = tensor.rows - now.kept, end = now.start + now.reach;
  const std::uint64_t around = end > tensor.n ? end - tensor.n : 0;  // the part that wraps around to 0
  const std::uint64_t last = end > tensor.n ? tensor.n : end;
  // Entries that fill up and are before `index`.
  const auto added_before = [&](std::uint64_t index) {
    return taken.Others(0, index < around ? index : around) +
           taken.Others(now.start, index < last ? index : last);
  };
  for (std::uint64_t j = Place(); j < tensor.rows; j += Stride()) {
    std::uint64_t index, place;
    float value;
    if (j < missing) {
      index = (now.start + taken.ReachFor(now.start, j + 1, tensor.n) - 1) % tensor.n;
      place = taken.Below(index) + added_before(index);
      value = tensor.sum[index];
      TakeOut(tensor, index);
    } else {
      index = waiting.indices[j - missing];
      place = j - missing + added_before(index);
      value = waiting.values[j - missing];
    }
    wanted.indices[place] = static_cast<std::uint32_t>(index);
    wanted.values[place] = value;
  }
}

}  // namespace
}  // namespace geomx::kernels::GEOMX_CUDA
