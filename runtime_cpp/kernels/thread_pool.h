// Several cores for one large array.
//
// Kernels work through arrays in blocks of fixed size, whatever the number of threads, and what they
// add up over elements they add up per block first; so no answer depends on how many threads there
// are, or on which of them was faster. The pool belongs to the process. It is off until SetThreads,
// and a second caller, while it is busy, works alone: no caller waits for another's array.
#pragma once

#include <cstdint>

namespace geomx::kernels {

inline constexpr std::uint64_t kBlock = std::uint64_t{1} << 16;  // elements

inline std::uint64_t Blocks(std::uint64_t n) { return (n + kBlock - 1) / kBlock; }

// How many threads may work on one array, the caller's included; 0 counts as 1. Waits for arrays
// that are being worked on. Throws std::system_error if the system has no more threads to give.
void SetThreads(unsigned threads);
unsigned Threads();

namespace internal {
using BlockFunction = void (*)(const void* context, std::uint64_t first, std::uint64_t count);
void RunBlocks(std::uint64_t n, BlockFunction function, const void* context);
}  // namespace internal

// Calls run(first, count) for every block of [0, n), each once, and returns when all are done. What
// a call throws is thrown here, once the others have ended.
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

}  // namespace geomx::kernels
