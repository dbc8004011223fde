// A change of the membership: a member is lost, or another process of it takes part. Only the scheduler
// makes them.
//
// Each change increments the epoch, which only these messages carry. Contributions need none: their merge
// count says how many workers they include, and messages of a lost process are dropped until its successor
// is announced, which has links of its own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/message.h"
#include "core/types.h"

namespace geomx {

struct MemberChange {
  std::uint32_t epoch = 0;
  NodeId who = 0;
  bool back = false;               // another process of that name takes part; otherwise: it is lost
  std::uint32_t incarnation = 0;   // of the process that is lost, or takes part
  std::string name = {};
  std::string reason = {};         // why it is lost
  std::string address = {};        // of the process that takes part
};

// As a message, and back; nothing if it is none.
Message Pack(const MemberChange& change);
std::optional<MemberChange> UnpackMemberChange(const Message& message);

}  // namespace geomx
