// The next event of many entities: a binary heap with the position of each entity, so that an event
// can be moved or removed. Ties go to the lower id, so that the order of simultaneous events depends
// on the model and not on the history.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace geomx::net {

template <class Moment>
class IndexedHeap {
 public:
  struct Entry {
    Moment at;
    std::uint32_t id;
    bool operator<(const Entry& other) const {
      return at < other.at || (at == other.at && id < other.id);
    }
  };

  bool empty() const { return entries_.empty(); }
  const Entry& top() const { return entries_.front(); }
  const std::vector<Entry>& entries() const { return entries_; }  // in the order of the heap

  // Sets `ids` to the entities whose events are not after `now`, in ascending order.
  void Due(Moment now, std::vector<std::uint32_t>& ids) const {
    ids.clear();
    const auto due = [&](std::size_t place) { return place < entries_.size() && !(now < entries_[place].at); };
    if (due(0)) ids.push_back(0);
    for (std::size_t i = 0; i < ids.size(); ++i) {  // places until here
      for (const std::uint32_t child : {2 * ids[i] + 1, 2 * ids[i] + 2}) {
        if (due(child)) ids.push_back(child);
      }
    }
    for (std::uint32_t& place : ids) place = entries_[place].id;
    std::sort(ids.begin(), ids.end());
  }

  // Sets the event of `id`, whether or not it had one.
  void Set(std::uint32_t id, Moment at) {
    if (id >= places_.size()) places_.resize(id + 1, kAbsent);
    std::uint32_t place = places_[id];
    if (place == kAbsent) {
      place = static_cast<std::uint32_t>(entries_.size());
      entries_.push_back({at, id});
      Up(place, {at, id});
      return;
    }
    const Entry entry{at, id};
    if (entry < entries_[place]) {
      Up(place, entry);
    } else {
      Down(place, entry);
    }
  }

  void Remove(std::uint32_t id) {
    if (id >= places_.size() || places_[id] == kAbsent) return;
    const std::uint32_t place = places_[id];
    places_[id] = kAbsent;
    const Entry last = entries_.back();
    entries_.pop_back();
    if (last.id == id) return;
    if (place > 0 && last < entries_[(place - 1) / 2]) {
      Up(place, last);
    } else {
      Down(place, last);
    }
  }

 private:
  static constexpr std::uint32_t kAbsent = UINT32_MAX;

  void Put(std::uint32_t place, const Entry& entry) {
    entries_[place] = entry;
    places_[entry.id] = place;
  }

  void Up(std::uint32_t place, const Entry& entry) {
    while (place > 0) {
      const std::uint32_t parent = (place - 1) / 2;
      if (!(entry < entries_[parent])) break;
      Put(place, entries_[parent]);
      place = parent;
    }
    Put(place, entry);
  }

  void Down(std::uint32_t place, const Entry& entry) {
    const auto size = static_cast<std::uint32_t>(entries_.size());
    for (;;) {
      std::uint32_t child = 2 * place + 1;
      if (child >= size) break;
      if (child + 1 < size && entries_[child + 1] < entries_[child]) ++child;
      if (!(entries_[child] < entry)) break;
      Put(place, entries_[child]);
      place = child;
    }
    Put(place, entry);
  }

  std::vector<Entry> entries_;
  std::vector<std::uint32_t> places_;
};

}  // namespace geomx::net
