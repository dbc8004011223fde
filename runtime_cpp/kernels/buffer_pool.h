// A pool of buffers in the memory of a device, or of the host for copies to and from it.
//
// Allocating such memory stops the device or the host for longer than a tensor needs to cross the bus,
// so buffers that come back are kept for the next request, up to a bound. Any thread.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "kernels/queue.h"

namespace geomx::kernels {

class BufferPool : public std::enable_shared_from_this<BufferPool> {
 public:
  // The host's plain memory is as in memory.h.
  enum class Kind { kDevice, kPinned, kHost };

  // `queue` is used for nothing else. At most `most` bytes are kept, and of pinned memory as many at
  // most are out.
  BufferPool(std::unique_ptr<Queue> queue, Kind kind, std::size_t most)
      : queue_(std::move(queue)), kind_(kind), most_(most) {}
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // At least `bytes`, back in the pool when the last pointer is dropped: by then no queue may work on it.
  // Pinned memory beyond the bound is the host's own, to which copies are slower. Throws
  // std::bad_alloc. Any thread.
  std::shared_ptr<std::byte> Acquire(std::size_t bytes);

  std::size_t kept();
  // What lies in memory of this device, once all that works there is done.
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
