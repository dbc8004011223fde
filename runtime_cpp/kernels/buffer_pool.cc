#include "kernels/buffer_pool.h"

#include <algorithm>
#include <new>
#include <stdexcept>

#include "kernels/memory.h"

namespace geomx::kernels {

BufferPool::~BufferPool() {
  for (const Block& block : kept_) GiveBack(block.memory);
}

std::size_t BufferPool::kept() {
  const std::lock_guard lock(mutex_);
  return kept_bytes_;
}

std::shared_ptr<std::byte> BufferPool::Acquire(std::size_t bytes) {
  Block block{nullptr, bytes};
  {
    const std::lock_guard lock(mutex_);
    if (kind_ == Kind::kHost || (kind_ == Kind::kPinned && lent_bytes_ + bytes > most_)) {
      const auto plain = ShareMemory(bytes);
      return {plain, plain.get()};
    }
    // The smallest that is large enough, unless more than half of it would be wasted.
    auto best = kept_.end();
    for (auto each = kept_.begin(); each != kept_.end(); ++each) {
      if (each->bytes < bytes || each->bytes > 2 * bytes) continue;
      if (best == kept_.end() || each->bytes < best->bytes) best = each;
    }
    if (best != kept_.end()) {
      block = *best;
      kept_.erase(best);
      kept_bytes_ -= block.bytes;
    } else {
      block.memory = Take(bytes);
    }
    lent_bytes_ += block.bytes;
  }
  return {block.memory, [self = shared_from_this(), block](std::byte*) { self->Return(block); }};
}

std::byte* BufferPool::Take(std::size_t bytes) {
  const auto take = [&] {
    return kind_ == Kind::kPinned ? queue_->TakePinned(bytes) : queue_->Take(bytes);
  };
  try {
    return take();
  } catch (const std::bad_alloc&) {  // the kept buffers have other sizes
    for (const Block& block : kept_) GiveBack(block.memory);
    kept_.clear();
    kept_bytes_ = 0;
    return take();
  }
}

void BufferPool::Return(Block block) {
  const std::lock_guard lock(mutex_);
  lent_bytes_ -= block.bytes;
  if (block.bytes > most_) return GiveBack(block.memory);
  kept_.push_back(block);
  kept_bytes_ += block.bytes;
  while (kept_bytes_ > most_) {  // small ones are the least useful
    const auto least = std::min_element(
        kept_.begin(), kept_.end(), [](const Block& a, const Block& b) { return a.bytes < b.bytes; });
    GiveBack(least->memory);
    kept_bytes_ -= least->bytes;
    kept_.erase(least);
  }
}

void BufferPool::GiveBack(std::byte* memory) {
  try {
    kind_ == Kind::kPinned ? queue_->GivePinned(memory) : queue_->Give(memory);
  } catch (const std::runtime_error&) {
    // The device failed, which its user detects too; or the process is ending.
  }
}

void BufferPool::Fetch(void* to, const std::byte* from, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  queue_->WaitForAll();
  queue_->Copy(to, from, bytes);
  queue_->Wait();
}

}  // namespace geomx::kernels
