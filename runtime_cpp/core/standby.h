// A standby: repeats the calls of a global server as they are made, so that it can take its place at
// any moment (replicator.h has the other end).
//
// The standby's process has two nodes: one of the role kStandby, which is a member of the run and
// receives the records, and another with the configuration of the global server, which repeats them
// (Standby) and has neither links nor timers of its own until the scheduler tells that it is in
// charge (MemberChange::moved). Then the driver gives it the links, which go on where they were
// (link.h), as after a restart from a journal in a file.
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
  Standby(Node& node, Replay::Handler& handler) : replay_(node, handler) {}

  // Repeats the records of a message. Returns the number of the batch that is complete with them, to
  // be confirmed. Throws JournalError as Replay does.
  std::optional<std::uint64_t> Take(const Message& message) {
    EachRecord(message, [this](std::span<const std::byte> body, Payload payload) {
      replay_.Apply(body, std::move(payload));
    });
    return BatchEnded(message);
  }
  Replay& replay() { return replay_; }

 private:
  Replay replay_;
};

}  // namespace geomx
