// Shared by all device code here: errors, launches, scratch memory, and access to unaligned memory.
// Private to this folder.
//
// Arrays may be views that begin at any address of their type: kernels move 16 bytes at a time
// where all addresses allow it, and single elements elsewhere. Counts are 64-bit throughout.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <stdexcept>
#include <string>

#ifndef GEOMX_CUDA  // tests compile the same code for a device of their own
#define GEOMX_CUDA cuda
#endif

namespace geomx::kernels::GEOMX_CUDA {

inline constexpr unsigned kThreads = 256;  // of a block
inline constexpr unsigned kWarp = 32;
inline constexpr unsigned kAll = 0xffffffffu;  // lanes of a warp
inline constexpr unsigned kWave = 16;          // blocks per multiprocessor that keep it busy

inline void Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  (void)cudaGetLastError();  // clears the error
  if (error == cudaErrorMemoryAllocation) throw std::bad_alloc();
  throw std::runtime_error(std::string("cuda: ") + what + ": " + cudaGetErrorString(error));
}

// A stream, and scratch memory that kernels use to pass data on: one growing block that every
// operation reuses, which is safe because a stream executes in order.
struct Context {
  int device = 0;
  unsigned multiprocessors = 1;
  cudaStream_t stream = nullptr;
  std::byte* memory = nullptr;
  std::size_t room = 0;

  std::byte* Scratch(std::size_t bytes) {
    if (bytes <= room) return memory;
    if (memory != nullptr) {
      Check(cudaStreamSynchronize(stream), "waiting for the stream");
      Check(cudaFree(memory), "freeing memory");
      memory = nullptr;
      room = 0;
    }
    const std::size_t wanted = bytes + bytes / 4;
    Check(cudaMalloc(reinterpret_cast<void**>(&memory), wanted), "allocating memory");
    room = wanted;
    return memory;
  }
};

// Allocates pieces of scratch memory; with null memory, computes the size needed.
class Outline {
 public:
  explicit Outline(std::byte* memory) : memory_(memory) {}

  template <class T>
  T* Piece(std::uint64_t count) {
    const std::size_t at = bytes_;
    bytes_ += (count * sizeof(T) + 255) / 256 * 256;
    return memory_ == nullptr ? nullptr : reinterpret_cast<T*>(memory_ + at);
  }
  std::size_t bytes() const { return bytes_; }

 private:
  std::byte* memory_;
  std::size_t bytes_ = 0;
};

template <class... Parameters, class... Arguments>
void Launch(const Context& context, std::uint64_t blocks, unsigned threads,
            void (*kernel)(Parameters...), Arguments... arguments) {
  if (blocks == 0) return;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(blocks), 1, 1);
  config.blockDim = dim3(threads, 1, 1);
  config.stream = context.stream;
  Check(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...), "launching");
}

// The number of blocks for `items` of a grid-stride loop.
inline std::uint64_t BlocksFor(const Context& context, std::uint64_t items) {
  const std::uint64_t wanted = (items + kThreads - 1) / kThreads;
  const std::uint64_t most = std::uint64_t{context.multiprocessors} * kWave;
  return wanted < most ? wanted : most;
}

// A thread's index in the whole grid, and the number of threads.
__device__ inline std::uint64_t Place() {
  return std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
}
__device__ inline std::uint64_t Stride() { return std::uint64_t{gridDim.x} * blockDim.x; }

// Returns true in the last block to call it, which then sees what all blocks have written before their
// calls. Every thread of the grid calls it once. `ended` counts blocks: 0 before the kernel and after it.
__device__ inline bool IsLastBlock(unsigned* ended) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    last = atomicAdd(ended, 1u) + 1 == gridDim.x;
    if (last) *ended = 0;
  }
  __syncthreads();
  __threadfence();
  return last;
}

template <class... Pointers>
bool Aligned16(const Pointers*... pointers) {
  return ((reinterpret_cast<std::uintptr_t>(pointers) % 16 == 0) && ...);
}

// Four values at an address that is aligned to 16 bytes.
__device__ inline void LoadFour(const float* from, float (&to)[4]) {
  const float4 four = *reinterpret_cast<const float4*>(from);
  to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
}
__device__ inline void StoreFour(float* to, const float (&from)[4]) {
  *reinterpret_cast<float4*>(to) = make_float4(from[0], from[1], from[2], from[3]);
}

// Four values from i on, wherever they begin; those beyond n are left as they are.
__device__ inline void Load4(const float* from, std::uint64_t i, std::uint64_t n, bool aligned,
                             float (&to)[4]) {
  if (aligned && i + 4 <= n) return LoadFour(from + i, to);
#pragma unroll
  for (unsigned k = 0; k < 4; ++k) {
    if (i + k < n) to[k] = from[i + k];
  }
}

__device__ inline void Store4(float* to, std::uint64_t i, std::uint64_t n, bool aligned,
                              const float (&from)[4]) {
  if (aligned && i + 4 <= n) return StoreFour(to + i, from);
#pragma unroll
  for (unsigned k = 0; k < 4; ++k) {
    if (i + k < n) to[i + k] = from[k];
  }
}

// Numbers at any address, lowest byte first.
__device__ inline std::uint32_t LoadWord(const std::byte* from) {
  if (reinterpret_cast<std::uintptr_t>(from) % 4 == 0) {
    return *reinterpret_cast<const std::uint32_t*>(from);
  }
  std::uint32_t word = 0;
  for (unsigned k = 0; k < 4; ++k) word |= static_cast<std::uint32_t>(from[k]) << 8 * k;
  return word;
}
__device__ inline std::uint16_t LoadShort(const std::byte* from) {
  if (reinterpret_cast<std::uintptr_t>(from) % 2 == 0) {
    return *reinterpret_cast<const std::uint16_t*>(from);
  }
  const auto low = static_cast<unsigned>(from[0]), high = static_cast<unsigned>(from[1]);
  return static_cast<std::uint16_t>(low | high << 8);
}

// The sum over the block's threads before this one; `total` is that of all. `room` holds a number
// per warp, and may be reused after the next __syncthreads.
__device__ inline std::uint64_t SumBefore(std::uint64_t mine, std::uint64_t& total,
                                          std::uint64_t* room) {
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  std::uint64_t upto = mine;
#pragma unroll
  for (unsigned step = 1; step < kWarp; step *= 2) {
    const std::uint64_t before = __shfl_up_sync(kAll, upto, step);
    if (lane >= step) upto += before;
  }
  if (lane == kWarp - 1) room[warp] = upto;
  __syncthreads();
  std::uint64_t ahead = 0;
  total = 0;
  for (unsigned other = 0; other < kThreads / kWarp; ++other) {
    if (other < warp) ahead += room[other];
    total += room[other];
  }
  return ahead + upto - mine;
}

}  // namespace geomx::kernels::GEOMX_CUDA
