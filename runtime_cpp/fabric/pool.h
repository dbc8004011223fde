// Items that come and go: each has a place, a number, and stays where it is until its place is free.
//
// Free places are used again, so that there are as many as items existed at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace geomx {

template <class Item>
class Pool {
 public:
  // A place; what is there is what was there last, or an item made without arguments.
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
