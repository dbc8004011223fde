// Whether a group of an overlay can do nothing before its coordinator gives an order.
//
// A coordinator may keep what was reported: until other members report, or until a transfer has ended. But
// where all members have reported their contributions to a round, or the root has a new value, and nothing
// that was ordered is under way, only an order can follow. Reports and orders pass the coordinator's node,
// which counts them here. Coordinators that plan ahead are left out: their members act without orders.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "core/archive.h"
#include "core/overlay_group.h"
#include "core/types.h"
#include "core/wait.h"

namespace geomx {

class OrdersDue {
 public:
  // `members`: how many each group has whose coordinator is on this node, by root. It outlives this.
  explicit OrdersDue(const std::map<NodeId, std::uint32_t>& members) : members_(members) {}

  // A report to coordinator `number`, before the coordinator sees it.
  void Reported(std::uint32_t number, NodeId from, std::span<const double> values);
  // A reply of it.
  void Replied(std::uint32_t number, NodeId to, std::span<const double> values);
  // Adds the coordinators that everything in a group waits for. `Wait::round` counts what they have heard
  // and said, so that a wait ends with any of it.
  void ListWaits(Waits& waits) const;

  void Exchange(Archive& archive) { archive(coordinators_); }

 private:
  // The latest round of a shard, in one direction.
  struct Item {
    Round round = 0;
    std::set<NodeId> contributed = {};  // up: members that have reported their own contributions
    std::set<NodeId> waiting = {};      // up: members not yet ordered to send; down: members not yet sent to
    std::uint32_t under_way = 0;        // transfers that were ordered and have not ended

    void Exchange(Archive& archive) { archive(round, contributed, waiting, under_way); }
  };
  struct Known {
    std::map<OverlayItem, Item> items;
    std::uint32_t under_way = 0;  // of all items
    Round said = 0;

    void Exchange(Archive& archive) { archive(items, under_way, said); }
  };

  bool IsDue(const Known& known) const;

  const std::map<NodeId, std::uint32_t>& members_;
  std::map<std::uint32_t, Known> coordinators_;
};

}  // namespace geomx
