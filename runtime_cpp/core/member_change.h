// Who takes part no more, or again: the word of the scheduler, which alone decides it.
//
// Every change has a number, its epoch: one more than the change before. It is in these messages alone.
// Contributions need none: what a lost process has said on its links is dropped until its successor is
// announced, which has links of its own, and what a contribution stands for is its merge count.
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
