// A pool of buffers in the memory of a device, or of the host for copies to and from it.
//
// Allocating such memory stalls the device or the host for longer than the copy of a tensor, so
// released buffers are kept for later requests, up to a bound. Any thread.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "kernels/queue.h"

namespace geomx::kernels {

class BufferPool : public std::enable_shared_from_this<BufferPool> {
 public:
  // kHost: the memory of memory.h.
  enum class Kind { kDevice, kPinned, kHost };

  // `queue` must not be used otherwise. At most `most` bytes are kept; for pinned memory, `most`
  // also bounds the bytes in use.
  BufferPool(std::unique_ptr<Queue> queue, Kind kind, std::size_t most)
      : queue_(std::move(queue)), kind_(kind), most_(most) {}
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // Returns at least `bytes`, which go back to the pool when the last pointer is dropped: no queue
  // may be using them then. Beyond the bound of pinned memory, returns plain host memory, for which
  // copies are slower. Throws std::bad_alloc. Any thread.
  std::shared_ptr<std::byte> Acquire(std::size_t bytes);

  std::size_t kept();
  // Copies memory of this device to the host, after all work queued on the device.
  void Fetch(void* to, const std::byte* from, std::size_t bytes);

 private:
  struct Block {
    std::byte* memory;
    std::size_t bytes;
  };

  std::byte* Take(std::size_t bytes);
  void Return(Block block);
  void GiveBack(std::byte* memory);

  std::mutex mutex_;
  std::unique_ptr<Queue> queue_;
  Kind kind_;
  std::size_t most_, kept_bytes_ = 0, lent_bytes_ = 0;
  std::vector<Block> kept_;
};

}  // namespace geomx::kernels
