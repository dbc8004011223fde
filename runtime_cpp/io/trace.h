// Spans of a node's activity, for the run's timeline. Bounded: the first spans are kept, later ones
// counted.
#pragma once

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

  void Add(Span span) {
    std::lock_guard lock(mutex_);
    if (spans_.size() == kMaxSpans) {
      ++dropped_;
      return;
    }
    spans_.push_back(std::move(span));
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
