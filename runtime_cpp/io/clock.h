// The live driver's clock: CLOCK_MONOTONIC, as Python's time.monotonic() reads it. Every process of
// one machine sees the same one, which is what lets emulated links stamp arrival times.
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
