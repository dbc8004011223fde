// A pool of items with indices; an item does not move until its index is free again.
//
// Free indices are reused, so there are only as many as items existed at one time.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace geomx {

template <class Item>
class Pool {
 public:
  // Returns a free index; its item has its last value, or is default-constructed.
  std::uint32_t Take() {
    if (!free_.empty()) {
      const std::uint32_t place = free_.back();
      free_.pop_back();
      return place;
    }
    if (size_ % kBlock == 0) blocks_.push_back(std::make_unique<Item[]>(kBlock));
    return size_++;
  }
  void Free(std::uint32_t place) { free_.push_back(place); }

  Item& operator[](std::uint32_t place) { return blocks_[place / kBlock][place % kBlock]; }
  const Item& operator[](std::uint32_t place) const {
    return blocks_[place / kBlock][place % kBlock];
  }

 private:
  static constexpr std::uint32_t kBlock = 64;

  std::vector<std::unique_ptr<Item[]>> blocks_;
  std::uint32_t size_ = 0;
  std::vector<std::uint32_t> free_;
};

}  // namespace geomx
