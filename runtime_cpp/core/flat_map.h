// A hash map for a node's traffic: it only grows, entries never move, and a look-up reads two
// places in memory. A simulation of a thousand nodes holds half a million entries, so cache misses
// dominate the cost of a look-up; a node's entries are contiguous.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace geomx {

template <class Key, class Value, class Hash>
class FlatMap {
 public:
  // A key and its value, as members `first` and `second`. Where an entry fills cache lines, but for an
  // eighth of its size, it begins with one.
  using Pair = std::pair<const Key, Value>;
  static constexpr std::size_t kLine = 64, kSpare = (kLine - sizeof(Pair) % kLine) % kLine;
  struct alignas(kSpare <= sizeof(Pair) / 8 ? kLine : alignof(Pair)) Entry : Pair {
    using Pair::Pair;
  };

  // Returns null if there is none.
  Value* Find(const Key& key) {
    return const_cast<Value*>(static_cast<const FlatMap*>(this)->Find(key));
  }
  const Value* Find(const Key& key) const {
    if (slots_.empty()) return nullptr;
    Entry* entry = slots_[Seek(key, Hash{}(key))].entry;
    return entry == nullptr ? nullptr : &entry->second;
  }

  // Returns the value of `key`, constructed from `arguments` if there was none, and whether it was
  // constructed.
  template <class... Arguments>
  std::pair<Value*, bool> TryEmplace(const Key& key, const Arguments&... arguments) {
    if (2 * (size_ + 1) > slots_.size()) Grow();
    const std::uint64_t hash = Hash{}(key);
    Slot& slot = slots_[Seek(key, hash)];
    const bool fresh = slot.entry == nullptr;
    if (fresh) {
      if (size_++ % kBlock == 0) blocks_.emplace_back().reserve(kBlock);
      blocks_.back().emplace_back(std::piecewise_construct, std::forward_as_tuple(key),
                                  std::forward_as_tuple(arguments...));
      slot = {&blocks_.back().back(), static_cast<std::uint32_t>(hash >> 32)};
    }
    return {&slot.entry->second, fresh};
  }

  template <class Map>
  class Iterator {
   public:
    Iterator(Map& map, std::uint32_t place) : map_(map), place_(place) {}
    auto& operator*() const { return map_.At(place_); }
    Iterator& operator++() {
      ++place_;
      return *this;
    }
    bool operator!=(const Iterator& other) const { return place_ != other.place_; }

   private:
    Map& map_;
    std::uint32_t place_;
  };

  // Iterates in the order of insertion.
  Iterator<FlatMap> begin() { return {*this, 0}; }
  Iterator<FlatMap> end() { return {*this, size_}; }
  Iterator<const FlatMap> begin() const { return {*this, 0}; }
  Iterator<const FlatMap> end() const { return {*this, size_}; }
  std::size_t size() const { return size_; }

 private:
  static constexpr std::uint32_t kBlock = 32;
  struct Slot {
    Entry* entry = nullptr;
    std::uint32_t tag = 0;  // bits of the hash, so that other keys' entries are rarely compared
  };

  // The position of the key's slot, or of the one where it belongs.
  std::size_t Seek(const Key& key, std::uint64_t hash) const {
    const std::size_t mask = slots_.size() - 1;
    const auto tag = static_cast<std::uint32_t>(hash >> 32);
    for (std::size_t at = hash & mask;; at = (at + 1) & mask) {
      const Slot& slot = slots_[at];
      if (slot.entry == nullptr) return at;
      if (slot.tag == tag && slot.entry->first == key) return at;
    }
  }

  const Entry& At(std::uint32_t place) const { return blocks_[place / kBlock][place % kBlock]; }
  Entry& At(std::uint32_t place) { return blocks_[place / kBlock][place % kBlock]; }

  void Grow() {
    slots_.assign(slots_.empty() ? 16 : 2 * slots_.size(), {});
    for (Entry& entry : *this) {
      const std::uint64_t hash = Hash{}(entry.first);
      slots_[Seek(entry.first, hash)] = {&entry, static_cast<std::uint32_t>(hash >> 32)};
    }
  }

  std::vector<std::vector<Entry>> blocks_;  // of kBlock entries each; blocks never move
  std::uint32_t size_ = 0;
  std::vector<Slot> slots_;  // a power of two of them, at most half taken
};

}  // namespace geomx
