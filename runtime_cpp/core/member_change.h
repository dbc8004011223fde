// A change of the membership, announced by the scheduler: a member is lost, or a new process of it
// takes part.
//
// Each change increments the epoch, which only these messages carry. Contributions need no epoch:
// their merge count says how many workers they include, and messages of a lost process are dropped
// until its successor, which has links of its own, is announced.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/archive.h"
#include "core/message.h"
#include "core/types.h"

namespace geomx {

struct MemberChange {
  std::uint32_t epoch = 0;
  NodeId who = 0;
  bool back = false;               // a new process of that name takes part; otherwise: it is lost
  bool moved = false;              // that process has the state of the one before (back, too)
  std::uint32_t incarnation = 0;   // of the process that is lost, or takes part
  std::string name = {};
  std::string reason = {};         // why it is lost
  std::string address = {};        // of the process that takes part

  void Exchange(Archive& archive) { archive(epoch, who, back, moved, incarnation, name, reason, address); }
};

// Converts a change to a message and back; Unpack returns nothing if the payload is invalid.
Message Pack(const MemberChange& change);
std::optional<MemberChange> UnpackMemberChange(const Message& message);

}  // namespace geomx
