// The kernels on a device, behind one interface for all devices.
//
// A Queue is work on one device, executed in the order of submission. The processor's queue
// executes it at once, with the kernels of this folder; a GPU's submits it to its own stream and
// returns, and its kernels (cuda/) give the same bits. Arrays are addressed by the device's
// pointers; data-dependent values (counts of entries, a norm) stay on the device, so the host never
// waits for them.
//
// A queue is used by one thread at a time. Several queues of a device overlap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/selector.h"
#include "kernels/sparse.h"
#include "kernels/steps.h"
#include "kernels/sums.h"
#include "kernels/ternary.h"

namespace geomx::kernels {

struct DeviceInfo {
  std::string name;         // "cpu", "cuda:0"
  std::string description;  // "NVIDIA H200, sm_90, 139.8 GiB, driver 13.0"
};

// The processor first, then every GPU that this build has code for.
std::vector<DeviceInfo> Devices();

// The CUDA support of this build: "no_cuda", or the toolkit's version and the architectures
// covered.
std::string CudaBuild();

// A marker in a queue, behind the work submitted before it. Any thread may wait for it.
class Mark {
 public:
  Mark() = default;
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;
  virtual ~Mark() = default;
  // Throws std::runtime_error if any of that work failed.
  virtual void Wait() = 0;
};

class Queue {
 public:
  Queue() = default;
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;
  virtual ~Queue() = default;

  virtual const DeviceInfo& device() const = 0;

  // ---- memory, order ----

  // Returns at least `bytes` of device memory, not cleared, aligned to 256; null for 0. Throws
  // std::bad_alloc.
  virtual std::byte* Take(std::size_t bytes) = 0;
  // Frees memory once all work submitted here is done. Null is ignored.
  virtual void Give(std::byte* memory) = 0;
  // Pinned host memory, for fast copies to and from the device that do not block the host.
  virtual std::byte* TakePinned(std::size_t bytes) = 0;
  virtual void GivePinned(std::byte* memory) = 0;

  // Either side may be host memory, which must not change until Wait.
  virtual void Copy(void* to, const void* from, std::size_t bytes) = 0;
  virtual void Clear(void* memory, std::size_t bytes) = 0;

  // Waits until all submitted work is done. Throws std::runtime_error if any of it failed.
  virtual void Wait() = 0;
  // Waits for all queues of this device.
  virtual void WaitForAll() = 0;
  // Returns true if Wait would return at once.
  virtual bool Done() = 0;

  // Streams are cudaStream_t as numbers: this queue's own, 0 where there are none.
  virtual std::uintptr_t stream() const = 0;
  // `stream` is such a number, 0 the default stream. After: work submitted here from now on runs
  // after the work of `stream` so far; Before: the other way round. The caller does not wait.
  virtual void After(std::uintptr_t stream) = 0;
  virtual void Before(std::uintptr_t stream) = 0;

  virtual std::shared_ptr<Mark> Record() = 0;
  // Work submitted here from now on runs after `mark`, which is of a queue of this device.
  virtual void After(const Mark& mark) = 0;

  // ---- half.h, bfloat.h ----

  virtual void Narrow(const float* in, std::uint16_t* out, std::uint64_t n) = 0;
  virtual void Widen(const std::byte* in, float* out, std::uint64_t n) = 0;
  virtual void WidenAdd(const std::byte* in, float* out, std::uint64_t n) = 0;
  virtual void NarrowBfloat(const float* in, std::uint16_t* out, std::uint64_t n) = 0;
  virtual void WidenBfloat(const std::byte* in, float* out, std::uint64_t n) = 0;
  virtual void WidenBfloatAdd(const std::byte* in, float* out, std::uint64_t n) = 0;

  // ---- sums.h; `terms`, `ranges` and `count` are on the host, results go to the device ----

