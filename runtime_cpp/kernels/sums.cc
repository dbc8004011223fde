#include "kernels/sums.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "kernels/loops.h"
#include "kernels/thread_pool.h"

namespace geomx::kernels {
namespace {

constexpr std::size_t kAtOnce = 4;  // terms

// run(first, count) for each run of a block, added up.
template <class Sum, class Run>
Sum OverRuns(std::uint64_t first, std::uint64_t count, const Run& run) {
  Sum sum = {};
  for (std::uint64_t at = 0; at < count; at += kRun) {
    sum += run(first + at, std::min(kRun, count - at));
  }
  return sum;
}

// The same over all blocks, in their order.
template <class Sum, class Run>
Sum OverBlocks(std::uint64_t n, const Run& run) {
  if (n <= kBlock) return OverRuns<Sum>(0, n, run);
  std::vector<Sum> sums(Blocks(n));
  ForBlocks(n, [&](std::uint64_t first, std::uint64_t count) {
    sums[first / kBlock] = OverRuns<Sum>(first, count, run);
  });
  Sum total = {};
  for (const Sum& sum : sums) total += sum;
  return total;
}

}  // namespace

void Add(float* sum, const float* const* terms, std::size_t count, std::uint64_t n) {
  if (count == 0) return;
  const Loops& loops = TheLoops();
  ForBlocks(n, [&](std::uint64_t first, std::uint64_t many) {
    if (count <= kAtOnce) {
      const float* here[kAtOnce];
      for (std::size_t i = 0; i < count; ++i) here[i] = terms[i] + first;
      return loops.add(sum + first, here, count, many);
    }
    // With more terms, a piece of the sum that fits the first-level cache is completed before the
    // next.
    for (std::uint64_t at = first; at < first + many; at += kRun) {
      for (std::size_t term = 0; term < count; term += kAtOnce) {
        const std::size_t few = std::min(kAtOnce, count - term);
        const float* here[kAtOnce];
        for (std::size_t i = 0; i < few; ++i) here[i] = terms[term + i] + at;
        loops.add(sum + at, here, few, std::min(kRun, first + many - at));
      }
    }
  });
}

void AddBytes(const std::byte* in, float* out, std::uint64_t n) {
  const Loops& loops = TheLoops();
  ForBlocks(n, [&](std::uint64_t first, std::uint64_t count) {
    loops.add_bytes(in + sizeof(float) * first, out + first, count);
  });
}

double SumOfSquares(const float* values, std::uint64_t n) {
  const Loops& loops = TheLoops();
  return OverBlocks<double>(n, [&](std::uint64_t first, std::uint64_t count) {
    return loops.squares(values + first, count);
  });
}

double SumOfMagnitudes(const float* values, std::uint64_t n) {
  const Loops& loops = TheLoops();
  return OverBlocks<double>(n, [&](std::uint64_t first, std::uint64_t count) {
    return loops.magnitudes(values + first, count);
  });
}

bool AllFinite(const float* values, std::uint64_t n) {
  const Loops& loops = TheLoops();
  std::atomic<bool> finite = true;
  ForBlocks(n, [&](std::uint64_t first, std::uint64_t count) {
    if (!loops.finite(values + first, count)) finite.store(false, std::memory_order_relaxed);
  });
  return finite.load(std::memory_order_relaxed);
}

Norms NormsOf(const float* a, const float* b, std::uint64_t n) {
  const Loops& loops = TheLoops();
  return OverBlocks<Norms>(n, [&](std::uint64_t first, std::uint64_t count) {
    return loops.norms(a + first, b == nullptr ? nullptr : b + first, count);
  });
}

void Contribute(const float* values, const Range* ranges, std::uint64_t count, double alpha,
                double* averages) {
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto [first, many] = ranges[i];
    const double mean =
        many == 0 ? 0 : SumOfMagnitudes(values + first, many) / static_cast<double>(many);
    averages[i] = alpha * averages[i] + (1 - alpha) * mean;
  }
}

}  // namespace geomx::kernels
