// One direction between two nodes as connections of the flow network: what simulation and emulation
// must not understand differently, in one place.
//
// A link has two lanes, and each is one connection. The reliable lane is TCP: a window, a share by
// congestion control, resent bytes. The best-effort lane is datagrams: no window, what the reliable
// lanes leave on every edge, and two ways to be lost. Formulas and their sources are in ramp.h; what
// is added here:
//
//   parallel streams   n connections that carry one byte stream, each a share 1/n: n windows (first
//                      and largest), n shares of every edge, n times the cap that loss puts on one
//                      (Hacker, Athey and Noble 2002)
//   queue overflow     routers hold what comes in faster than it leaves, but no longer than `queue`
//                      at the speed of the narrowest edge: a datagram that was under way for longer
//                      than alone, and longer by more than that, found them full
//   packet loss        a datagram is lost if one of its packets is: 1 - (1 - p)^packets
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/send_queue.h"
#include "net/flows.h"

namespace geomx::net {

struct LinkOptions {
  std::vector<EdgeId> path, reverse;
  Congestion congestion = Congestion::kBbr;
  int streams = 1;                     // TCP connections that carry the reliable lane
  double window_limit = kWindowLimit;  // of one of them, bytes
  double efficiency = kPayloadShare;
  double loss = 0.0;                   // per packet: of a datagram, or what TCP sends again
  Time rtt = 0;                        // of the path, for sharing and for the cap that loss puts
  Time jitter = 0;                     // a message arrives up to this much later, drawn evenly
  Time queue = kNever;                 // see above; kNever: no datagram is too late
  Queueing queueing = Queueing::kFair;
};

inline ConnectionOptions LaneOptions(const LinkOptions& link, Lane lane) {
  ConnectionOptions options;
  options.path = link.path;
  options.reverse = link.reverse;
  options.efficiency = link.efficiency;
  options.queueing = link.queueing;
  options.ramp.congestion = link.congestion;
  if (lane == Lane::kBestEffort) {
    options.ramp.window_limit = kInfinity;
    options.priority_class = 1;
    return options;
  }
  const double streams = link.streams;
  options.efficiency *= 1.0 - link.loss;
  options.weight = streams * SharingWeight(link.congestion, link.rtt);
  options.ramp.initial_window *= streams;
  options.ramp.window_limit = streams * link.window_limit;
  options.ramp.rate_limit = streams * LossRateCap(link.congestion, link.rtt, link.loss);
  return options;
}

// Whether a datagram of `bytes` that took `took` to leave has been dropped by a queue. To be asked
// when its last byte has left.
inline bool Overflowed(const FlowNetwork& network, const LinkOptions& link, double bytes,
                       Time took) {
  if (link.queue == kNever) return false;
  double narrowest = kInfinity;
  for (const EdgeId edge : link.path) narrowest = std::min(narrowest, network.Capacity(edge));
  const double alone = bytes / link.efficiency / narrowest * kSecond;
  return static_cast<double>(took) > alone + static_cast<double>(link.queue) + 1.0;
}

// The probability that no packet of a datagram of `bytes` is lost.
inline double Kept(const LinkOptions& link, double bytes) {
  return std::pow(1.0 - link.loss, std::ceil(bytes / kSegmentBytes));
}

}  // namespace geomx::net
