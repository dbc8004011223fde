// A hash map for a node's traffic: it only grows, entries stay where they are, and finding one looks
// at two places in memory. Simulations hold half a million entries, so what a look-up touches and
// what an entry takes is what they cost.
#pragma once

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

namespace geomx {

template <class Key, class Value, class Hash>
class FlatMap {
 public:
  using Entry = std::pair<const Key, Value>;

  // Null if there is none.
  Value* Find(const Key& key) {
    const Slot* slot = slots_.empty() ? nullptr : &Seek(key, Hash{}(key));
    return slot == nullptr || slot->place == kFree ? nullptr : &entries_[slot->place].second;
  }

  // The value of `key`, made without arguments if there is none; and whether it was made.
  std::pair<Value*, bool> TryEmplace(const Key& key) {
    if (2 * (entries_.size() + 1) > slots_.size()) Grow();
    const std::uint64_t hash = Hash{}(key);
    Slot& slot = Seek(key, hash);
    const bool fresh = slot.place == kFree;
    if (fresh) {
      slot = {static_cast<std::uint32_t>(hash >> 32), static_cast<std::uint32_t>(entries_.size())};
      entries_.emplace_back(std::piecewise_construct, std::forward_as_tuple(key),
                            std::forward_as_tuple());
    }
    return {&entries_[slot.place].second, fresh};
  }

  // In the order in which they were made.
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }
  std::size_t size() const { return entries_.size(); }

 private:
  static constexpr std::uint32_t kFree = UINT32_MAX;
  struct Slot {
    std::uint32_t tag = 0;  // of the hash, so that hardly ever a wrong entry is looked at
    std::uint32_t place = kFree;
  };

  Slot& Seek(const Key& key, std::uint64_t hash) {
    const std::size_t mask = slots_.size() - 1;
    const auto tag = static_cast<std::uint32_t>(hash >> 32);
    for (std::size_t at = hash & mask;; at = (at + 1) & mask) {
      Slot& slot = slots_[at];
      if (slot.place == kFree) return slot;
      if (slot.tag == tag && entries_[slot.place].first == key) return slot;
    }
  }

  void Grow() {
    slots_.assign(slots_.empty() ? 16 : 2 * slots_.size(), {});
    for (std::uint32_t place = 0; place < entries_.size(); ++place) {
      const std::uint64_t hash = Hash{}(entries_[place].first);
      Seek(entries_[place].first, hash) = {static_cast<std::uint32_t>(hash >> 32), place};
    }
  }

  std::deque<Entry> entries_;
  std::vector<Slot> slots_;  // a power of two of them, at most half taken
};

}  // namespace geomx
