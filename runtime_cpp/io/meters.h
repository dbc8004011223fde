// Edges that several nodes send over: when a message is through, next to everybody else's.
//
// A node's own model (Shaper) knows its own messages alone. An edge that others send over too has a
// clock: the time until which it is taken. A message claims the edge's time from when it began to
// cross it, at the earliest when the clock says so, and sets the clock on; so what all of them send
// together never exceeds the edge's bandwidth, and nobody waits for an edge that is free. Where the
// nodes that meet are processes of their own, clocks lie in a file that they share.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/types.h"
#include "net/course.h"
#include "net/ramp.h"

namespace geomx::io {

// An array of times that several processes set on without waiting for each other.
class Clocks {
 public:
  using Clock = std::atomic<Time>;
  static_assert(Clock::is_always_lock_free && sizeof(Clock) == sizeof(Time));

  // As many as fit into the file at `path`, which has been filled with zeros; with an empty path,
  // `count` of this object's own. Throws std::runtime_error if the file cannot be had.
  Clocks(const std::string& path, std::size_t count);
  ~Clocks();
  Clocks(const Clocks&) = delete;
  Clocks& operator=(const Clocks&) = delete;

  std::size_t size() const { return count_; }
  Clock& operator[](std::size_t index) { return clocks_[index]; }

 private:
  std::size_t count_ = 0;
  Clock* clocks_ = nullptr;
  std::vector<Clock> own_;
};

struct Meter {
  net::Course course;       // from the start of the run on
  std::uint32_t clock = 0;  // its index among the clocks
};

// The meters that one peer's messages pass.
struct Passage {
  std::vector<std::uint32_t> meters;
  double efficiency = net::kPayloadShare;
};

class Meters {
 public:
  // Throws std::invalid_argument for a passage over meters or clocks that do not exist.
  Meters(std::vector<Meter> meters, std::map<NodeId, Passage> passages,
         std::shared_ptr<Clocks> clocks);

  void SetOrigin(Time now) { origin_ = now; }

  // When a message of `bytes` to or from `peer` is through, if it crossed from `began` to `ended` as
  // far as its sender knows. Messages are passed in the order of their end.
  Time Pass(NodeId peer, std::size_t bytes, Time began, Time ended);

 private:
  std::vector<Meter> meters_;
  std::map<NodeId, Passage> passages_;
  std::shared_ptr<Clocks> clocks_;
  std::optional<Time> origin_;
};

}  // namespace geomx::io
