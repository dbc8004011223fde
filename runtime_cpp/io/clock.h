// The live driver's clock: CLOCK_MONOTONIC, as Python's time.monotonic() reads it. All processes of
// one machine share it, so emulated links can stamp messages with arrival times.
//
// The processes of a run that was resumed are ahead of it, all by the same time, so that their clock
// goes on where it was when the run was killed: the time between does not count, nor does it matter
// whether the machine was started anew.
#pragma once

#include <ctime>

#include "core/types.h"

namespace geomx::io {

// Set it once, before anything reads the clock.
inline Time clock_ahead = 0;

inline Time Now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<Time>(now.tv_sec) * kSecond + now.tv_nsec + clock_ahead;
}

inline double Seconds(Time time) { return static_cast<double>(time) / kSecond; }

}  // namespace geomx::io
