// Sums on a GPU: sums.h. Sums over elements have the order defined there: 16 lanes per run, here of
// four threads; then, in float64, run by run within a block, and block by block.
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

// Four threads share a run; each reads 16 bytes at a time and adds up four of the lanes.
constexpr unsigned kSharers = 4, kEach = kLanes / kSharers;

// Sums over the 16 lanes of four neighbouring threads, lane 0 first. All threads of the warp must
// take part.
template <class Number>
__device__ inline double InOrder(const Number (&mine)[kEach]) {
  double sum = 0;
#pragma unroll
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    const int thread = static_cast<int>(lane / kEach);
    sum += static_cast<double>(__shfl_sync(kAll, mine[lane % kEach], thread, kSharers));
  }
  return sum;
}

// The values of an array, or the sums of two.
struct Values {
  const float* a;
  const float* b;  // may be null
  bool aligned;

  Values(const float* a_, const float* b_) : a(a_), b(b_), aligned(Aligned16(a_, b_)) {}
  __device__ float At(std::uint64_t i) const { return b != nullptr ? a[i] + b[i] : a[i]; }
  __device__ void Load(std::uint64_t i, float (&four)[kEach]) const {
    Load4(a, i, i + kEach, aligned && i % kEach == 0, four);
    if (b == nullptr) return;
    float more[kEach];
    Load4(b, i, i + kEach, aligned && i % kEach == 0, more);
#pragma unroll
    for (unsigned k = 0; k < kEach; ++k) four[k] += more[k];
  }
};

// Calls add(k, value) for every value of lane kEach * sharer + k, in order, of the run of `count` values
// that starts at `first`. Values behind the last full row belong to lane 0.
template <class Add>
__device__ inline void ForLanes(const Values& values, std::uint64_t first, std::uint64_t count,
                                unsigned sharer, Add add) {
  std::uint64_t i = 0;
#pragma unroll 4
  for (; i + kLanes <= count; i += kLanes) {
    float four[kEach];
    values.Load(first + i + kEach * sharer, four);
#pragma unroll
    for (unsigned k = 0; k < kEach; ++k) add(k, four[k]);
  }
  for (; sharer == 0 && i < count; ++i) add(0, values.At(first + i));
}

struct Squares {
  using Sum = double;
  Values values;

  __device__ double Run(std::uint64_t first, std::uint64_t count, unsigned sharer) const {
    double sums[kEach] = {};
    ForLanes(values, first, count, sharer, [&](unsigned k, float value) {
      sums[k] += static_cast<double>(value) * static_cast<double>(value);
    });
    return InOrder(sums);
  }
};

struct Both {
  using Sum = NormPair;
  Values values;

  __device__ NormPair Run(std::uint64_t first, std::uint64_t count, unsigned sharer) const {
    float sums[kEach] = {}, squares[kEach] = {};
    ForLanes(values, first, count, sharer, [&](unsigned k, float value) {
      sums[k] += fabsf(value);
      squares[k] += value * value;
    });
    const double magnitudes = InOrder(sums);
    return {magnitudes, InOrder(squares)};
  }
};

__device__ inline std::uint64_t Least(std::uint64_t a, std::uint64_t b) { return a < b ? a : b; }

template <class Of>
__global__ void __launch_bounds__(kThreads)
    RunsKernel(Of of, std::uint64_t n, typename Of::Sum* runs) {
  constexpr std::uint64_t kAtOnce = kWarp / kSharers;  // by a warp, whose threads iterate equally often
  const unsigned sharer = threadIdx.x % kSharers;
  const std::uint64_t count = (n + kRun - 1) / kRun;
  for (std::uint64_t run = Place() / kSharers; run / kAtOnce * kAtOnce < count;
       run += Stride() / kSharers) {
    const std::uint64_t first = run * kRun;
    const std::uint64_t many = run < count ? Least(kRun, n - first) : 0;
    const typename Of::Sum sum = of.Run(first, many, sharer);
    if (sharer == 0 && run < count) runs[run] = sum;
  }
}

