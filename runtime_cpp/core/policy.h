// Sync policies: when a party synchronises with the others, and what it sends.
//
// A local server asks its policy once per shard and round, after the last of its workers has
// contributed. The base class is the fully synchronous algorithm: every party round goes to the
// global server, whose answer goes to the workers unchanged.
#pragma once

#include <memory>
#include <span>

#include "core/archive.h"
#include "core/digest.h"
#include "core/types.h"

namespace geomx {

struct PartyRound {
  const ShardInfo& shard;
  Round round;                // of this party, from 1
  std::uint32_t merge_count;  // workers in the sum
  bool last;                  // the workers will not push this key again
};

class PartyPolicy {
 public:
  enum class Action { kReturn, kEscalate };

  virtual ~PartyPolicy() = default;

  // Returns true if a party's first push must come after `Initial`.
  virtual bool NeedsInitial() const { return false; }

  // Receives the master's initial value of a shard. `value` is empty where sizes alone are
  // simulated, here and below.
  virtual void Initial(const ShardInfo& shard, std::span<const float> value) {
    (void)shard, (void)value;
  }

  // `sum` is the sum over the party. Replaces it by the value to send over the WAN (kEscalate) or
  // to the workers at once (kReturn).
  virtual Action Complete(const PartyRound& round, std::span<float> sum) {
    (void)round, (void)sum;
    return Action::kEscalate;
  }

  // Returns true if a sum without some workers is to be scaled up to all of the party's before
  // Complete, for example where Complete takes a mean. Otherwise global servers scale it.
  virtual bool MakesUp() const { return false; }

  // `present` of the party's `all` workers take part from now on.
  virtual void OnMembers(std::uint32_t present, std::uint32_t all) { (void)present, (void)all; }

  // The number of party rounds that lead to `global` rounds: where a party that comes back
  // continues.
  virtual Round PartyRounds(Round global) const { return global; }

  // Adds the state that the policy's next decisions about a shard, whose last round was `round`,
  // depend on.
  virtual void Describe(Digest& digest, Round round) const {
    (void)round;
    digest.Unknown();
  }

  // Writes or reads the state that is kept from round to round. A policy that does not say is taken to
  // have some that it cannot write.
  virtual void Exchange(Archive& archive) {
    (void)archive;
    Archive::CannotTell("a sync policy");
  }

  // `value` is the global server's answer. Replaces it by the value for the workers.
  virtual void Answer(const ShardInfo& shard, std::span<float> value) { (void)shard, (void)value; }
};

}  // namespace geomx
