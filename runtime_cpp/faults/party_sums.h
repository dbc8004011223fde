// Which pushes of workers a local server has added to which of its rounds, where these close without some workers.
// It is found from what was delivered to the server, and whom it reported as absent and as late.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "faults/history.h"

namespace geomx::faults {

class PartySums {
 public:
  struct Term {
    History::Contribution push;
    bool late = false;
  };

  PartySums(const Experiment& experiment, const History& history);

  const std::string& wrong() const { return wrong_; }  // the law that is broken; empty: none
  // The pushes in a round, in the order of addition; null: the server closed no such round. `incarnation`: of the
  // server's process.
  const std::vector<Term>* Of(NodeId server, std::uint32_t incarnation, Key key, std::uint32_t shard,
                              Round round) const;
  // The first round of a party that was closed, with `wait`.
  Round First(NodeId server, Key key, std::uint32_t shard) const;
  // Whether a push that is in no sum was lost with the local server's process.
  bool WasLost(const History::Contribution& push, std::uint32_t shard) const {
    return lost_.contains({push, shard});
  }
  // The party, if a push is in its last round; null: it is not.
  const History::Party* LastOf(const History::Contribution& push, std::uint32_t shard) const {
    const auto found = last_.find({push, shard});
    return found == last_.end() ? nullptr : &found->second;
  }

 private:
  void Follow(const History::Party& party, const std::map<Round, std::uint32_t>& closed);

  const Experiment& experiment_;
  const History& history_;
  const check::Layout layout_;
  std::map<std::pair<History::Party, Round>, std::vector<Term>> sums_;
  std::set<std::pair<History::Contribution, std::uint32_t>> lost_;
  std::map<std::pair<History::Contribution, std::uint32_t>, History::Party> last_;
  std::string wrong_;
};

}  // namespace geomx::faults
