// Reports long waits and the nodes waited for: a line once a wait has lasted as long as a node may
// be silent, and another each time that this time has doubled. A long wait is no failure and ends
// nothing.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/wait.h"
#include "io/clock.h"

namespace geomx::io {

class Watch {
 public:
  using NameOf = std::function<std::string(NodeId)>;
  using KeyName = std::function<std::string(Key)>;
  using CoordinatorName = std::function<std::string(std::uint32_t)>;

  // `patience`: how long a wait may last before it is reported.
  void SetPatience(Time patience) { patience_ = patience; }
  Time next() const { return next_; }
  // Compares the node's waits with those of the last call, and returns the lines that are due.
  // `self`: this node's name. `scheduler`: the state of dialing it.
  std::vector<std::string> Look(Time now, const std::vector<Wait>& waits, const std::string& self,
                                const NameOf& name, const KeyName& key,
                                const CoordinatorName& coordinator,
                                const std::string& scheduler);
  // The coordinator on this node for whose order a wait lasted that long at the last call; -1: none. Any
  // thread may ask.
  std::int64_t order_due() const { return order_due_; }
  // The key whose initial value this global server has waited for that long; -1: none. Any thread may ask.
  std::int64_t initial_due() const { return initial_due_; }

 private:
  using Who = std::pair<Wait::Kind, std::vector<NodeId>>;

  Time patience_ = 5 * kSecond;
  Time next_ = 0;
  std::atomic<std::int64_t> order_due_ = -1, initial_due_ = -1;
  std::map<std::pair<Who, std::pair<Round, Key>>, Time> since_;
  std::map<Who, Time> due_;  // how long the next wait for the same nodes may last
};

}  // namespace geomx::io
