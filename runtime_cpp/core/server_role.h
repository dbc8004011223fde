// What local and global servers share: shards whose rounds are sums of what the children push.
//
// Every function that returns false or nothing has told the driver to close the connection of the peer
// at fault, or the application that an instruction was refused; the caller then does nothing more.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/aggregator.h"
#include "core/flat_map.h"
#include "core/node.h"
#include "core/replica.h"
#include "core/role.h"

namespace geomx {

class ServerRole : public RoleLogic {
 protected:
  using RoleLogic::RoleLogic;

  using ShardId = std::pair<Key, std::uint32_t>;
  struct ShardHash {
    std::size_t operator()(const ShardId& id) const {  // the shards of a key in a row lie in a row
      return (id.first | std::uint64_t{id.first} << 32) + id.second * 0x9e3779b97f4a7c15u;
    }
  };
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
    Header given = {};            // of the last contribution, where rounds may close without one
    std::map<NodeId, Header> asked = {};  // last requests of those that wait
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
  // Whether all who take part in the open round have contributed.
  bool Complete(const SummedShard& shard) const;
  // Multiplies a sum that lacks workers by what makes it the mean of those who are in times the number
  // of all, `expected`, for whom it then stands. Returns whether it did.
  static bool MakeUp(Buffer& sum, std::uint32_t& merge_count, std::uint32_t expected);
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

  // ---- members that are lost and come back (NodeConfig::continues) ----
  // Whether `child` takes part in this round.
  bool TakesPart(NodeId child, Round round) const;
  // The children that take part in this round.
  std::vector<NodeId> Participants(Round round) const;
  // Whether `child` is not lost and has not left.
  bool Present(NodeId child) const;
  // `child` has come back and will take part from a round on that is known when it asks for a value.
  void Await(NodeId child) { first_rounds_[child] = kNotAsked; }
  // `child` asks for a value; if it has come back, it takes part from round `next` on, at all shards.
  void Admit(NodeId child, Round next);
  // Whether `child` may have the value of the shard's last round: it takes part in the next one.
  bool MayHave(NodeId child, const SummedShard& shard) const;
  // Sends the current value to a child that waits for it, as the answer to its last request.
  void AnswerRequest(SummedShard& shard, NodeId child, Round round,
                     const std::shared_ptr<const Buffer>& value, Time now);
  // Goes on to the last round before those that wait here take part, if no other child would end it.
  void SkipEmptyRounds(SummedShard& shard);
  // The round that is open or, if there is none, the next.
  static Round OpenRound(const SummedShard& shard) {
    return shard.round + (shard.sum.merge_count() > 0 ? 1 : 0);
  }
  // Tells who is not in a round that has just closed. To be called before the sum is taken.
  Event Closing(const Header& header, const SummedShard& shard) const;

  // The text of a command message.
  std::optional<std::string> Text(NodeId peer, const Message& message);
  // The optimizer that an instruction names.
  std::optional<OptimizerSpec> ParseOptimizer(const std::string& text);

  // Children that have no part in a round that is open, and none in any later one: workers that said
  // bye, or parties whose workers have all said it or are lost.
  const std::set<NodeId>& left() const { return left_; }
  // False if it was known.
  bool AddLeft(NodeId child) { return left_.insert(child).second; }
  void ForgetLeft(NodeId child) { left_.erase(child); }
  // Reports a loss if the open round waits for a child that has left.
  void CheckLeft(Key key, const SummedShard& shard);
  // Adds the children that an open round waits for.
  static void AddWaits(Key key, const SummedShard& shard, Waits& waits);

 private:
  static constexpr Round kNotAsked = UINT32_MAX;

  static void RunDeferred(SummedShard& shard, Time now);
  void Send(const Header& header, const std::shared_ptr<const Buffer>& value,
            std::span<const NodeId> targets, Time now);

  std::set<NodeId> left_;
  std::map<NodeId, Round> first_rounds_;  // of children that have come back
  std::set<NodeId> returning_;            // those that have not contributed since
};

}  // namespace geomx
