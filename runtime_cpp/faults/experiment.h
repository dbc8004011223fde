// What one seed stands for: a small cluster, what it trains, and the faults that happen meanwhile.
// Plain data; everything else about a run follows from it and the seed.
#pragma once

#include <cstdint>
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
    kReset,  // all connections between `node` and `other` break
    kCut,    // nothing passes between them for `lasts`
    kPause,  // the process does not run for `lasts`
    kKill,   // it is gone; another takes its place after `lasts`
    kJoin,   // a member that was not there at the start begins
    kLeave,  // a worker leaves after its present step
  };
  What what = What::kReset;
  Time at = 0;
  Time lasts = 0;
  NodeId node = 0;
  NodeId other = 0;        // of a reset or a cut; `node` itself: all its links
  bool told = true;        // of a kill: connections close and the launcher says so; else the machine is gone
  double written = 1;      // of a kill: the share of uncommitted records that the disk has nevertheless
};

std::string ToString(const Fault& fault);  // a few words

struct Tensor {
  std::uint32_t elements = 0;
  std::vector<ShardInfo> shards;
};

struct Experiment {
  std::uint64_t seed = 0;
  check::Plan plan;
  OnLoss on_loss = OnLoss::kWait;
  std::vector<NodeId> absent;  // at the start

  // ---- training ----
  std::vector<Tensor> tensors;
  Round rounds = 4;
  std::string optimizer;   // the instruction that the master gives; empty: none
  bool integers = false;   // pushes are integers that do not depend on the values: any order gives the same sum
  bool lockstep = true;    // a step waits for the values of all tensors
  bool barrier = false;    // of all workers, before they leave
  // A plain sum over those who took part, in the order of their ids, gives the values.
  bool replayable = false;
  bool exact = true;       // values do not depend on timing

  // ---- time ----
  Time compute = 0;                    // of a step, at most
  std::vector<double> slow;            // by party: how many times longer its steps take
  Time lan_delay = 0, wan_delay = 0;   // one way
  double bytes_per_s = 1e6;
  Time suspect = 0, redial = 0;
  bool shaped = false;     // messages wait in an emulated network at both ends
  double loss = 0, duplicates = 0, late = 0;  // of datagrams

  std::vector<Fault> faults;
};

std::string ToString(const Experiment& experiment);  // a line

// The same for the same seed, on every machine.
Experiment Draw(std::uint64_t seed);

}  // namespace geomx::faults
