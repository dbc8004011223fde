// An overlay's group, and the numbers that its members and its coordinator exchange in reports and
// replies (their use: overlay.h).
//
// Packed as float64 numbers, which hold ids and counts exactly. Unpack returns nothing for numbers
// that Pack cannot produce.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/archive.h"
#include "core/types.h"

namespace geomx {

// A group that a node belongs to, as its root or as a member.
struct OverlayGroup {
  NodeId root = 0;
  std::vector<NodeId> members;
  NodeId host = 0;            // the coordinator's node
  std::uint32_t number = 0;   // of the coordinator on that node
  bool push = false;          // members add contributions
  bool pull = false;          // members forward values
  bool ahead = false;         // the coordinator makes plans: contributions may come before this node's own
  std::string label;          // the plugin and hook that it came from, for errors
};

// How a transfer arrived.
struct Arrival {
  std::uint64_t bytes = 0;  // on the wire
  Time spread = 0;          // ns between its first message and its last
};

// A group's report and the coordinator's reply.
struct OverlayReport {
  enum class What : std::uint8_t {
    kReady,     // this member holds a contribution that stands for `merge_count`
    kMerged,    // the root has received a contribution
    kOrigin,    // the root has a new value for all `members`
    kHas,       // this member now holds the value
  };
  What what = What::kReady;
  NodeId root = 0;
  Key key = 0;
  std::uint32_t shard = 0;
  Round round = 0;
  std::int32_t priority = 0;
  std::optional<NodeId> from = {};  // sender of the transfer that has just been received
  // Of that transfer, as they crossed the wire; without one, of the contribution or value, dense.
  std::uint64_t bytes = 0;
  Time spread = 0;  // ns between the transfer's first message and its last, as the receiver saw them
  std::vector<NodeId> members = {};  // kOrigin

  bool up() const { return what == What::kReady || what == What::kMerged; }
  std::vector<double> Pack() const;
  static std::optional<OverlayReport> Unpack(std::span<const double> numbers);
};

// What a report or an order is about: the contributions to a shard (push), or its values (pull).
struct OverlayItem {
  Direction direction = Direction::kPush;
  NodeId root = 0;
  Key key = 0;
  std::uint32_t shard = 0;

  static OverlayItem Of(const OverlayReport& report) {
    return {report.up() ? Direction::kPush : Direction::kPull, report.root, report.key, report.shard};
  }
  bool up() const { return direction == Direction::kPush; }
  auto operator<=>(const OverlayItem&) const = default;
  void Exchange(Archive& archive) { archive(direction, root, key, shard); }
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

// Where a node sends shards of some rounds, as soon as it can: an order made ahead, for many shards.
//
// A round of a shard has one plan or none, for all nodes of the group: what a coordinator has planned it
// neither orders nor plans again. A node that is to take part in a round and has no plan for it reports, and
// waits for an order or for its plan.
struct OverlayPlan {
  static constexpr Round kForever = UINT32_MAX;
  struct Rounds {
    Key key = 0;
    std::uint32_t shard = 0;
    Round first = 1, last = kForever;
  };

  Direction direction = Direction::kPush;
  NodeId root = 0;
  std::uint32_t awaited = 0;         // up: contributions that arrive here before this node sends
  bool reports = true;               // arrivals are reported to the coordinator
  std::vector<NodeId> targets = {};  // up: one, or none at the root; down: any number
  std::vector<Rounds> shards = {};   // empty: all rounds of all shards

  std::vector<double> Pack() const;
  static std::optional<OverlayPlan> Unpack(std::span<const double> numbers);
};

}  // namespace geomx
