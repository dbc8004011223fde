// What happened in a run, as far as the laws need it, and the laws that are checked when it is over.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "core/event.h"
#include "faults/experiment.h"
#include "faults/network.h"

namespace geomx::faults {

using Values = std::vector<float>;

struct History {
  using Contribution = std::tuple<NodeId, Key, Round>;  // of a worker
  struct Closed {  // a round that closed without some
    std::uint32_t incarnation = 0;  // of the server's process
    Round round = 0, above = 0;
    std::uint32_t workers = 0;
    std::set<NodeId> without;
    std::vector<std::pair<NodeId, Round>> late;  // additional contributions, and what they were pushed for
  };

  // Rounds that global servers closed, each with the server's life: by (server, key, shard).
  std::map<std::tuple<NodeId, Key, std::uint32_t>, std::vector<std::pair<std::uint32_t, Round>>> updated;
  std::map<std::tuple<NodeId, Key, std::uint32_t>, std::vector<Closed>> partial;  // at any server
  // Which processes of a party's server a global server took sums for a round from.
  std::map<std::tuple<NodeId, NodeId, Key, std::uint32_t, Round>, std::vector<std::uint32_t>> taken;
  // The party's rounds that a server escalated as a global round: by (server, its incarnation, key, shard,
  // global round). They differ after rounds without any worker, or without the party. A party that comes
  // back within a round may send two sums for it.
  std::map<std::tuple<NodeId, std::uint32_t, Key, std::uint32_t, Round>, std::vector<Round>> rounds;
  std::map<Contribution, Values> pushed;
  std::map<Contribution, Values> values;   // that workers held after each round
  bool ambiguous = false;  // two processes of a worker pushed different values in a round of one number
  std::set<Contribution> acknowledged;     // contributions whose answer their worker has
  std::map<std::pair<Key, std::uint32_t>, Values> last;  // the global servers' shards at the end
};

// The number of a party's round in a history. With a quorum, a local server counts its rounds anew after
// it was lost, so the number contains its incarnation.
inline Round Numbered(const Experiment& experiment, std::uint32_t incarnation, Round round) {
  return experiment.plan.rounds.quorum > 0 ? incarnation << 16 | round : round;
}

// The contribution of a worker to a round, from the value that it holds.
Values PushOf(const Experiment& experiment, NodeId worker, Key key, Round round, const Values& value);
Values InitialOf(const Experiment& experiment, Key key);

// Returns which law a run broke; empty: none. `undisturbed`: the same experiment without faults.
std::string Judge(const Experiment& experiment, const History& history, const History* undisturbed);

}  // namespace geomx::faults
