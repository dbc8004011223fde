// Future events in the order of time; simultaneous events in the order in which they were added.
//
// A radix heap (Ahuja, Mehlhorn, Orlin and Tarjan 1990). Events are never added in the past, so
// entries need not be sorted: each is in the bucket of the highest bit in which its time differs from
// the current time. An entry moves to a lower bucket a few times. Memory is accessed sequentially,
// unlike in a binary heap, which accesses distant entries at every event.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "core/types.h"

namespace geomx {

template <class Item>
class Agenda {
 public:
  struct Entry {
    Time time;
    Item item;
  };

  // The time of the next event; kNever if there is none.
  Time next() const { return next_; }

  // Throws std::logic_error if `time` is before that of the last Take.
  void Add(Time time, const Item& item) {
    if (time < reached_) throw std::logic_error("an event is scheduled in the past");
    Put({time, item});
    next_ = std::min(next_, time);
  }

  // Removes and returns the next event. REQUIRES: next() != kNever.
  Item Take() {
    if (next_ != reached_) Reach(next_);
    const Item item = buckets_[0][taken_++].item;
    if (taken_ < buckets_[0].size()) return item;
    buckets_[0].clear();
    taken_ = 0;
    filled_ &= ~std::uint64_t{1};
    next_ = Earliest();
    return item;
  }

  // The event that will be taken after `more` others; null if it has a later time than the last one
  // taken, or is not the present one.
  const Item* Soon(std::size_t more) const {
    return taken_ + more < buckets_[0].size() ? &buckets_[0][taken_ + more].item : nullptr;
  }

  // All future events, in order.
  std::vector<Entry> Coming() const {
    std::vector<Entry> coming(buckets_[0].begin() + static_cast<std::ptrdiff_t>(taken_),
                              buckets_[0].end());
    for (std::size_t i = 1; i < buckets_.size(); ++i) {
      coming.insert(coming.end(), buckets_[i].begin(), buckets_[i].end());
    }
    std::stable_sort(coming.begin(), coming.end(),
                     [](const Entry& a, const Entry& b) { return a.time < b.time; });
    return coming;
  }

 private:
  void Put(const Entry& entry) {
    const int bucket = std::bit_width(static_cast<std::uint64_t>(entry.time ^ reached_));
    buckets_[static_cast<std::size_t>(bucket)].push_back(entry);
    filled_ |= std::uint64_t{1} << bucket;
  }

  // REQUIRES: no event is left at the time that has been reached.
  Time Earliest() const {
    if (filled_ == 0) return kNever;
    Time earliest = kNever;
    const auto lowest = static_cast<std::size_t>(std::countr_zero(filled_));
    for (const Entry& entry : buckets_[lowest]) earliest = std::min(earliest, entry.time);
    return earliest;
  }

  // Moves the entries of the lowest non-empty bucket to those below it, in order.
  void Reach(Time time) {
    reached_ = time;
    const int lowest = std::countr_zero(filled_);
    filled_ &= ~(std::uint64_t{1} << lowest);
    moving_.swap(buckets_[static_cast<std::size_t>(lowest)]);
    for (const Entry& entry : moving_) Put(entry);
    moving_.clear();
  }

  // By the number of low bits in which an entry's time may differ from the time reached.
  std::array<std::vector<Entry>, 64> buckets_;
  std::uint64_t filled_ = 0;  // a bit for each bucket that is not empty
  std::size_t taken_ = 0;     // entries of the first bucket that were taken
  Time reached_ = 0;
  Time next_ = kNever;
  std::vector<Entry> moving_;
};

}  // namespace geomx
