// What a node spent its time on, for the run's timeline. Bounded: the first spans are kept, what
// does not fit is counted.
#pragma once

#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "io/clock.h"

namespace geomx::io {

struct Span {
  std::string name;
  const char* category = "";  // send, wait, encode, aggregate, update
  Time start = 0;
  Time duration = 0;
};

// Any thread.
class Trace {
 public:
  static constexpr std::size_t kMaxSpans = 20'000;

  void Add(std::string name, const char* category, Time start, Time end) {
    std::lock_guard lock(mutex_);
    if (spans_.size() == kMaxSpans) {
      ++dropped_;
      return;
    }
    spans_.push_back({std::move(name), category, start, end - start});
  }
  std::vector<Span> spans() const {
    std::lock_guard lock(mutex_);
    return spans_;
  }
  std::uint64_t dropped() const {
    std::lock_guard lock(mutex_);
    return dropped_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<Span> spans_;
  std::uint64_t dropped_ = 0;
};

}  // namespace geomx::io
