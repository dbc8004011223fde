#include "kernels/lender.h"

#include <algorithm>
#include <new>
#include <stdexcept>

#include "kernels/memory.h"

namespace geomx::kernels {

Lender::~Lender() {
  for (const Block& block : kept_) GiveBack(block.memory);
}

std::size_t Lender::kept() {
  const std::lock_guard lock(mutex_);
  return kept_bytes_;
}

std::shared_ptr<std::byte> Lender::Lend(std::size_t bytes) {
  Block block{nullptr, bytes};
  {
    const std::lock_guard lock(mutex_);
    if (kind_ == Kind::kHost || (kind_ == Kind::kPinned && lent_bytes_ + bytes > most_)) {
      const auto plain = ShareMemory(bytes);
      return {plain, plain.get()};
    }
    // The smallest that is large enough, but no waste of half of it.
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

std::byte* Lender::Take(std::size_t bytes) {
  const auto take = [&] {
    return kind_ == Kind::kPinned ? queue_->TakePinned(bytes) : queue_->Take(bytes);
  };
  try {
    return take();
  } catch (const std::bad_alloc&) {  // what is kept is of other sizes
    for (const Block& block : kept_) GiveBack(block.memory);
    kept_.clear();
    kept_bytes_ = 0;
    return take();
  }
}

void Lender::Return(Block block) {
  const std::lock_guard lock(mutex_);
  lent_bytes_ -= block.bytes;
  if (block.bytes > most_) return GiveBack(block.memory);
  kept_.push_back(block);
  kept_bytes_ += block.bytes;
  while (kept_bytes_ > most_) {  // the smallest serve the fewest
    const auto least = std::min_element(
        kept_.begin(), kept_.end(), [](const Block& a, const Block& b) { return a.bytes < b.bytes; });
    GiveBack(least->memory);
    kept_bytes_ -= least->bytes;
    kept_.erase(least);
  }
}

void Lender::GiveBack(std::byte* memory) {
  try {
    kind_ == Kind::kPinned ? queue_->GivePinned(memory) : queue_->Give(memory);
  } catch (const std::runtime_error&) {
    // The device failed, and whoever used it hears of it; or the process is ending.
  }
}

void Lender::Fetch(void* to, const std::byte* from, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  queue_->WaitForAll();
  queue_->Copy(to, from, bytes);
  queue_->Wait();
}

const Workplace& Host() {
  static const std::unique_ptr<Queue> queue = OpenQueue("cpu");
  static const auto memory = std::make_shared<Lender>(OpenQueue("cpu"), Lender::Kind::kHost, 0);
  static const Workplace host{*queue, *memory};
  return host;
}

Workshop::Workshop(const std::function<std::unique_ptr<Queue>()>& open,
                   std::uint64_t least_elements, std::size_t most_kept)
    : queue_(open()),
      memory_(std::make_shared<Lender>(open(), Lender::Kind::kDevice, most_kept)),
      least_(least_elements) {}

std::shared_ptr<std::byte> Workshop::Bring(const void* values, std::size_t bytes) {
  std::shared_ptr<std::byte> there = memory_->Lend(bytes);
  queue_->Copy(there.get(), values, bytes);
  return there;
}

std::byte* Resident::BytesAt(const Workplace& place, std::size_t bytes) {
  if (lender_.get() != &place.memory || bytes_ < bytes) {
    const std::shared_ptr<std::byte> loan = place.memory.Lend(bytes);
    std::vector<std::byte> passing(std::min(bytes_, bytes));
    if (!passing.empty()) {
      lender_->Fetch(passing.data(), loan_.get(), passing.size());
      place.queue.Copy(loan.get(), passing.data(), passing.size());
      place.queue.Wait();
    }
    place.queue.Clear(loan.get() + passing.size(), bytes - passing.size());
    loan_ = loan;
    lender_ = place.memory.shared_from_this();
    bytes_ = bytes;
  }
  return loan_.get();
}

}  // namespace geomx::kernels
