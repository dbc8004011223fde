// Sync policies: when a party synchronises with the others, and what it sends.
//
// A local server asks its policy once per shard and round, after the last of its workers has
// contributed. The base class is the fully synchronous algorithm: every party round goes to the
// global server, whose answer goes to the workers unchanged.
//
// Where workers do not wait for each other (GlobalRounds::workers_together), the policy is asked at every
// worker's push instead (Update), and keeps the party's model.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

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

// One worker's push, where workers do not wait for each other.
struct WorkerPush {
  const ShardInfo& shard;
  NodeId worker;
  Round round;  // of this worker, from 1
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

  // ---- where workers do not wait for each other ----

  // `value` is what a worker has pushed. Replaces it by what this worker continues with.
  virtual void Update(const WorkerPush& push, std::span<float> value) { (void)push, (void)value; }

  // Returns what the party sends to the global servers now, or nothing. Asked after every Update and Answer
  // while no push of the shard is unanswered. `ends`: no worker will push the shard again; something must be
  // returned, and the value that Answer makes of the answer is the last of all workers.
  virtual std::optional<std::vector<float>> Send(const ShardInfo& shard, bool ends) {
    (void)shard, (void)ends;
    return std::nullopt;
  }

  // ---- both ----

  // `value` is the global server's answer. Replaces it by the value for the workers.
  virtual void Answer(const ShardInfo& shard, std::span<float> value) { (void)shard, (void)value; }
};

}  // namespace geomx
