// What an overlay's members and its coordinator agree on: the group, and the numbers that they send
// each other in reports and replies (overlay.h says what for).
//
// Packed as float64 numbers, in which ids and counts are exact. Unpack returns nothing for numbers
// that no Pack makes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/types.h"

namespace geomx {

// A group that a node belongs to, as its root or as a member.
struct OverlayGroup {
  NodeId root = 0;
  std::vector<NodeId> members;
  NodeId host = 0;            // where the coordinator lives
  std::uint32_t number = 0;   // which of the coordinators there
  bool push = false;          // contributions are added on the way
  bool pull = false;          // values are handed on
  std::string label;          // whose it is, for errors
};

// What a group and its coordinator say to each other, as the numbers of a report and its reply.
struct OverlayReport {
  enum class What : std::uint8_t {
    kReady,     // this member holds a contribution that stands for `merge_count`
    kMerged,    // the root, and no member, took a contribution in
    kOrigin,    // the root has a new value for all `members`
    kHas,       // this member holds the value now
  };
  What what = What::kReady;
  NodeId root = 0;
  Key key = 0;
  std::uint32_t shard = 0;
  Round round = 0;
  std::int32_t priority = 0;
  std::optional<NodeId> from = {};  // whose transfer has just been received
  std::uint64_t bytes = 0;         // of that transfer, as they crossed the wire
  std::vector<NodeId> members = {};  // kOrigin

  std::vector<double> Pack() const;
  static std::optional<OverlayReport> Unpack(std::span<const double> numbers);
};

struct OverlayOrder {
  Direction direction = Direction::kPush;
  NodeId root = 0;
  Key key = 0;
  std::uint32_t shard = 0;
  Round round = 0;
  NodeId target = 0;

  std::vector<double> Pack() const;
  static std::optional<OverlayOrder> Unpack(std::span<const double> numbers);
};

}  // namespace geomx
