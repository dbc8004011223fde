// The barriers at which workers wait, as the scheduler knows them.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "core/archive.h"
#include "core/types.h"

namespace geomx {

class Barriers {
 public:
  // By number.
  using Waiting = std::map<Round, std::set<NodeId>>;
  Waiting& all() { return waiting_; }
  const Waiting& all() const { return waiting_; }

  // A worker comes to one barrier after the other, and waits at few of them at a time. Returns the
  // reason to refuse it; empty if it waits now.
  std::string Come(NodeId worker, Round round) {
    Round& last = last_[worker];
    if (round != last + 1) {
      return "barrier " + std::to_string(round) + " after barrier " + std::to_string(last);
    }
    const auto waits = std::count_if(waiting_.begin(), waiting_.end(), [worker](const auto& each) {
      return each.second.contains(worker);
    });
    if (waits >= kMost) return "waits at too many barriers";
    last = round;
    waiting_[round].insert(worker);
    return {};
  }
  // A barrier that can never be complete: `waits` is at it, and `left` ended without coming to it.
  struct Missed {
    Round round = 0;
    NodeId waits = 0, left = 0;
  };
  std::optional<Missed> FindMissed(const std::set<NodeId>& ended) const {
    for (const auto& [round, waiting] : waiting_) {
      const auto in = [](const std::set<NodeId>& set) { return [&](NodeId id) { return set.contains(id); }; };
      const auto still = std::find_if_not(waiting.begin(), waiting.end(), in(ended));
      const auto left = std::find_if_not(ended.begin(), ended.end(), in(waiting));
      if (still != waiting.end() && left != ended.end()) return Missed{round, *still, *left};
    }
    return std::nullopt;
  }
  // All that take part have come to `barrier`.
  void Release(Waiting::iterator barrier) {
    released_ = std::max(released_, barrier->first);
    waiting_.erase(barrier);
  }
  // Whether the others have gone on from a barrier, and will not come to it again: a worker that comes to it
  // now has come back, or joins late, and would never continue.
  bool Passed(Round round) const { return round <= released_; }
  // A worker waits no more.
  void Leave(NodeId worker) {
    for (auto& [round, waiting] : waiting_) waiting.erase(worker);
  }
  // A new process of a worker begins with the first barrier.
  void Renew(NodeId worker) { last_.erase(worker); }
  void Exchange(Archive& archive) { archive(waiting_, last_, released_); }

 private:
  static constexpr int kMost = 64;

  Waiting waiting_;
  std::map<NodeId, Round> last_;  // the last that each worker came to
  Round released_ = 0;            // the last that was released
};

}  // namespace geomx
