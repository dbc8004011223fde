// A list of ids that is filled and cleared all the time and soon stops growing.
//
// Appending is a comparison and a store, in place: of std::vector::push_back, compilers call a copy
// that can reallocate, which takes several times as long and was 3 % of a simulation.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace geomx::net {

class IdList {
 public:
  void Add(std::uint32_t id) {
    if (size_ == places_.size()) [[unlikely]] Grow();
    places_[size_++] = id;
  }
  void clear() { size_ = 0; }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  std::uint32_t operator[](std::size_t i) const { return places_[i]; }
  std::uint32_t* begin() { return places_.data(); }
  std::uint32_t* end() { return places_.data() + size_; }
  const std::uint32_t* begin() const { return places_.data(); }
  const std::uint32_t* end() const { return places_.data() + size_; }
  void swap(IdList& other) {
    places_.swap(other.places_);
    std::swap(size_, other.size_);
  }

 private:
  // Apart, because with it compilers do not put `Add` in place.
  [[gnu::noinline]] void Grow() { places_.resize(std::max<std::size_t>(16, 2 * size_)); }

  std::vector<std::uint32_t> places_;
  std::size_t size_ = 0;  // of `places_`, how many are in use
};

}  // namespace geomx::net
