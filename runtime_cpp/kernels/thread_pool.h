// Several cores for one large array.
//
// Kernels process arrays in blocks of fixed size, and sum over elements per block first, so no
// result depends on the number of threads or on their speed. The pool belongs to the process and is
// off until SetThreads. While it is busy, a second caller works alone: callers never wait for each
// other.
#pragma once

#include <algorithm>
#include <cstdint>

namespace geomx::kernels {

inline constexpr std::uint64_t kBlock = std::uint64_t{1} << 16;  // elements

inline std::uint64_t Blocks(std::uint64_t n) { return (n + kBlock - 1) / kBlock; }

// Sets how many threads may work on one array, the caller's included; 0 counts as 1. Waits for
// running calls. Throws std::system_error if the system cannot create more threads.
void SetThreads(unsigned threads);
unsigned Threads();

namespace internal {
using BlockFunction = void (*)(const void* context, std::uint64_t first, std::uint64_t count);
void RunBlocks(std::uint64_t n, BlockFunction function, const void* context);
}  // namespace internal

// Calls run(first, count) once for every block of [0, n), and returns when all are done. Rethrows
// an exception of a call once the others have ended.
template <class Run>
void ForBlocks(std::uint64_t n, const Run& run) {
  if (n <= kBlock) {
    if (n > 0) run(std::uint64_t{0}, n);
    return;
  }
  internal::RunBlocks(
      n,
      [](const void* context, std::uint64_t first, std::uint64_t count) {
        (*static_cast<const Run*>(context))(first, count);
      },
      &run);
}

// Calls run(item) for all items of `each` elements, on several threads if there are many.
template <class Run>
void ForItems(std::uint64_t items, std::uint64_t each, const Run& run) {
  const std::uint64_t together = std::max<std::uint64_t>(1, kBlock / std::max<std::uint64_t>(1, each));
  const std::uint64_t tasks = (items + together - 1) / together;
  ForBlocks(tasks * kBlock, [&](std::uint64_t first, std::uint64_t) {
    const std::uint64_t from = first / kBlock * together;
    for (std::uint64_t i = from; i < std::min(items, from + together); ++i) run(i);
  });
}

}  // namespace geomx::kernels
