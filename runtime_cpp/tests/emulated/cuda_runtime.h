// The part of CUDA that geomx's kernels use, on the processor. Tests compile the kernels with this
// header instead of NVIDIA's, and run them without a GPU. Each thread of a block is a fiber that runs
// up to the next barrier; a barrier that not all threads reach is an error. Effects of hardware, such
// as memory that is not coherent and real concurrency, are not emulated.
#pragma once

#include <math.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

#define __global__
#define __device__
#define __shared__ static  // blocks run sequentially
#define __launch_bounds__(...)

struct dim3 {
  unsigned x, y, z;
  dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
inline dim3 threadIdx, blockIdx, blockDim, gridDim;  // of the running fiber

struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

namespace geomx::emulated {

// Calls `thread` for every thread of every block. Throws std::logic_error if a barrier is missed.
void RunGrid(dim3 blocks, dim3 threads, const std::function<void()>& thread);

// Waits for all threads of the block.
void MeetBlock();
// Waits for all lanes of the warp; returns the values that they passed.
const std::uint64_t* MeetWarp(std::uint64_t brought);

template <class T>
std::uint64_t Packed(T value) {
  static_assert(sizeof(T) <= sizeof(std::uint64_t));
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits;
}
template <class T>
T Unpacked(std::uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

}  // namespace geomx::emulated

inline void __syncthreads() { geomx::emulated::MeetBlock(); }
inline void __threadfence() {}

template <class T>
T __shfl_sync(unsigned, T value, int lane, unsigned width = 32) {
  const unsigned first = threadIdx.x % 32 / width * width;
  const std::uint64_t* all = geomx::emulated::MeetWarp(geomx::emulated::Packed(value));
  return geomx::emulated::Unpacked<T>(all[first + static_cast<unsigned>(lane) % width]);
}

template <class T>
T __shfl_up_sync(unsigned, T value, unsigned step) {
  const unsigned lane = threadIdx.x % 32;
  const std::uint64_t* all = geomx::emulated::MeetWarp(geomx::emulated::Packed(value));
  return lane < step ? value : geomx::emulated::Unpacked<T>(all[lane - step]);
}

inline unsigned __ballot_sync(unsigned, bool mine) {
  const std::uint64_t* all = geomx::emulated::MeetWarp(mine);
  unsigned votes = 0;
  for (unsigned lane = 0; lane < 32; ++lane) votes |= static_cast<unsigned>(all[lane]) << lane;
  return votes;
}

template <class T>
T atomicAdd(T* place, T more) {
  const T before = *place;
  *place += more;
  return before;
}

inline int __popc(unsigned bits) { return std::popcount(bits); }
inline unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }
inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline float __fsqrt_rn(float value) { return sqrtf(value); }

// ---- the runtime: all calls are synchronous ----

enum cudaError_t { cudaSuccess, cudaErrorMemoryAllocation, cudaErrorNotReady };
enum cudaMemcpyKind { cudaMemcpyDefault };
enum cudaDeviceAttr { cudaDevAttrMultiProcessorCount };
using cudaStream_t = struct EmulatedStream*;
using cudaEvent_t = struct EmulatedEvent*;
inline constexpr unsigned cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2;
inline constexpr unsigned cudaEventBlockingSync = 1;
inline constexpr unsigned cudaHostAllocPortable = 1;

struct cudaDeviceProp {
  char name[256];
  int major, minor;
  std::size_t totalGlobalMem;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  std::size_t dynamicSmemBytes;
  cudaStream_t stream;
};

cudaError_t cudaMalloc(void** memory, std::size_t bytes);
cudaError_t cudaFree(void* memory);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* about, int device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);

inline cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned) {
  return cudaMalloc(memory, bytes);
}
inline cudaError_t cudaFreeHost(void* memory) { return cudaFree(memory); }
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                                   cudaStream_t) {
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void* memory, int byte, std::size_t bytes, cudaStream_t) {
  std::memset(memory, byte, bytes);
  return cudaSuccess;
}
inline cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
inline cudaError_t cudaDriverGetVersion(int* version) { return *version = 0, cudaSuccess; }
inline cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
inline cudaError_t cudaSetDevice(int) { return cudaSuccess; }
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return *stream = nullptr, cudaSuccess;
}
inline cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
inline cudaError_t cudaStreamQuery(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return *event = nullptr, cudaSuccess;
}
inline cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline const char* cudaGetErrorString(cudaError_t) { return "emulated"; }

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  geomx::emulated::RunGrid(config->gridDim, config->blockDim, [&] { kernel(arguments...); });
  return cudaSuccess;
}
