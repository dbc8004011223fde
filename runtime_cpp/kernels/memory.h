// Memory for large arrays, reused instead of returned to the system.
//
// Allocating a page takes longer than a codec needs to fill it, and a tensor's arrays have the same
// sizes in every round. So large blocks are kept for later requests, up to a bound, in huge pages
// where the system has them. Small ones come from the heap.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace geomx::kernels {

// At least `bytes`, not cleared, aligned to 64. Throws std::bad_alloc.
void* TakeMemory(std::size_t bytes);
// `bytes`: the size of the request. Null is ignored.
void GiveMemory(void* memory, std::size_t bytes) noexcept;

// Limit of the bytes that a process keeps for reuse.
inline constexpr std::size_t kMostKept = std::size_t{512} << 20;
std::size_t KeptMemory();

template <class T>
struct RecyclingAllocator {
  using value_type = T;

  RecyclingAllocator() = default;
  template <class Other>
  RecyclingAllocator(const RecyclingAllocator<Other>&) {}

  T* allocate(std::size_t n) {
    if (n > static_cast<std::size_t>(-1) / sizeof(T)) throw std::bad_array_new_length();
    return static_cast<T*>(TakeMemory(n * sizeof(T)));
  }
  void deallocate(T* memory, std::size_t n) noexcept { GiveMemory(memory, n * sizeof(T)); }

  template <class Other>
  bool operator==(const RecyclingAllocator<Other>&) const {
    return true;
  }
};

// A vector for arrays as large as a tensor.
template <class T>
using Array = std::vector<T, RecyclingAllocator<T>>;

// The same for arrays that are written as a whole: elements that get no value (of `Unset<T>(n)`, or
// added by `resize(n)`) have none, instead of 0.
template <class T>
struct UnsetAllocator : RecyclingAllocator<T> {
  template <class Other>
  struct rebind {
    using other = UnsetAllocator<Other>;
  };

  UnsetAllocator() = default;
  template <class Other>
  UnsetAllocator(const UnsetAllocator<Other>&) {}

  template <class Item>
  void construct(Item* at) noexcept {
    ::new (static_cast<void*>(at)) Item;
  }
  template <class Item, class... Values>
  void construct(Item* at, Values&&... values) {
    ::new (static_cast<void*>(at)) Item(std::forward<Values>(values)...);
  }
};
template <class T>
using Unset = std::vector<T, UnsetAllocator<T>>;

// Asks for huge pages where the heap has grown since the last call, and lets it grow in large steps, so
// that this is most of it. For a simulation, which makes hundreds of MB of small objects and reads them
// at random: with pages of 4 KiB a tenth of its time goes into translating addresses. Costs a few
// nanoseconds while the heap has not grown; does nothing where malloc is not glibc's.
void GrowHeapInHugePages();

// Reference-counted bytes.
std::shared_ptr<std::byte[]> ShareMemory(std::size_t bytes);

}  // namespace geomx::kernels
