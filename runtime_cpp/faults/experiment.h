// The experiment that a seed determines: a small cluster, a training workload, and a schedule of faults.
// Plain data. An experiment and its seed determine the whole run.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/types.h"
#include "tests/layout.h"
#include "tests/seeds.h"

namespace geomx::faults {

using check::Random;

enum class OnLoss : std::uint8_t { kWait, kContinue, kStop };

struct Fault {
  enum class What : std::uint8_t {
    kReset,  // all connections between `node` and `other` are reset
    kCut,    // nothing is delivered between them for `lasts`
    kPause,  // the process is stopped for `lasts`, then continues
    kKill,   // the process is killed; a new one replaces it after `lasts`
    kJoin,   // a member that was absent at the start joins
    kLeave,  // a worker leaves after its current step
  };
  What what = What::kReset;
  Time at = 0;
  Time lasts = 0;
  NodeId node = 0;
  NodeId other = 0;        // of a reset or a cut; equal to `node`: all links of `node`
  bool told = true;        // of a kill: connections close and the launcher reports it; else the machine fails
  double written = 1;      // of a kill: the fraction of uncommitted records that reached the disk
};

// Uniform over [low, high].
inline Time Any(Random& random, Time low, Time high) {
  return static_cast<Time>(
      check::Between(random, static_cast<std::uint64_t>(low), static_cast<std::uint64_t>(high)));
}

// When rounds of a party close without some of its workers.
struct PartyRounds {
  std::uint32_t quorum = 0;
  Time deadline = 0;
};

std::string ToString(const Fault& fault);  // for example: cut node0-node3 at 0.5 s for 0.1 s

inline constexpr Time kPatience = 600 * kSecond;  // with nodes that resume where they were

struct Tensor {
  std::uint32_t elements = 0;
  std::vector<ShardInfo> shards;
};

struct Experiment {
  std::uint64_t seed = 0;
  check::Plan plan;
  OnLoss on_loss = OnLoss::kWait;
  bool logged = false;         // with `continue`: the scheduler and the global servers keep logs
  std::vector<NodeId> absent;  // at the start

  // ---- training ----
  std::vector<Tensor> tensors;
  Round rounds = 4;
  std::string optimizer;   // the instruction that the first worker gives; empty: none
  // Probability that a tensor's gradients in a step are zeros: those of all workers, or of one. Half of these workers
  // say that they have nothing to contribute.
  double idle = 0;
  bool integers = false;   // pushed values are integers, independent of the weights: sums do not depend on order
  bool lockstep = true;    // a step begins when the values of all tensors have arrived
  bool barrier = false;    // all workers wait for each other before they leave
  bool hasty = false;      // workers leave, or enter that barrier, without the answers to their last pushes
  bool curtailed = false;  // when the first worker has left, all others are told to, as by batch systems
  // The weights can be recomputed as plain sums over the recorded contributors, in the order of their ids.
  bool replayable = false;
  bool exact = true;       // the weights do not depend on timing

  // ---- time ----
  Time compute = 0;                    // maximum duration of a step
  Time loading = 0;                    // until the first worker gives the initial values; links have heartbeats only
  std::vector<double> slow;            // by party: factor by which its steps take longer
  std::map<NodeId, double> slower;     // workers: the same, where that is more
  Time lan_delay = 0, wan_delay = 0;   // one way
  double bytes_per_s = 1e6;
  double snapshots = 0.01;  // probability that a snapshot replaces a log, after each input of its node
  Time suspect = 0, redial = 0;
  bool shaped = false;     // both ends delay messages in an emulated network
  double loss = 0, duplicates = 0, late = 0;  // of datagrams: probabilities

  std::vector<PartyRounds> party_rounds;  // by party; empty: rounds of parties wait for all workers

  std::vector<Fault> faults;
  // Members that have come back push rounds that have closed, or that contain a push of theirs, and local
  // servers answer with values of earlier rounds. Where parties have rounds of their own, they push without waiting
  // for the answer before.
  bool hostile = false;

  // Pushes may have best-effort slices: what is delivered does not tell when they are complete.
  bool sliced() const { return !plan.lan_push.slicers.empty() || !plan.wan_push.slicers.empty(); }
  // Rounds may close without members that are late, of global servers or of parties.
  bool early() const { return plan.quorum > 0 || !party_rounds.empty(); }
};

std::string ToString(const Experiment& experiment);  // on one line

// What a worker has to contribute to a round of a tensor: gradients that are not all zero, zeros, or nothing, which are
// zeros as well.
enum class Share : std::uint8_t { kGradients, kZeros, kNothing };

// Draws a sync algorithm, codecs and slices (parts.cc).
void DrawParts(Random& random, Experiment& experiment);
// The same where training continues without lost members, by a generator of its own.
void DrawPartsOfContinuing(Random& random, Experiment& experiment);
// Adds what independent draws hardly contain (coincidences.cc).
void DrawCoincidences(Random& random, Experiment& experiment);
// The same, by a generator of its own, so that what the others draw stays as it is.
void DrawRecent(Random& random, Experiment& experiment);
// Draws when rounds of parties close without some workers, and which are slow (party_rounds.cc).
void DrawPartyRounds(Random& random, Experiment& experiment);

// Returns the same experiment for the same seed on every machine.
Experiment Draw(std::uint64_t seed);

}  // namespace geomx::faults
