// A hash map for a node's traffic: it only grows, entries never move, and a look-up reads two
// places in memory. A simulation of a thousand nodes holds half a million entries, so cache misses
// dominate the cost of a look-up: a node's entries are contiguous, eight slots share a cache line,
// and both can be prefetched.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <tuple>
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
    if (lines_.empty()) return nullptr;
    Entry* entry = SlotAt(Seek(key, Hash{}(key))).entry();
    return entry == nullptr ? nullptr : &entry->second;
  }

  // The key will be looked up soon: first its slot is fetched into the cache, then, once that is
  // there, its entry.
  void PrefetchSlot(const Key& key) const {
    if (!lines_.empty()) __builtin_prefetch(&SlotAt(Hash{}(key) & mask()));
  }
  void PrefetchEntry(const Key& key) const {
    if (lines_.empty()) return;
    // As a number: there may be no entry, and then there is no address to count from.
    const auto entry = reinterpret_cast<std::uintptr_t>(SlotAt(Hash{}(key) & mask()).entry());
    for (std::size_t at = 0; at < std::min<std::size_t>(sizeof(Entry), 2 * kLine); at += kLine) {
      __builtin_prefetch(reinterpret_cast<const void*>(entry + at));
    }
  }

  // Returns the value of `key`, constructed from `arguments` if there was none, and whether it was
  // constructed.
  template <class... Arguments>
  std::pair<Value*, bool> TryEmplace(const Key& key, const Arguments&... arguments) {
    if (2 * (size_ + 1) > kSlots * lines_.size()) Grow();
    const std::uint64_t hash = Hash{}(key);
    Slot& slot = SlotAt(Seek(key, hash));
    const bool fresh = slot.entry() == nullptr;
    if (fresh) {
      if (size_++ % kBlock == 0) blocks_.emplace_back().reserve(kBlock);
      blocks_.back().emplace_back(std::piecewise_construct, std::forward_as_tuple(key),
                                  std::forward_as_tuple(arguments...));
      slot = Slot(&blocks_.back().back(), hash);
    }
    return {&slot.entry()->second, fresh};
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
  // An entry's address, of which 48 bits are in use, and bits of the hash, so that other keys' entries
  // are rarely compared. Zero: free.
  class Slot {
   public:
    Slot() = default;
    Slot(Entry* entry, std::uint64_t hash)
        : bits_(reinterpret_cast<std::uintptr_t>(entry) << kTagBits | Tag(hash)) {}
    Entry* entry() const { return reinterpret_cast<Entry*>(bits_ >> kTagBits); }
    bool Matches(std::uint64_t hash) const { return (bits_ & kTag) == Tag(hash); }

   private:
    static constexpr int kTagBits = 16;
    static constexpr std::uint64_t kTag = (1u << kTagBits) - 1;
    static_assert(sizeof(void*) == sizeof(std::uint64_t));
    static std::uint64_t Tag(std::uint64_t hash) { return hash >> 32 & kTag; }

    std::uint64_t bits_ = 0;
  };
  static constexpr std::size_t kSlots = kLine / sizeof(Slot);
  struct alignas(kLine) Line {
    std::array<Slot, kSlots> slots;
  };

  std::size_t mask() const { return kSlots * lines_.size() - 1; }
  const Slot& SlotAt(std::size_t at) const { return lines_[at / kSlots].slots[at % kSlots]; }
  Slot& SlotAt(std::size_t at) { return lines_[at / kSlots].slots[at % kSlots]; }

  // The position of the key's slot, or of the one where it belongs.
  std::size_t Seek(const Key& key, std::uint64_t hash) const {
    for (std::size_t at = hash & mask();; at = (at + 1) & mask()) {
      const Slot& slot = SlotAt(at);
      const Entry* const entry = slot.entry();
      if (entry == nullptr) return at;
      if (!slot.Matches(hash)) continue;
      // The value's second line, which most callers need, arrives together with the key.
      if (sizeof(Entry) > kLine) __builtin_prefetch(reinterpret_cast<const char*>(entry) + kLine);
      if (entry->first == key) return at;
    }
  }

  const Entry& At(std::uint32_t place) const { return blocks_[place / kBlock][place % kBlock]; }
  Entry& At(std::uint32_t place) { return blocks_[place / kBlock][place % kBlock]; }

  void Grow() {
    lines_.assign(std::max<std::size_t>(2 * lines_.size(), 2), {});
    for (Entry& entry : *this) {
      const std::uint64_t hash = Hash{}(entry.first);
      SlotAt(Seek(entry.first, hash)) = Slot(&entry, hash);
    }
  }

  std::vector<std::vector<Entry>> blocks_;  // of kBlock entries each; blocks never move
  std::uint32_t size_ = 0;
  std::vector<Line> lines_;  // a power of two of them, whose slots are at most half taken
};

}  // namespace geomx
