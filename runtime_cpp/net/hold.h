// How much a sender of messages that differ in priority puts on a path under bbr.
//
// An urgent message cannot overtake what stands in the network's queues, so less urgent ones wait at the
// sender once more than kQueuedAhead would stand there. Both drivers follow this rule: the live one with the
// kernel's estimate of the path, and the simulator, where edges are FIFO queues, with the model's.
//
// BBR's estimate of the bandwidth is of what was delivered. To look for more of it, BBR sends a quarter more for
// a round trip; without room for that it would find less and less. Loss-based controls grow only while they
// are not held back, so the rule is not for them.
#pragma once

#include <algorithm>

#include "core/types.h"

namespace geomx::net {

inline constexpr double kProbing = 0.25;                // of a round trip, that BBR sends more
inline constexpr double kMostProbing = 0.01;            // seconds
inline constexpr double kFastRate = 125e6;              // bytes/s; at a higher one, what waits is short
inline constexpr Time kQueuedAhead = 4 * kMillisecond;  // in queues, before less urgent messages wait

// Bytes that keep a path of this bandwidth, in bytes/s, and round trip, in seconds, full.
inline double OnTheWay(double rate, double rtt_s) {
  return rate * (rtt_s + std::min(kProbing * rtt_s, kMostProbing));
}

// The most bytes under way and in queues, before less urgent messages wait.
inline double HeldWindow(double rate, double rtt_s) {
  return OnTheWay(rate, rtt_s) + rate * static_cast<double>(kQueuedAhead) / kSecond;
}

}  // namespace geomx::net
