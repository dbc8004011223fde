// The cores of a machine that all nodes of a simulation share, as they do when they run on one.
//
// Work gets a core in the order of arrival and keeps it until it is done, because a task of an
// endpoint is much shorter than a scheduler's time slice. If several cores are free, the one that has
// been idle for the shortest time is used, so that a node which continues stays on its core.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "core/digest.h"
#include "core/types.h"

namespace geomx {

class Cores {
 public:
  // 0: every node has its own core, and no work waits.
  explicit Cores(std::size_t count = 0) : free_(count, 0) {}

  bool shared() const { return !free_.empty(); }

  // Takes a core for `cost`, at `time` or as soon as one is free. Returns the time of the start.
  // REQUIRES: shared().
  Time Take(Time time, Time cost) {
    const auto better = [time](Time a, Time b) {
      const bool idle_a = a <= time, idle_b = b <= time;
      return idle_a != idle_b ? idle_a : idle_a ? a > b : a < b;
    };
    Time& core = *std::min_element(free_.begin(), free_.end(), better);
    const Time start = std::max(time, core);
    core = start + cost;
    return start;
  }

  void Describe(Digest& digest, Time now) const {
    std::vector<Time> free = free_;
    std::sort(free.begin(), free.end());
    for (const Time time : free) digest.Moment(std::max(time, now));
  }

 private:
  std::vector<Time> free_;  // when each is free
};

}  // namespace geomx