  virtual void Add(float* sum, const float* const* terms, std::size_t count, std::uint64_t n) = 0;
  virtual void AddBytes(const std::byte* in, float* out, std::uint64_t n) = 0;
  virtual void SumOfSquares(const float* values, std::uint64_t n, double* sum) = 0;
  virtual void NormsOf(const float* a, const float* b, std::uint64_t n, Norms* norms) = 0;
  virtual void Contribute(const float* values, const Range* ranges, std::uint64_t count,
                          double alpha, double* averages) = 0;

  // ---- selector.h, bits.h, sparse.h ----

  // The chosen entries go to `indices` and `values`, which have room for `rows`; `next_fill` is
  // where filling up continues (0 at first), kept between the calls for a tensor.
  virtual void Sparsify(const Sparsification& how, const float* term, float* velocity, float* sum,
                        std::uint64_t n, std::uint64_t rows, std::uint64_t* next_fill,
                        std::uint32_t* indices, float* values) = 0;
  virtual void PackBits(const std::uint32_t* numbers, std::uint64_t count, std::uint32_t bits,
                        std::byte* out) = 0;
  virtual void UnpackBits(const std::byte* in, std::uint64_t count, std::uint32_t bits,
                          std::uint32_t* out) = 0;
  virtual void Gather(const float* from, const std::uint32_t* rows, std::uint64_t count,
                      float* out) = 0;
  virtual void Scatter(const float* values, const std::uint32_t* rows, std::uint64_t count,
                       float* to) = 0;
  // If an index is `elements` or more, `refused` becomes 1 and nothing is added; otherwise 0.
  virtual void ScatterAdd(const std::byte* values, const std::byte* indices, std::uint64_t count,
                          std::uint64_t elements, float* out, std::uint32_t* refused) = 0;

  // ---- ternary.h ----

  virtual void Quantise(const Ternary& ternary, const float* added, float* residual,
                        std::byte* codes, std::uint64_t n) = 0;
  virtual void QuantiseToLevel(const float* added, float* residual, float* level,
                               std::byte* codes, std::uint64_t n) = 0;
  virtual void Worth(float scale, const std::byte* codes, float* out, std::uint64_t n) = 0;
  virtual void WorthAdd(float scale, const std::byte* codes, float* out, std::uint64_t n) = 0;

  // ---- steps.h ----

  virtual void Sgd(const Descent& step, float* weight, const float* gradient, std::uint64_t n) = 0;
  virtual void Momentum(const Descent& step, float momentum, float* weight, const float* gradient,
                        float* velocity, std::uint64_t n) = 0;
  virtual void Nesterov(const Descent& step, float momentum, float* weight, const float* gradient,
                        float* velocity, std::uint64_t n) = 0;
  virtual void Adam(const Descent& step, const Moments& moments, float* weight,
                    const float* gradient, float* mean, float* square, std::uint64_t n) = 0;
  virtual void AdamW(const Descent& step, const Moments& moments, float correction, float* weight,
                     const float* gradient, float* mean, float* square, std::uint64_t n) = 0;
  virtual void RmsPropPlain(const Descent& step, const RmsProp& rms, float* weight,
                            const float* gradient, float* square, std::uint64_t n) = 0;
  virtual void RmsPropCentered(const Descent& step, const RmsProp& rms, float* weight,
                               const float* gradient, float* square, float* mean, float* velocity,
                               std::uint64_t n) = 0;
  virtual void AdaGrad(const Descent& step, float epsilon, float* weight, const float* gradient,
                       float* history, std::uint64_t n) = 0;
  virtual void DcAsgd(const Descent& step, const Compensation& compensation, float* weight,
                      const float* gradient, float* backup, float* velocity, float* mean_square,
                      std::uint64_t n) = 0;
};

// A queue on the device of that name. Throws std::invalid_argument if there is none.
std::unique_ptr<Queue> OpenQueue(const std::string& device);

namespace cuda {  // cuda/queue.cu, or cuda/absent.cc

std::vector<DeviceInfo> Devices();
std::string Build();
std::unique_ptr<Queue> Open(const DeviceInfo& device);

}  // namespace cuda
}  // namespace geomx::kernels
