// Sums on a GPU: sums.h. Sums over elements have the order defined there: 16 lanes per run, here
// the lanes of half a warp; then, in float64, run by run within a block, and block by block.
#include "kernels/cuda/arrays.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/twins.h"
#include "kernels/thread_pool.h"

namespace geomx::kernels::GEOMX_CUDA {
namespace {

// ---- of arrays ----

constexpr std::size_t kMostTerms = 8;  // at once

template <int kTerms>
struct AddOp {
  static constexpr int kArrays = 1 + kTerms, kWritten = 1;
  __device__ void operator()(float* x) const {
#pragma unroll
    for (int term = 1; term <= kTerms; ++term) x[0] += x[term];
  }
};

template <int kTerms>
void AddTerms(Context& context, float* sum, const float* const* terms, std::uint64_t n) {
  Arrays<1 + kTerms> arrays;
  arrays.at[0] = sum;
  for (int term = 0; term < kTerms; ++term) arrays.at[1 + term] = const_cast<float*>(terms[term]);
  Apply(context, AddOp<kTerms>{}, arrays, n);
}

__global__ void __launch_bounds__(kThreads)
    AddBytesKernel(const std::byte* in, float* out, std::uint64_t n) {
  for (std::uint64_t i = Place(); i < n; i += Stride()) out[i] += FloatOf(LoadWord(in + 4 * i));
}

// ---- over elements ----

constexpr unsigned kLanes = 16;
constexpr std::uint64_t kRunsPerBlock = kBlock / kRun;

struct NormPair {  // Norms on the device
  double magnitudes, squares;
};
static_assert(sizeof(NormPair) == sizeof(Norms));

__device__ inline void AddTo(double& sum, double more) { sum += more; }
__device__ inline void AddTo(NormPair& sum, const NormPair& more) {
  sum.magnitudes += more.magnitudes;
  sum.squares += more.squares;
}

// Sums over the 16 lanes of half a warp, lane 0 first. All lanes of the warp must take part.
template <class Number>
__device__ inline double InOrder(Number mine) {
  double sum = 0;
#pragma unroll
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    sum += static_cast<double>(__shfl_sync(kAll, mine, static_cast<int>(lane), kLanes));
  }
  return sum;
}

// One run of `count` values from `first` on, summed by half a warp.
struct Squares {
  using Sum = double;
  const float* values;

  __device__ double Run(std::uint64_t first, std::uint64_t count, unsigned lane) const {
    double sum = 0;
    std::uint64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      const auto value = static_cast<double>(values[first + i + lane]);
      sum += value * value;
    }
    for (; lane == 0 && i < count; ++i) {
      const auto value = static_cast<double>(values[first + i]);
      sum += value * value;
    }
    return InOrder(sum);
  }
};

struct Both {
  using Sum = NormPair;
  const float* a;
  const float* b;  // may be null

  __device__ float At(std::uint64_t i) const { return b != nullptr ? a[i] + b[i] : a[i]; }
  __device__ NormPair Run(std::uint64_t first, std::uint64_t count, unsigned lane) const {
    float sum = 0, square = 0;
    std::uint64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      const float value = At(first + i + lane);
      sum += fabsf(value);
      square += value * value;
    }
    for (; lane == 0 && i < count; ++i) {
      const float value = At(first + i);
      sum += fabsf(value);
      square += value * value;
    }
    const double magnitudes = InOrder(sum);
    return {magnitudes, InOrder(square)};
  }
};

__device__ inline std::uint64_t Least(std::uint64_t a, std::uint64_t b) { return a < b ? a : b; }

template <class Of>
__global__ void __launch_bounds__(kThreads)
    RunsKernel(Of of, std::uint64_t n, typename Of::Sum* runs) {
  const unsigned lane = threadIdx.x % kLanes;
  const std::uint64_t count = (n + kRun - 1) / kRun;
  // Both halves of a warp must iterate equally often.
  for (std::uint64_t run = Place() / kLanes; run / 2 * 2 < count; run += Stride() / kLanes) {
    const std::uint64_t first = run * kRun;
    const std::uint64_t many = run < count ? Least(kRun, n - first) : 0;
    const typename Of::Sum sum = of.Run(first, many, lane);
    if (lane == 0 && run < count) runs[run] = sum;
  }
}

template <class Sum>
__global__ void __launch_bounds__(kThreads)
    BlocksKernel(const Sum* runs, std::uint64_t count, Sum* blocks) {
  for (std::uint64_t block = Place(); block * kRunsPerBlock < count; block += Stride()) {
    Sum sum = {};
    const std::uint64_t end = Least((block + 1) * kRunsPerBlock, count);
    for (std::uint64_t run = block * kRunsPerBlock; run < end; ++run) AddTo(sum, runs[run]);
    blocks[block] = sum;
  }
}

// Runs in one block, whose first thread adds the values that the others load.
template <class Sum>
__global__ void __launch_bounds__(kThreads)
    TotalKernel(const Sum* blocks, std::uint64_t count, Sum* total) {
  __shared__ Sum fetched[kThreads];
  Sum sum = {};
  for (std::uint64_t first = 0; first < count; first += kThreads) {
    const std::uint64_t few = Least(kThreads, count - first);
    if (threadIdx.x < few) fetched[threadIdx.x] = blocks[first + threadIdx.x];
    __syncthreads();
    for (unsigned k = 0; threadIdx.x == 0 && k < few; ++k) AddTo(sum, fetched[k]);
    __syncthreads();
  }
  if (threadIdx.x == 0) *total = sum;
}

