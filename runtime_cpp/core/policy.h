// When a party synchronises with the world, and what it then says.
//
// A local server asks its policy once per shard and round, after the last of its workers has
// contributed. The base class is the fully synchronous algorithm: every party round goes to the
// global server, and what comes back is what the workers get.
#pragma once

#include <memory>
#include <span>

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

  // Whether a party's first push must come after `Initial`.
  virtual bool NeedsInitial() const { return false; }

  // The master's initial value of a shard. `value` is empty when sizes alone are simulated, here and
  // below.
  virtual void Initial(const ShardInfo& shard, std::span<const float> value) {
    (void)shard, (void)value;
  }

  // `sum` is the sum over the party; change it into what crosses the WAN (kEscalate) or what the
  // workers get at once (kReturn).
  virtual Action Complete(const PartyRound& round, std::span<float> sum) {
    (void)round, (void)sum;
    return Action::kEscalate;
  }

  // Whether a sum that lacks workers is made up to what all of the party's would have given before it
  // comes to Complete: where it is a mean, for example. Otherwise global servers make up for them.
  virtual bool MakesUp() const { return false; }

  // So many of the party's workers take part from now on.
  virtual void OnMembers(std::uint32_t present, std::uint32_t all) { (void)present, (void)all; }

  // How many rounds of the party lead to `global` rounds: where a party that comes back goes on.
  virtual Round PartyRounds(Round global) const { return global; }

  // What the policy's next decisions about a shard, whose last round was `round`, depend on.
  virtual void Describe(Digest& digest, Round round) const {
    (void)round;
    digest.Unknown();
  }

  // `value` is the global server's answer; change it into what the workers get.
  virtual void Answer(const ShardInfo& shard, std::span<float> value) { (void)shard, (void)value; }
};

}  // namespace geomx