// The sum of `few` numbers, first to last; by a block, whose first thread adds what all have loaded.
template <class Sum>
__device__ Sum SumInOrder(const Sum* numbers, std::uint64_t few, Sum* fetched) {
  Sum sum = {};
  for (std::uint64_t first = 0; first < few; first += kThreads) {
    const std::uint64_t some = Least(kThreads, few - first);
    if (threadIdx.x < some) fetched[threadIdx.x] = numbers[first + threadIdx.x];
    __syncthreads();
    if (threadIdx.x == 0) {
#pragma unroll 8
      for (unsigned k = 0; k < some; ++k) AddTo(sum, fetched[k]);
    }
    __syncthreads();
  }
  return sum;
}

template <class Sum>
__global__ void __launch_bounds__(kThreads)
    BlocksKernel(const Sum* runs, std::uint64_t count, Sum* blocks) {
  __shared__ Sum fetched[kThreads];
  const std::uint64_t first = blockIdx.x * kRunsPerBlock;
  const Sum sum = SumInOrder(runs + first, Least(kRunsPerBlock, count - first), fetched);
  if (threadIdx.x == 0) blocks[blockIdx.x] = sum;
}

template <class Sum>
__global__ void __launch_bounds__(kThreads)
    TotalKernel(const Sum* blocks, std::uint64_t count, Sum* total) {
  __shared__ Sum fetched[kThreads];
  const Sum sum = SumInOrder(blocks, count, fetched);
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
  Launch(context, BlocksFor(context, runs * kSharers), kThreads, &RunsKernel<Of>, of, n, room);
  Launch(context, Blocks(n), kRunsPerBlock, &BlocksKernel<Sum>, room, runs, blocks);
  Launch(context, 1, kThreads, &TotalKernel<Sum>, blocks, Blocks(n), total);
}

// A warp per range: four threads per run, and all add them up.
__global__ void __launch_bounds__(kThreads)
    ContributeKernel(Values values, const Range* ranges, std::uint64_t range_count, double alpha,
                     double* averages) {
  constexpr unsigned kAtOnce = kWarp / kSharers;
  const unsigned sharer = threadIdx.x % kSharers, mine = threadIdx.x % kWarp / kSharers;
  const Both of{values};
  for (std::uint64_t r = Place() / kWarp; r < range_count; r += Stride() / kWarp) {
    const std::uint64_t first = ranges[r].first, count = ranges[r].count;
    double total = 0, block = 0;
    std::uint64_t done = 0;
    for (std::uint64_t at = 0; at < count; at += kAtOnce * kRun) {
      const std::uint64_t start = at + mine * kRun;
      const std::uint64_t many = start < count ? Least(kRun, count - start) : 0;
      const double sum = of.Run(first + start, many, sharer).magnitudes;
#pragma unroll
      for (unsigned run = 0; run < kAtOnce; ++run) {
        const double more = __shfl_sync(kAll, sum, static_cast<int>(run * kSharers));
        if (at + run * kRun >= count) continue;
        block += more;
        if (++done % kRunsPerBlock == 0) {
          total += block;
          block = 0;
        }
      }
    }
    if (threadIdx.x % kWarp > 0) continue;
    if (done % kRunsPerBlock != 0) total += block;
    const double mean = count == 0 ? 0.0 : total / static_cast<double>(count);
    averages[r] = alpha * averages[r] + (1 - alpha) * mean;
  }
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
  SumUp(context, Squares{{values, nullptr}}, n, sum, room);
}

void SumOfSquares(Context& context, const float* values, std::uint64_t n, double* sum) {
  auto* room = reinterpret_cast<double*>(context.Scratch(SquaresRoom(n) * sizeof(double)));
  SumOfSquaresIn(context, values, n, sum, room);
}

std::uint64_t NormsRoom(std::uint64_t n) { return (Runs(n) + Blocks(n)) * sizeof(NormPair); }

void NormsIn(Context& context, const float* a, const float* b, std::uint64_t n, Norms* norms,
             std::byte* room) {
  SumUp(context, Both{{a, b}}, n, reinterpret_cast<NormPair*>(norms),
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
  Launch(context, BlocksFor(context, count * kWarp), kThreads, &ContributeKernel,
         Values(values, nullptr), there, count, alpha, averages);
}

}  // namespace geomx::kernels::GEOMX_CUDA
