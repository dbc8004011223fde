// Memory of large arrays, used again instead of being handed back.
//
// A fresh page costs the system more time than a codec needs to fill it, and a tensor's arrays have
// the same sizes in every round. So large blocks are kept for the next who asks, up to a bound, and
// lie in huge pages where the system has them. Small ones come from the heap as ever.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <vector>

namespace geomx::kernels {

// At least `bytes`, not cleared, aligned to 64. Throws std::bad_alloc.
void* TakeMemory(std::size_t bytes);
// `bytes` as they were asked for. Null is nothing.
void GiveMemory(void* memory, std::size_t bytes) noexcept;

// Most bytes that are kept for later in the whole process.
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

// A vector for what is as large as a tensor.
template <class T>
using Array = std::vector<T, RecyclingAllocator<T>>;

// Reference-counted bytes.
std::shared_ptr<std::byte[]> ShareMemory(std::size_t bytes);

}  // namespace geomx::kernels
