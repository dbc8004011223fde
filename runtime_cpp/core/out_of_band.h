// Messages that an emulated network does not carry.
#pragma once

#include "core/message.h"

namespace geomx {

// Returns true for membership messages: they leave and arrive at once. A local server's number of
// workers is carried by the network: it must not overtake contributions made with another number.
inline bool IsOutOfBand(Kind kind, bool from_scheduler) {
  switch (kind) {
    case Kind::kMembers: return from_scheduler;
    case Kind::kHello:
    case Kind::kJoin:
    case Kind::kRoster:
    case Kind::kReady:
    case Kind::kStart:
    case Kind::kHeartbeat:
    case Kind::kBye:
    case Kind::kStop:
    case Kind::kDead:
    case Kind::kIteration: return true;
    default: return false;
  }
}

}  // namespace geomx
