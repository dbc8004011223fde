// The record of a run, and the laws (docs/faults.md) that are checked against it after the run.
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
  struct Closed {  // a round that closed without some of the server's children
    std::uint32_t life = 0;         // of the server's process
    std::uint32_t incarnation = 0;  // of that
    Round round = 0, above = 0;
    std::uint32_t workers = 0;
    std::set<NodeId> without;
    std::vector<std::pair<NodeId, Round>> late;  // additional contributions, and the rounds of their pushes
  };

  // Rounds that global servers closed, each with the `life` of the server's process; by (server, key, shard).
  std::map<std::tuple<NodeId, Key, std::uint32_t>, std::vector<std::pair<std::uint32_t, Round>>> updated;
  std::map<std::tuple<NodeId, Key, std::uint32_t>, std::vector<Closed>> partial;  // at any server
  // The incarnations of a local server whose sums for a round a global server accepted; by (global server,
  // local server, key, shard, round).
  std::map<std::tuple<NodeId, NodeId, Key, std::uint32_t, Round>, std::vector<std::uint32_t>> taken;
  // The party's rounds that a local server escalated as a global round; by (server, its incarnation, key,
  // shard, global round). The two numbers differ after rounds without any worker, or without the party. A
  // party that returns during a round may send two sums for it.
  std::map<std::tuple<NodeId, std::uint32_t, Key, std::uint32_t, Round>, std::vector<Round>> rounds;
  // ---- where rounds of parties close without some workers ----
  // The rounds that a local server closed, with the `life` of its last process that did; by (server, its
  // incarnation, key, shard).
  using Party = std::tuple<NodeId, std::uint32_t, Key, std::uint32_t>;
  std::map<Party, std::map<Round, std::uint32_t>> closed;
  std::set<Party> after_end;  // those whose last sum reached a global server that had stopped
  std::map<std::pair<Party, NodeId>, std::vector<Contribution>> arrived;  // a worker's pushes there, in order
  std::set<std::pair<NodeId, std::uint32_t>> ended;  // processes that ended or were lost, by node and incarnation
  std::set<Contribution> ending;  // pushes after which the worker makes no more

  std::map<Contribution, Values> pushed;
  std::set<Contribution> absent;  // rounds whose answer to the worker says that all contributions were absent
  std::map<Contribution, Values> values;   // the weights of each worker after each round
  bool ambiguous = false;  // two processes of a worker pushed different values in the same round
  std::set<Contribution> acknowledged;     // contributions whose answer has reached their worker
  std::map<std::pair<Key, std::uint32_t>, Values> last;  // the global servers' shards after the run
};

// Returns the number by which a history identifies a party's round. Where rounds close early, with `continue`, a new
// process of a local server counts its rounds from the beginning, so the number contains the server's incarnation.
inline Round Numbered(const Experiment& experiment, std::uint32_t incarnation, Round round) {
  return experiment.on_loss == OnLoss::kContinue && experiment.early() ? incarnation << 16 | round : round;
}

// Returns the number by which a history identifies a worker's push to a process of its server. Where rounds of parties
// close early, two processes of a worker may contribute to one, so the number contains the worker's incarnation.
inline Round PushNumber(const Experiment& experiment, std::uint32_t server, std::uint32_t worker, Round round) {
  const bool both = experiment.on_loss == OnLoss::kContinue && !experiment.party_rounds.empty();
  return both ? server << 24 | worker << 16 | round : Numbered(experiment, server, round);
}

// Returns the incarnation by which History::closed and History::arrived identify a process; 0 with `wait`, where
// processes continue the work of those before them.
inline std::uint32_t Era(const Experiment& experiment, std::uint32_t incarnation) {
  return experiment.on_loss == OnLoss::kContinue ? incarnation : 0;
}

Share ShareOf(const Experiment& experiment, NodeId worker, Key key, Round round);
// Returns what a worker pushes in a round, computed from the weights that it holds.
Values PushOf(const Experiment& experiment, NodeId worker, Key key, Round round, const Values& value);
Values InitialOf(const Experiment& experiment, Key key);

Values PartOf(const Values& whole, const ShardInfo& shard);
bool Same(const Values& one, const Values& other);
std::string Where(NodeId worker, Key key, Round round);
// Returns why the weights are not those of plain sums over the recorded contributors, in the order of their ids; empty:
// they are (recomputation.cc).
std::string Recompute(const Experiment& experiment, const History& history);

// Returns the law that a run broke, with details; empty: none. `undisturbed`: the same experiment without faults.
std::string Judge(const Experiment& experiment, const History& history, const History* undisturbed);

}  // namespace geomx::faults
