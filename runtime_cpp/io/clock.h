// The live driver's clock: CLOCK_MONOTONIC, as Python's time.monotonic() reads it. All processes of
// one machine share it, so emulated links can stamp messages with arrival times.
#pragma once

#include <ctime>

#include "core/types.h"

namespace geomx::io {

inline Time Now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<Time>(now.tv_sec) * kSecond + now.tv_nsec;
}

inline double Seconds(Time time) { return static_cast<double>(time) / kSecond; }

}  // namespace geomx::io
