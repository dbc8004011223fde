// A standby: repeats the calls of a global server as they are made, so that it can take its place at
// any moment (replicator.h has the other end).
//
// The standby's process has two nodes: one of the role kStandby, which is a member of the run and
// receives the records, and another with the configuration of the global server, which repeats them
// (Standby) and has neither links nor timers of its own until the scheduler tells that it is in
// charge (MemberChange::moved). Then the driver gives it the links, which go on where they were
// (link.h), as after a restart from a journal in a file.
//
// Each machine has its own clock. The calls are repeated with the times that this process's clock showed
// when they were made: otherwise heartbeats and deadlines would be due much later, or at once, after the
// standby has taken over. How far it is ahead is known from the calls before the run starts, until which
// nothing depends on time, and constant from then on: timers must expire between the same calls.
#pragma once

#include <cstdint>
#include <optional>

#include "core/node.h"
#include "core/replay.h"
#include "core/replicator.h"

namespace geomx {

class Standby {
 public:
  // Both outlive this. REQUIRES: as for Replay.
  Standby(Node& node, Replay::Handler& handler) : node_(node), replay_(node, handler) {}

  // Repeats the records of a message. Returns the number of the batch that is complete with them, to
  // be confirmed. Throws JournalError as Replay does. `now`: by the clock of this process; without it,
  // both have one clock.
  std::optional<std::uint64_t> Take(const Message& message, std::optional<Time> now = {}) {
    EachRecord(message, [&](std::span<const std::byte> body, Payload payload) {
      if (now && !node_.started()) CompareClocks(body, *now);
      replay_.Apply(body, std::move(payload));
    });
    return BatchEnded(message);
  }
  Replay& replay() { return replay_; }

 private:
  // Processes of one machine have one clock, and records are on their way for less than a second.
  static constexpr Time kOneClock = kSecond;

  void CompareClocks(std::span<const std::byte> body, Time now) {
    const auto made = TimeOf(body);
    if (!made) return;
    const Time ahead = now - *made;
    replay_.SetAhead(ahead >= 0 && ahead < kOneClock ? 0 : ahead);
  }

  Node& node_;
  Replay replay_;
};

}  // namespace geomx