std::uint64_t Runs(std::uint64_t n) { return (n + kRun - 1) / kRun; }

// `room` for Runs(n) + Blocks(n) sums.
template <class Of>
void SumUp(Context& context, const Of& of, std::uint64_t n, typename Of::Sum* total,
           typename Of::Sum* room) {
  using Sum = typename Of::Sum;
  const std::uint64_t runs = Runs(n);
  Sum* const blocks = room + runs;
  Launch(context, BlocksFor(context, (runs + 1) / 2 * kWarp), kThreads, &RunsKernel<Of>, of, n,
         room);
  Launch(context, BlocksFor(context, Blocks(n)), kThreads, &BlocksKernel<Sum>, room, runs, blocks);
  Launch(context, 1, kThreads, &TotalKernel<Sum>, blocks, Blocks(n), total);
}

// A block of threads per range: half a warp per run, and the first thread adds them up.
__global__ void __launch_bounds__(kThreads)
    ContributeKernel(const float* values, const Range* ranges, double alpha, double* averages) {
  constexpr unsigned kAtOnce = kThreads / kLanes;
  __shared__ double runs[kAtOnce];
  const std::uint64_t first = ranges[blockIdx.x].first, count = ranges[blockIdx.x].count;
  const unsigned lane = threadIdx.x % kLanes, mine = threadIdx.x / kLanes;
  const Both of{values, nullptr};
  double total = 0, block = 0;
  std::uint64_t done = 0;
  for (std::uint64_t at = 0; at < count; at += kAtOnce * kRun) {
    const std::uint64_t start = at + mine * kRun;
    const std::uint64_t many = start < count ? Least(kRun, count - start) : 0;
    const NormPair sum = of.Run(first + start, many, lane);
    if (lane == 0) runs[mine] = sum.magnitudes;
    __syncthreads();
    for (unsigned run = 0; threadIdx.x == 0 && run < kAtOnce && at + run * kRun < count; ++run) {
      block += runs[run];
      if (++done % kRunsPerBlock == 0) {
        total += block;
        block = 0;
      }
    }
    __syncthreads();
  }
  if (threadIdx.x > 0) return;
  if (done % kRunsPerBlock != 0) total += block;
  const double mean = count == 0 ? 0.0 : total / static_cast<double>(count);
  averages[blockIdx.x] = alpha * averages[blockIdx.x] + (1 - alpha) * mean;
}

}  // namespace

void Add(Context& context, float* sum, const float* const* terms, std::size_t count,
         std::uint64_t n) {
  for (; count > 0; terms += kMostTerms, count -= count < kMostTerms ? count : kMostTerms) {
    switch (count) {
      case 1: AddTerms<1>(context, sum, terms, n); break;
      case 2: AddTerms<2>(context, sum, terms, n); break;
      case 3: AddTerms<3>(context, sum, terms, n); break;
      case 4: AddTerms<4>(context, sum, terms, n); break;
      case 5: AddTerms<5>(context, sum, terms, n); break;
      case 6: AddTerms<6>(context, sum, terms, n); break;
      case 7: AddTerms<7>(context, sum, terms, n); break;
      default: AddTerms<8>(context, sum, terms, n); break;
    }
  }
}

void AddBytes(Context& context, const std::byte* in, float* out, std::uint64_t n) {
  Launch(context, BlocksFor(context, n), kThreads, &AddBytesKernel, in, out, n);
}

std::uint64_t SquaresRoom(std::uint64_t n) { return Runs(n) + Blocks(n); }

void SumOfSquaresIn(Context& context, const float* values, std::uint64_t n, double* sum,
                    double* room) {
  SumUp(context, Squares{values}, n, sum, room);
}

void SumOfSquares(Context& context, const float* values, std::uint64_t n, double* sum) {
  auto* room = reinterpret_cast<double*>(context.Scratch(SquaresRoom(n) * sizeof(double)));
  SumOfSquaresIn(context, values, n, sum, room);
}

std::uint64_t NormsRoom(std::uint64_t n) { return (Runs(n) + Blocks(n)) * sizeof(NormPair); }

void NormsIn(Context& context, const float* a, const float* b, std::uint64_t n, Norms* norms,
             std::byte* room) {
  SumUp(context, Both{a, b}, n, reinterpret_cast<NormPair*>(norms),
        reinterpret_cast<NormPair*>(room));
}

void NormsOf(Context& context, const float* a, const float* b, std::uint64_t n, Norms* norms) {
  NormsIn(context, a, b, n, norms, context.Scratch(NormsRoom(n)));
}

void Contribute(Context& context, const float* values, const Range* ranges, std::uint64_t count,
                double alpha, double* averages) {
  auto* there = reinterpret_cast<Range*>(context.Scratch(count * sizeof(Range)));
  if (count == 0) return;
  Check(cudaMemcpyAsync(there, ranges, count * sizeof(Range), cudaMemcpyDefault, context.stream),
        "copying ranges");
  Launch(context, count, kThreads, &ContributeKernel, values, there, alpha, averages);
}

}  // namespace geomx::kernels::GEOMX_CUDA
