// What a server keeps of a shard's open round, where rounds close without children that are late
// (round_policy.h).
#pragma once

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "core/archive.h"
#include "core/round_policy.h"
#include "core/types.h"

namespace geomx {

struct EarlyContributions {
  // To the open round: one of each child that is in time, by id, then the others, by id. Values are
  // added when it closes, as weights may depend on all.
  std::vector<Contribution> made;
  std::vector<Buffer> values;  // of these
  std::uint32_t in_time = 0;   // the first so many
  std::vector<std::pair<NodeId, Round>> dropped;  // late contributions, with the rounds that they were for
  std::set<NodeId> due;       // children whose contribution to the open round is to be answered
  std::set<NodeId> late;      // children whose contribution to an earlier round was answered in this one
  std::set<NodeId> finished;  // children that will not push this shard again
  Time closes_at = kNever;    // the deadline of the open round

  bool open() const { return !made.empty(); }
  // The number of workers in the open round.
  std::uint32_t Workers() const {
    std::uint32_t workers = 0;
    for (const Contribution& each : made) workers += each.workers;
    return workers;
  }
  void Add(const Contribution& contribution, Buffer value);
  // The last push of a child in time was its last of all.
  bool Ends() const;
  // What `child` pushed before it was lost is not to be answered.
  void Forget(NodeId child) {
    due.erase(child);
    late.erase(child);
    finished.erase(child);
  }
  void Exchange(Archive& archive) {
    archive(made, values, in_time, dropped, due, late, finished, closes_at);
    if (values.size() != made.size() || in_time > values.size()) {
      throw StateError("a round with other values than contributions");
    }
  }
};

}  // namespace geomx
