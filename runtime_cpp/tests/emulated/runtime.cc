// Fibers for the threads of a block, and the longer functions of CUDA's runtime.
#include <ucontext.h>

#include <cstdlib>
#include <exception>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "tests/emulated/cuda_runtime.h"

namespace geomx::emulated {
namespace {

constexpr std::size_t kStack = std::size_t{64} << 10;
constexpr unsigned kLanes = 32;

enum class State { kReady, kAtBlock, kAtWarp, kDone };

struct Fiber {
  ucontext_t context;
  std::unique_ptr<char[]> stack{new char[kStack]};
  State state = State::kDone;
  std::uint64_t brought = 0;
};

struct Block {
  std::vector<Fiber> fibers;
  std::vector<std::uint64_t> met;  // values of the lanes at each warp's last barrier
  ucontext_t scheduler;
  unsigned running = 0;
  const std::function<void()>* thread = nullptr;
  std::exception_ptr error;
};
Block block;

void Body() {
  try {
    (*block.thread)();
  } catch (...) {
    block.error = std::current_exception();
  }
  block.fibers[block.running].state = State::kDone;
}

void Pause(State state) {
  const unsigned me = block.running;
  block.fibers[me].state = state;
  swapcontext(&block.fibers[me].context, &block.scheduler);
}

void Resume(unsigned fiber) {
  block.running = fiber;
  threadIdx = dim3(fiber);
  swapcontext(&block.scheduler, &block.fibers[fiber].context);
}

// Resumes groups of threads that have all reached their barrier. Returns false if there are none.
bool Release(unsigned threads) {
  bool somebody = false;
  for (unsigned first = 0; first < threads; first += kLanes) {
    unsigned here = 0;
    for (unsigned lane = 0; lane < kLanes && first + lane < threads; ++lane) {
      here += block.fibers[first + lane].state == State::kAtWarp;
    }
    if (here < kLanes) continue;  // kernels synchronise all lanes
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      block.met[first + lane] = block.fibers[first + lane].brought;
      block.fibers[first + lane].state = State::kReady;
    }
    somebody = true;
  }
  unsigned here = 0;
  for (unsigned fiber = 0; fiber < threads; ++fiber) {
    here += block.fibers[fiber].state == State::kAtBlock;
  }
  if (here == threads) {  // stricter than hardware, which ignores ended threads
    for (unsigned fiber = 0; fiber < threads; ++fiber) block.fibers[fiber].state = State::kReady;
    somebody = true;
  }
  return somebody;
}

void RunBlock(unsigned threads) {
  for (unsigned fiber = 0; fiber < threads; ++fiber) {
    Fiber& each = block.fibers[fiber];
    getcontext(&each.context);
    each.context.uc_stack.ss_sp = each.stack.get();
    each.context.uc_stack.ss_size = kStack;
    each.context.uc_link = &block.scheduler;
    makecontext(&each.context, &Body, 0);
    each.state = State::kReady;
  }
  do {
    for (unsigned fiber = 0; fiber < threads; ++fiber) {
      if (block.fibers[fiber].state == State::kReady) Resume(fiber);
      if (block.error) std::rethrow_exception(std::exchange(block.error, nullptr));
    }
  } while (Release(threads));
  for (unsigned fiber = 0; fiber < threads; ++fiber) {
    if (block.fibers[fiber].state != State::kDone) {
      throw std::logic_error("threads wait at a barrier that others do not come to");
    }
  }
}

}  // namespace

void RunGrid(dim3 blocks, dim3 threads, const std::function<void()>& thread) {
  if (blocks.x == 0 || threads.x == 0 || threads.x > 1024) {
    throw std::logic_error("no such grid");
  }
  if (block.fibers.size() < threads.x) block.fibers = std::vector<Fiber>(threads.x);
  block.met.resize(block.fibers.size() + kLanes);
  block.thread = &thread;
  gridDim = blocks;
  blockDim = threads;
  // In reverse order, because kernels must not depend on the order.
  for (unsigned number = blocks.x; number-- > 0;) {
    blockIdx = dim3(number);
    RunBlock(threads.x);
  }
}

void MeetBlock() { Pause(State::kAtBlock); }

const std::uint64_t* MeetWarp(std::uint64_t brought) {
  const unsigned me = block.running;
  block.fibers[me].brought = brought;
  Pause(State::kAtWarp);
  return &block.met[me / kLanes * kLanes];
}

}  // namespace geomx::emulated

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  // Exactly the requested size, filled with garbage, so that sanitizers and tests detect errors.
  if (posix_memalign(memory, 256, bytes) != 0) return cudaErrorMemoryAllocation;
  std::memset(*memory, 0xa5, bytes);
  return cudaSuccess;
}

cudaError_t cudaFree(void* memory) {
  free(memory);
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* about, int) {
  *about = {"emulated", 9, 9, 0};
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = 1;
  return cudaSuccess;
}
