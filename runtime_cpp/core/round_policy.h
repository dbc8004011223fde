// When a common round of a server closes without children that are late, and what each contribution
// counts: the part of a sync policy that runs on global servers, whose children are parties, or on local
// servers, whose children are workers.
//
// With a policy (NodeConfig::round_policy), a round closes when nothing more is awaited, or at the time that
// the policy names. A contribution to a round that has closed is late: the policy takes it for the open
// round, or drops it. In both cases its child is answered at once with the current value, by whose round
// it learns what it has missed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <set>
#include <span>

#include "core/archive.h"
#include "core/types.h"

namespace geomx {

// One child's contribution to a round of a shard.
struct Contribution {
  NodeId source = 0;          // a party's local server, or a worker
  Round meant = 0;            // the round that it was pushed for
  Round age = 0;              // rounds that have closed between its base and the open round; 0: in time
  std::uint32_t workers = 0;  // whose contributions it includes
  std::uint32_t steps = 0;    // see Header::steps

  void Exchange(Archive& archive) { archive(source, meant, age, workers, steps); }
};

struct EarlyRound {
  const ShardInfo& shard;
  Round round;
  std::span<const Contribution> contributions;  // those in time by source, then the others by source
  std::span<const NodeId> awaited;  // children that take part and have not contributed in time, ascending
  std::uint32_t workers;            // of all children
};

class RoundPolicy {
 public:
  virtual ~RoundPolicy() = default;

  // When the round closes although contributions are awaited: `now` or earlier for at once, kNever for
  // not yet. Asked after each contribution and each change of the members. `before`: the last answer for this
  // round, kNever at first.
  virtual Time ClosesAt(const EarlyRound& round, Time before, Time now) = 0;

  // Returns true if a late contribution counts in the open round; otherwise it is lost.
  virtual bool Takes(const ShardInfo& shard, const Contribution& late) {
    (void)shard, (void)late;
    return true;
  }

  // Sets the weight of a worker in each contribution of a round that closes: finite, 0 or more. `weights`: 1
  // each. The sum becomes (all workers) * sum of weight * value / sum of weight * workers, for which not all may be
  // 0; if the weights are not Relative, (all workers) * sum of weight * value / sum of workers.
  virtual void Weigh(const EarlyRound& round, std::span<double> weights) {
    (void)round, (void)weights;
  }

  // Which of the two formulas of Weigh applies. True: a weighted mean, which does not change if all weights are
  // doubled. False: weights are factors, so that small ones make the sum smaller.
  virtual bool Relative() const { return true; }

  // Writes or reads what later answers depend on. A policy that does not say is taken to have a state that it
  // cannot write.
  virtual void Exchange(Archive& archive) {
    (void)archive;
    Archive::CannotTell("a round policy");
  }
};

// Closes a round a fixed time after a number of children have contributed, or all that could; takes
// what is late. It has no state.
class QuorumRounds : public RoundPolicy {
 public:
  QuorumRounds(std::uint32_t quorum, Time deadline) : quorum_(quorum), deadline_(deadline) {}

  Time ClosesAt(const EarlyRound& round, Time before, Time now) override {
    if (before != kNever) return before;
    std::set<NodeId> children;
    for (const Contribution& each : round.contributions) {
      if (Counts(each)) children.insert(each.source);
    }
    const std::size_t there = children.size();
    children.insert(round.awaited.begin(), round.awaited.end());
    return there >= std::min<std::size_t>(quorum_, children.size()) ? now + deadline_ : kNever;
  }
  void Exchange(Archive& archive) override { (void)archive; }

 protected:
  // Returns true if the contribution counts for the quorum.
  virtual bool Counts(const Contribution& each) const {
    (void)each;
    return true;
  }

 private:
  std::uint32_t quorum_;
  Time deadline_;
};

}  // namespace geomx
