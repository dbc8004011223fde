// The waits of a node, each with the nodes that it waits for: for messages to users.
//
// A role lists its waits on demand and keeps no state for them; the driver measures how long they
// last and decides when to report them (io/watch.h).
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "core/types.h"

namespace geomx {

struct Wait {
  enum class Kind : std::uint8_t {
    kScheduler,  // to be reached, before anything is known
    kRoster,     // the scheduler to announce that all members have joined
    kJoin,       // the scheduler: members that have not joined
    kConnect,    // peers that are not connected to this node
    kReady,      // the scheduler: members that are not connected to all their peers
    kStart,      // the scheduler to announce that all members are connected
    kPush,       // pushes to a round of a key that others have pushed to
    kAnswer,     // the value after a push
    kInitial,    // a value before any push
    kBarrier,    // the scheduler: workers that have not come
    kRelease,    // the scheduler to announce that all workers have come
    kLeave,      // the scheduler: workers that have not left, where others have
    kStop,       // the scheduler to announce that all workers have left
    kReply,      // a coordinator's answer
    kOrder,      // an order of a coordinator on this node, which is `key`
  };
  Kind kind = Kind::kStart;
  std::vector<NodeId> whom;  // ascending; empty if the node cannot know
  Key key = 0;               // of the least round, then the lowest
  Round round = 0;
  std::uint32_t keys = 1;    // number of keys that wait for the same nodes
};

// Merges waits for the same nodes into one.
class Waits {
 public:
  void Add(const Wait& wait) {
    const auto [found, fresh] = waits_.try_emplace({wait.kind, wait.whom}, wait);
    if (fresh) return;
    Wait& known = found->second;
    if (known.key != wait.key) ++known.keys;
    if (std::pair(wait.round, wait.key) < std::pair(known.round, known.key)) {
      known.round = wait.round;
      known.key = wait.key;
    }
  }
  std::vector<Wait> Take() {
    std::vector<Wait> all;
    for (auto& [who, wait] : waits_) all.push_back(std::move(wait));
    waits_.clear();
    return all;
  }

 private:
  std::map<std::pair<Wait::Kind, std::vector<NodeId>>, Wait> waits_;
};

}  // namespace geomx
