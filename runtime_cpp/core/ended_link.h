// A connection between two members that has ended, as one of them reports it to the scheduler.
//
// Either end may be at fault: the scheduler looks a moment later which of the two is silent.
#pragma once

#include <string>

#include "core/archive.h"
#include "core/types.h"

namespace geomx {

struct EndedLink {
  Time due = 0;
  NodeId one = 0, other = 0;
  std::string reason;

  void Exchange(Archive& archive) { archive(due, one, other, reason); }
};

}  // namespace geomx
