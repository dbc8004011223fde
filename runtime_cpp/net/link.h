// One direction between two nodes as connections of the flow network: what simulation and emulation
// must not understand differently, in one place.
//
// A link has two lanes, and each is one connection. The reliable lane is TCP: a window, a share by
// congestion control, resent bytes. The best-effort lane is datagrams: no window, and two ways to be
// lost. Where routers look at marks, datagrams take what the reliable lanes leave on every edge. Where
// they serve who comes first, datagrams share like anybody else, and it is the sender that holds them
// back (pacer.h). Formulas and their sources are in ramp.h; what is added here:
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
#include <cstdint>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "core/send_queue.h"
#include "net/flows.h"
#include "net/pacer.h"

namespace geomx::net {

// What routers do with datagrams: serve them last wherever they meet anything else, or as they come.
enum class Queueing : std::uint8_t { kPriority, kFifo };

// Throws std::invalid_argument for a name that is not one of priority, fifo.
inline Queueing QueueingNamed(std::string_view name) {
  if (name == "priority") return Queueing::kPriority;
  if (name == "fifo") return Queueing::kFifo;
  throw std::invalid_argument("queueing is one of priority, fifo");
}

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
  Queueing queueing = Queueing::kPriority;
};

inline ConnectionOptions LaneOptions(const LinkOptions& link, Lane lane) {
  ConnectionOptions options;
  options.path = link.path;
  options.reverse = link.reverse;
  options.efficiency = link.efficiency;
  options.ramp.congestion = link.congestion;
  if (lane == Lane::kBestEffort) {
    options.ramp.window_limit = kInfinity;
    options.priority_class = link.queueing == Queueing::kPriority ? 1 : 0;
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

// Until when a link's datagrams must be held back by their sender, from `now` on: 0 if they need not
// be, kNever while its `reliable` lane has something to send, which tells when it has not.
inline Time HeldUntil(const FlowNetwork& network, const LinkOptions& link, ConnectionId reliable,
                      Pacer& pacer, Time now) {
  if (link.queueing == Queueing::kPriority) return 0;
  if (network.Busy(reliable)) return kNever;
  const auto delivered = [&] { return network.Ramp(reliable).Delivered(); };
  return pacer.Allows(now, delivered) ? 0 : pacer.NextAt();
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
