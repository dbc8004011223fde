// Spans of simulated time for the timeline, in bounded memory.
//
// A run may have more spans than are useful. Half of the allowed number covers the beginning of the
// run, the other half its end; the spans between are counted and dropped.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/message.h"
#include "core/types.h"

namespace geomx {

struct Span {
  enum class Category : std::uint8_t {
    kSend, kAggregate, kUpdate, kEncode, kForward, kBackward, kWait,
  };
  static constexpr Key kNoKey = ~Key{0};

  NodeId node = 0, peer = 0;  // peer: of what is sent; otherwise the node itself
  Category category = Category::kSend;
  Kind kind = Kind::kPush;    // of what is sent, like the rest up to `bytes`
  std::uint8_t channel = 0;
  std::uint32_t shard = 0;
  std::uint32_t bytes = 0;    // on the wire
  Key key = kNoKey;           // what it was about: of a wait, the tensor that ended it
  Round round = 0;
  Time start = 0, end = 0;
};

class SpanLog {
 public:
  explicit SpanLog(std::size_t most) : early_(most - most / 2), late_(most / 2) {}

  void Add(Span span) {
    span.start += later_;
    span.end += later_;
    if (spans_.size() < early_ + late_) {
      spans_.push_back(span);
      return;
    }
    ++dropped_;
    if (late_ == 0) return;
    spans_[early_ + oldest_] = span;
    oldest_ = (oldest_ + 1) % late_;
  }

  // What follows happens this much later than it says, after `dropped` spans that are not added.
  void Skip(Time time, std::uint64_t dropped) {
    later_ += time;
    dropped_ += dropped;
  }
  std::uint64_t seen() const { return spans_.size() + dropped_; }

  // In the order in which they were added.
  std::vector<Span> Kept() const {
    std::vector<Span> kept = spans_;
    if (oldest_ > 0) std::rotate(kept.begin() + early_, kept.begin() + early_ + oldest_, kept.end());
    return kept;
  }
  std::uint64_t dropped() const { return dropped_; }

 private:
  std::size_t early_, late_;
  std::size_t oldest_ = 0;  // among the late ones, once all places are taken
  std::vector<Span> spans_;
  std::uint64_t dropped_ = 0;
  Time later_ = 0;
};

}  // namespace geomx
