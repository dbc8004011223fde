// The laws of when global rounds close with a quorum and a deadline (docs/faults.md). They are checked from what
// is delivered to global servers, without asking these who takes part in a round.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "core/message.h"
#include "faults/experiment.h"

namespace geomx::faults {

class Closings {
 public:
  explicit Closings(const Experiment& experiment);

  // Each returns the law that is broken; empty: none.

  // The last slice of a party's push of a shard is about to be handled.
  std::string OnPush(NodeId global, NodeId party, const Header& push, Time now);
  // A global server hears that a party is lost, has left, or is without workers.
  std::string OnGone(NodeId global, NodeId party, Time now);
  // It hears that a party is back. The party takes part again once it has received a value.
  std::string OnBack(NodeId global, NodeId party, Time now);
  // A round was closed. `stops`: because the run has ended.
  std::string OnClosed(NodeId global, Key key, std::uint32_t shard, Round round, bool stops, Time now);

 private:
  // Of a party, in the open round of a shard. Of one that is back, it is not known whether it takes part.
  enum class Part : std::uint8_t { kTakesPart, kUnknown, kFinished, kGone };
  struct Open {
    Round closed = 0;                // the last round
    std::map<NodeId, Part> parties;
    std::map<NodeId, bool> made;     // by party that contributed to the open round; true: in time
    Time first = 0;                  // when the first contribution arrived
    Time complete = kNever;          // from when on no contribution is awaited; kNever: some are
  };
  using Place = std::tuple<NodeId, Key, std::uint32_t>;

  Open& OpenOf(NodeId global, Key key, std::uint32_t shard) { return rounds_.at({global, key, shard}); }
  std::string Change(NodeId global, NodeId party, Part part, Time now);
  // Checks that a round has closed when it was complete, before something else happens.
  static std::string Overdue(const Place& place, const Open& open, Time now);
  static void Recheck(Open& open, Time now);

  const check::Plan& plan_;
  const bool applies_;  // servers that are killed and resume repeat what has been delivered to them
  std::map<Place, Open> rounds_;
};

}  // namespace geomx::faults
