// What local and global servers share: shards whose rounds are sums of what the children push.
//
// Every function that returns false or nothing has told the driver to close the connection of the peer
// at fault, or the application that an instruction was refused; the caller then does nothing more.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/aggregator.h"
#include "core/node.h"
#include "core/replica.h"
#include "core/role.h"

namespace geomx {

class ServerRole : public RoleLogic {
 protected:
  using RoleLogic::RoleLogic;

  struct SummedShard {
    explicit SummedShard(const NodeConfig& config) : sum(config.children, config.quorum) {}
    Aggregator sum;
    std::uint32_t elements = 0;   // 0: not known yet
    NodeId sized_by = 0;          // the node that said so
    Round round = 0;              // the last one that was completed here
    bool present = false;         // a child has contributed more than its absence to the open round
    Replica weights;              // where the optimizer runs
    std::vector<NodeId> waiting;  // children that asked for the value before there was one
    bool updating = false;        // a device is at work on the weights
    std::list<std::function<void(Time)>> deferred;  // what is to be done after that, in order
  };

  // Has `action(now)` called when a device has updated the shard. False if none is at work on it: the
  // caller goes on at once. What is done to a shard is thus done in the order in which it came, while
  // other shards go on.
  template <class Action>
  static bool Defer(SummedShard& shard, Action action) {
    if (!shard.updating) return false;
    shard.deferred.push_back(std::move(action));
    return true;
  }
  // Applies `gradient` to the shard's weights. Returns whether they are new; if not, a device is at
  // work on them, and WhenUpdated says what comes next.
  bool Update(const Header& header, SummedShard& shard, Buffer gradient,
              const std::optional<OptimizerSpec>& optimizer, const GradientSource& from,
              bool accumulate);
  // Forgets the state of the optimizer before.
  static void ForgetOptimizer(SummedShard& shard) {
    if (!Defer(shard, [&shard](Time) { shard.weights.ForgetOptimizer(); })) {
      shard.weights.ForgetOptimizer();
    }
  }
  // Calls `next(now)` when the weights are new, and then what was deferred.
  template <class Next>
  void WhenUpdated(SummedShard& shard, Next next) {
    shard.updating = true;
    node_.device().Then([this, &shard, next = std::move(next)](Time now) {
      shard.weights.Complete();
      shard.updating = false;
      next(now);
      RunDeferred(shard, now);
    });
  }

  // Whether `header` gives the shard the size that it had before.
  bool HasSize(NodeId peer, const Header& header, SummedShard& shard);
  // Adds a push to the open round; see docs/protocol.md for what is refused.
  bool Contribute(NodeId peer, const Header& header, SummedShard& shard, Buffer value);
  // A push that is not of round `expected`.
  void FailRound(NodeId peer, const Header& header, Round expected);
  // The flags of a sum that is complete: `kAbsent` if no child contributed more than its absence.
  std::uint8_t TakeFlags(SummedShard& shard);

  // Sends what a round came to.
  void SendResult(Header header, Round round, std::uint32_t merge_count,
                  const std::shared_ptr<const Buffer>& value, std::span<const NodeId> targets,
                  Time now);
  // Sends the current value, as it is, to nodes that asked for it.
  void SendCurrent(Header header, Round round, const std::shared_ptr<const Buffer>& value,
                   std::span<const NodeId> targets, Time now);
  // False if `peer` waits already.
  static bool AddWaiting(SummedShard& shard, NodeId peer);

  // The text of a command message.
  std::optional<std::string> Text(NodeId peer, const Message& message);
  // The optimizer that an instruction names.
  std::optional<OptimizerSpec> ParseOptimizer(const std::string& text);

  // Children that have no part in a round that is open, and none in any later one: workers that said
  // bye, or parties whose workers have all said it.
  const std::set<NodeId>& left() const { return left_; }
  // False if it was known.
  bool AddLeft(NodeId child) { return left_.insert(child).second; }
  // Reports a loss if the open round waits for a child that has left.
  void CheckLeft(Key key, const SummedShard& shard);
  // Adds the children that an open round waits for.
  static void AddWaits(Key key, const SummedShard& shard, Waits& waits);

 private:
  static void RunDeferred(SummedShard& shard, Time now);
  void Send(const Header& header, const std::shared_ptr<const Buffer>& value,
            std::span<const NodeId> targets, Time now);

  std::set<NodeId> left_;
};

}  // namespace geomx
