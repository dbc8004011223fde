// The places where codecs and optimizers process whole tensors (the host or a device), and the
// arrays that they keep from round to round, which move to where they are needed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/buffer_pool.h"
#include "kernels/queue.h"

namespace geomx::kernels {

// A device's queue and memory, for callers of kernels. A buffer of `memory` must live until the
// work on it is done: codecs add it to the owners of the parts that they encode.
struct DeviceContext {
  Queue& queue;
  BufferPool& memory;
};

// The host's context, which executes everything at once. Any thread.
const DeviceContext& Host();

// A queue and memory on a device, for one thread.
class Device {
 public:
  // Below this size, launching work takes about as long as doing it on the host.
  static constexpr std::uint64_t kLeastElements = std::uint64_t{1} << 14;

  // Arrays of fewer elements than `least_elements` stay on the host. `most_kept`: see BufferPool.
  Device(const std::function<std::unique_ptr<Queue>()>& open, std::uint64_t least_elements,
           std::size_t most_kept = std::size_t{256} << 20);

  bool Suits(std::uint64_t elements) const { return elements >= least_; }
  DeviceContext context() { return {*queue_, *memory_}; }
  // Copies host memory to the device, as work of the queue. The caller may change `values` at once.
  std::shared_ptr<std::byte> Upload(const void* values, std::size_t bytes);
  // Copies device memory to the host, as work of the queue.
  std::shared_ptr<std::byte> Download(const std::byte* there, std::size_t bytes);
  // Work in the queue uses `memory`.
  void Keep(std::shared_ptr<const void> memory) { in_use_.push_back(std::move(memory)); }

  // A mark behind all work queued so far, and the memory that this work uses, to be released when
  // the mark has passed.
  struct End {
    std::shared_ptr<Mark> mark;
    std::vector<std::shared_ptr<const void>> memory;
  };
  End Finish() { return {queue_->Record(), std::exchange(in_use_, {})}; }

 private:
  std::unique_ptr<Queue> queue_;
  std::shared_ptr<BufferPool> memory_, pinned_;
  std::vector<std::shared_ptr<const void>> in_use_;
  std::uint64_t least_;
};

// State of a codec or an optimizer, kept from round to round where it was last used.
class Resident {
 public:
  Resident() = default;
  Resident(Resident&& other) noexcept { *this = std::move(other); }
  Resident& operator=(Resident&& other) noexcept {
    buffer_ = std::move(other.buffer_);
    pool_ = std::move(other.pool_);
    bytes_ = std::exchange(other.bytes_, 0);
    return *this;
  }

  // Returns `n` values on `device`: zeros at first, then their last state. A request for another
  // place copies them and waits for the device.
  template <class T = float>
  T* At(const DeviceContext& device, std::uint64_t n) {
    return reinterpret_cast<T*>(BytesAt(device, n * sizeof(T)));
  }
  // Keeps those values alive until queued work is done.
  const std::shared_ptr<std::byte>& buffer() const { return buffer_; }
  bool empty() const { return bytes_ == 0; }
  // Returns a copy of all bytes on the host, after waiting for the device.
  std::vector<std::byte> Fetch() const;
  // Returns the sum of the squares of the float32 values, wherever they are; leaves them there.
  double SumOfSquares() const;

 private:
  std::byte* BytesAt(const DeviceContext& device, std::size_t bytes);

  std::shared_ptr<std::byte> buffer_;
  std::shared_ptr<BufferPool> pool_;
  std::size_t bytes_ = 0;
};

}  // namespace geomx::kernels
