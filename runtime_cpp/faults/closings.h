// The laws of when rounds close with a quorum and a deadline (docs/faults.md): those of global servers, whose children
// are parties, and those of local servers, whose children are workers. They are checked from what is delivered to
// servers, without asking these who takes part in a round.
//
// A local server does not close a round before it has the answer to the one before, and it alone knows for which
// round a worker's push is meant: that it takes a push for late is believed.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/message.h"
#include "faults/experiment.h"

namespace geomx::faults {

class Closings {
 public:
  explicit Closings(const Experiment& experiment);

  // A new process of a server begins, or one is paused, so that its timers are late.
  void OnBegin(NodeId server);
  void OnPause(NodeId server, Time until);

  // Each returns the law that is broken; empty: none.

  // The last slice of a child's push of a shard is about to be handled.
  std::string OnPush(NodeId server, NodeId child, const Header& push, Time now);
  // A server hears that a child is lost, has left, or is without workers.
  std::string OnGone(NodeId server, NodeId child, Time now);
  // It hears that a child is back. The child takes part again once it has received a value.
  std::string OnBack(NodeId server, NodeId child, Time now);
  // A round was closed. `stops`: because the run has ended.
  std::string OnClosed(NodeId server, Key key, std::uint32_t shard, Round round, bool stops, Time now);

  // A local server takes the last push that it was delivered for late.
  void OnLate(NodeId server, NodeId child, Key key, std::uint32_t shard, Time now);
  // The answer to a party's round is about to be handled.
  void OnAnswer(NodeId server, Key key, std::uint32_t shard, Time now);

 private:
  // Of a child, in the open round of a shard. Of one that is back, it is not known whether it takes part.
  enum class Part : std::uint8_t { kTakesPart, kUnknown, kFinished, kGone };
  struct Open {
    PartyRounds rule;
    bool of_party = false;
    Round closed = 0;                // the last round
    std::map<NodeId, Part> children;
    std::map<NodeId, bool> made;     // by child that contributed to the open round; true: in time
    std::set<NodeId> last;           // of these, those that will not push again, also if they were lost since
    bool before = false;             // of the child that pushed last: the same, before that push
    bool awaits = false;             // of a party: the answer to the last round is due
    std::map<NodeId, Round> pushed;  // of a party: by worker, the number of its last push
    std::set<NodeId> unanswered;     // of a party: workers whose last push is
    std::optional<std::pair<NodeId, Time>> late;  // the last push, and when, if it was for a round that had closed
    Time first = 0;                  // when the first contribution arrived, or the answer
    Time complete = kNever;          // from when on no contribution is awaited; kNever: some are
    Time due = kNever;               // when the deadline ends; kNever: the quorum has not contributed
  };
  using Place = std::tuple<NodeId, Key, std::uint32_t>;

  void AddServer(const Experiment& experiment, NodeId server, const std::vector<NodeId>& children, PartyRounds rule,
                 bool of_party);
  Open* OpenOf(NodeId server, Key key, std::uint32_t shard);
  std::string Change(NodeId server, NodeId child, Part part, Time now);
  // Checks that a round has closed when it was complete or its deadline ended, before something else happens.
  std::string Overdue(const Place& place, const Open& open, Time now) const;
  static void Recheck(Open& open, Time now);
  // A late push is answered at once, unless it closes the open round.
  static void NoteAnswered(Open& open, bool closes, Time now);
  // A worker that has pushed a shard waits for the answer to a round of another, before it pushes again.
  bool Waits(NodeId server, NodeId worker, const Open& open) const;

  std::map<Place, Open> rounds_;
  std::map<NodeId, Time> paused_;  // servers, until when
};

}  // namespace geomx::faults
