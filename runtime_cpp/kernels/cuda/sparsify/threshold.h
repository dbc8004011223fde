// The threshold: a magnitude of given rank in a sample, or later among the collected entries.
#pragma once

#include "kernels/cuda/sparsify/shared.h"

namespace geomx::kernels::GEOMX_CUDA {
namespace {

// By one block. Clears the histogram.
__global__ void __launch_bounds__(kThreads)
    StartKernel(Control* control, double clip, const double* squares, std::uint64_t sample,
                std::uint64_t rank, unsigned long long* histogram) {
  for (unsigned bucket = threadIdx.x; bucket < kBuckets; bucket += kThreads) histogram[bucket] = 0;
  if (threadIdx.x > 0) return;
  Control fresh = {};
  fresh.scale = 1;
  if (clip > 0) {
    const double norm = sqrt(*squares);
    if (norm > clip) fresh.scale = static_cast<float>(clip / norm);
  }
  fresh.threshold = 1;
  fresh.selecting = rank < sample;
  fresh.items = sample;
  fresh.rank = rank;
  *control = fresh;
}

__global__ void __launch_bounds__(kThreads)
    SampleKernel(const Control* control, Tensor tensor, std::uint64_t seed, std::uint64_t size,
                 float* sample) {
  const float scale = control->scale;
  for (std::uint64_t j = Place(); j < size; j += Stride()) {
    std::uint64_t hash = seed + (j + 1) * kSampleStep;  // SampledAt, which is the host's
    hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9u;
    hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebu;
    const std::uint64_t i = (hash >> 32) * tensor.n >> 32;
    sample[j] = tensor.sum[i] + StepOf(tensor, scale, i);
  }
}

// The bucket that the rank falls into, counted from the top; by one block. Clears the histogram.
__device__ inline void Pick(Control* control, Digit digit, unsigned long long* histogram) {
  __shared__ std::uint64_t room[kThreads / kWarp];
  constexpr unsigned kEach = kBuckets / kThreads;
  const unsigned top = (1u << digit.bits) - 1;
  const std::uint64_t rank = control->rank;
  std::uint64_t counts[kEach], mine = 0, total = 0;
  for (unsigned k = 0; k < kEach; ++k) {
    const unsigned place = threadIdx.x * kEach + k;
    counts[k] = 0;
    if (place > top) continue;
    counts[k] = histogram[top - place];
    histogram[top - place] = 0;
    mine += counts[k];
  }
  std::uint64_t before = SumBefore(mine, total, room);  // synchronises: all threads have read the rank
  if (before <= rank && rank < before + mine) {
    unsigned k = 0;
    for (; before + counts[k] <= rank; ++k) before += counts[k];
    control->prefix |= (top - (threadIdx.x * kEach + k)) << digit.shift;
    control->rank = rank - before;
  }
  __syncthreads();
}

// How many items have each value of the digit, among those that share the digits before it; the
// last block picks one of the values, and after the last digit, one thread calls `use`.
template <class Use>
__global__ void __launch_bounds__(kThreads)
    HistogramKernel(Control* control, const float* few, const float* all, Digit digit,
                    unsigned long long* histogram, Use use) {
  if (control->selecting == 0) return;
  __shared__ unsigned counts[kBuckets];
  const unsigned buckets = 1u << digit.bits;
  for (unsigned bucket = threadIdx.x; bucket < buckets; bucket += kThreads) counts[bucket] = 0;
  __syncthreads();
  const float* const values = control->everything != 0 ? all : few;
  const std::uint64_t items = control->items;
  const std::uint32_t prefix = control->prefix;
  const unsigned above = digit.shift + digit.bits;
  for (std::uint64_t i = Place(); i < items; i += Stride()) {
    const std::uint32_t magnitude = MagnitudeOf(values[i]);
    if (magnitude >> above != prefix >> above) continue;
    atomicAdd(&counts[magnitude >> digit.shift & (buckets - 1)], 1u);
  }
  __syncthreads();
  for (unsigned bucket = threadIdx.x; bucket < buckets; bucket += kThreads) {
    if (counts[bucket] != 0) {
      atomicAdd(&histogram[bucket], static_cast<unsigned long long>(counts[bucket]));
    }
  }
  if (!IsLastBlock(&control->ended)) return;
  Pick(control, digit, histogram);
  if (digit.shift == 0 && threadIdx.x == 0) use(control);
}

// The magnitude of the rank in the sample becomes the threshold.
struct UseAsThreshold {
  __device__ void operator()(Control* control) const {
    if (control->prefix > 1) control->threshold = control->prefix;
  }
};

}  // namespace
}  // namespace geomx::kernels::GEOMX_CUDA
