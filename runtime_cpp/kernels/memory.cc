#include "kernels/memory.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <mutex>

#if defined(__GLIBC__)
#include <malloc.h>
#endif
#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace geomx::kernels {
namespace {

constexpr std::size_t kLarge = std::size_t{64} << 10;
constexpr std::size_t kHuge = std::size_t{4} << 20;      // from here on in huge pages
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::align_val_t kLine{64};

// Sizes come in steps of an eighth, so that a block can be reused for similar sizes.
std::size_t SizeClass(std::size_t bytes) {
  const std::size_t step = std::bit_floor(bytes) / 8;
  return (bytes + step - 1) / step * step;
}

std::align_val_t AlignmentOf(std::size_t size) {
  return size >= kHuge ? std::align_val_t{kHugePage} : kLine;
}

void* FreshMemory(std::size_t size) {
  void* memory = ::operator new(size, AlignmentOf(size));
#if defined(__linux__)
  if (size >= kHuge) madvise(memory, size / kHugePage * kHugePage, MADV_HUGEPAGE);  // advice only
#endif
  return memory;
}

class Store {
 public:
  // Never destroyed: arrays may be released until the process ends.
  static Store& Instance() {
    static Store* const store = new Store;
    return *store;
  }

  void* Take(std::size_t size) {
    const std::lock_guard lock(mutex_);
    const auto found = kept_.find(size);
    if (found == kept_.end()) return nullptr;
    void* memory = found->second.back();
    found->second.pop_back();
    if (found->second.empty()) kept_.erase(found);
    bytes_ -= size;
    return memory;
  }

  bool Keep(void* memory, std::size_t size) {
    const std::lock_guard lock(mutex_);
    if (bytes_ + size > kMostKept) return false;
    kept_[size].push_back(memory);
    bytes_ += size;
    return true;
  }

  std::size_t bytes() {
    const std::lock_guard lock(mutex_);
    return bytes_;
  }

 private:
  std::mutex mutex_;
  std::map<std::size_t, std::vector<void*>> kept_;  // by size
  std::size_t bytes_ = 0;
};

}  // namespace

void* TakeMemory(std::size_t bytes) {
  if (bytes < kLarge) return ::operator new(bytes, kLine);
  const std::size_t size = SizeClass(bytes);
  void* memory = Store::Instance().Take(size);
  return memory != nullptr ? memory : FreshMemory(size);
}

void GiveMemory(void* memory, std::size_t bytes) noexcept {
  if (memory == nullptr) return;
  if (bytes < kLarge) return ::operator delete(memory, kLine);
  const std::size_t size = SizeClass(bytes);
  try {
    if (Store::Instance().Keep(memory, size)) return;
  } catch (const std::bad_alloc&) {
    // The list cannot grow: the block goes back to the system.
  }
  ::operator delete(memory, AlignmentOf(size));
}

#if defined(__GLIBC__)
namespace {

std::uintptr_t HeapEnd() { return reinterpret_cast<std::uintptr_t>(sbrk(0)); }

// Makes the heap's free end, which is not in memory before it is used, long enough to be advised in time.
// The thresholds are those that glibc arrives at by itself once a large block has been freed.
void GrowInLargeSteps() {
  constexpr int kStep = 32 << 20;
  mallopt(M_MMAP_THRESHOLD, kStep);
  mallopt(M_TRIM_THRESHOLD, 2 * kStep);
  mallopt(M_TOP_PAD, kStep);
  void* volatile block = std::malloc(kStep / 2);  // the first step
  std::free(block);
}

std::mutex advising;
std::atomic<std::uintptr_t> advised = 0;  // the heap below this, but for what was there before

}  // namespace

void GrowHeapInHugePages() {
  if (HeapEnd() == advised.load(std::memory_order_relaxed)) return;
  const std::lock_guard lock(advising);
  if (advised == 0) {
    advised = HeapEnd();
    GrowInLargeSteps();
  }
  const std::uintptr_t end = HeapEnd();
  const std::uintptr_t first = advised / kHugePage * kHugePage;
  if (first < end) madvise(reinterpret_cast<void*>(first), end - first, MADV_HUGEPAGE);  // advice only
  advised = end;
}
#else
void GrowHeapInHugePages() {}
#endif

std::size_t KeptMemory() { return Store::Instance().bytes(); }

std::shared_ptr<std::byte[]> ShareMemory(std::size_t bytes) {
  return {static_cast<std::byte*>(TakeMemory(bytes)),
          [bytes](std::byte* memory) { GiveMemory(memory, bytes); }};
}

}  // namespace geomx::kernels
