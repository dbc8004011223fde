// Spans of a node's activity, for the run's timeline. Bounded: the first spans are kept, later ones
// counted.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/message.h"
#include "core/types.h"
#include "io/clock.h"

namespace geomx::io {

struct Span {
  const char* category = "";  // send, wait, encode, aggregate, update
  Key key = 0;
  Round round = 0;
  // Of a message sent:
  Kind kind = Kind::kPush;
  std::string peer;
  std::uint8_t channel = 0;
  std::uint32_t shard = 0;
  std::uint32_t bytes = 0;  // as they are counted on the wire
  Time start = 0;
  Time duration = 0;
};

// Any thread.
class Trace {
 public:
  static constexpr std::size_t kMaxSpans = 20'000;

  // Returns true if no more spans are kept. One that would be added is counted then.
  bool Full() {
    if (!full_.load(std::memory_order_relaxed)) return false;
    std::lock_guard lock(mutex_);
    ++dropped_;
    return true;
  }
  void Add(Span span) {
    std::lock_guard lock(mutex_);
    if (spans_.size() == kMaxSpans) {
      ++dropped_;
      return;
    }
    spans_.push_back(std::move(span));
    full_.store(spans_.size() == kMaxSpans, std::memory_order_relaxed);
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
  std::atomic<bool> full_ = false;
};

}  // namespace geomx::io
