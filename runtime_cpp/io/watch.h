// Says for whom a node waits: a line once a wait has lasted for as long as a node may be silent, and
// another each time that it has lasted twice as long. Waiting is no failure, so nothing is ended.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/wait.h"
#include "io/clock.h"

namespace geomx::io {

// A line for the user, on standard error: "geomx: TEXT". Launchers look for these in nodes' logs.
void Notice(const std::string& text);
// Notices go to this descriptor from now on.
void SendNotices(int descriptor);

class Watch {
 public:
  using NameOf = std::function<std::string(NodeId)>;
  using KeyName = std::function<std::string(Key)>;

  // `patience`: how long a wait may last before it is worth a line.
  void SetPatience(Time patience) { patience_ = patience; }
  Time next() const { return next_; }
  // Compares the node's present waits with those before, and returns the lines that are due.
  // `self`: this node's name. `scheduler`: what is known of the way to it.
  std::vector<std::string> Look(Time now, const std::vector<Wait>& waits, const std::string& self,
                                const NameOf& name, const KeyName& key,
                                const std::string& scheduler);

 private:
  using Who = std::pair<Wait::Kind, std::vector<NodeId>>;

  Time patience_ = 5 * kSecond;
  Time next_ = 0;
  std::map<std::pair<Who, std::pair<Round, Key>>, Time> since_;
  std::map<Who, Time> due_;  // how long the next wait for the same nodes may last
};

}  // namespace geomx::io
