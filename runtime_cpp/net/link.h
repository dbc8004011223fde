// One direction between two nodes as connections of the flow network; used by both the simulation and
// the emulation, so that they cannot differ.
//
// A link has two lanes, each of which is one connection. The reliable lane is TCP, with a window, a
// share by congestion control, and retransmitted bytes. The best-effort lane is datagrams, without a
// window, which may be lost in two ways. If routers obey DSCP marks, datagrams use the bandwidth that
// the reliable lanes leave on every edge. With FIFO queues, datagrams share equally, and the sender
// delays them (pacer.h). ramp.h has the formulas and their sources; this file adds:
//
//   parallel streams   n connections that carry one byte stream, each a share 1/n: n windows (first
//                      and largest), n shares of every edge, n times the cap that loss puts on one
//                      (Hacker, Athey and Noble 2002)
//   queue overflow     routers queue at most `queue` seconds of traffic at the speed of the narrowest
//                      edge: a datagram is dropped if its transfer takes longer than it would alone,
//                      by more than that
//   acknowledgements   a share of what the reliable lane sends takes the way back, on whose edges it
//                      meets what is sent there
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

// How routers treat datagrams: with the lowest priority, or in the order of arrival.
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
  double weight = 1.0;                 // share of an edge, relative to other links
  int priority_class = 0;              // of the reliable lane; lower ones go first
  int datagram_class = 1;              // of datagrams, where routers obey marks
  double ack_share = 0.0;              // bytes of acknowledgements on the way back per byte of TCP
};

inline ConnectionOptions LaneOptions(const LinkOptions& link, Lane lane) {
  ConnectionOptions options;
  options.path = link.path;
  options.reverse = link.reverse;
  options.efficiency = link.efficiency;
  options.ramp.congestion = link.congestion;
  if (lane == Lane::kBestEffort) {
    options.ramp.window_limit = kInfinity;
    const bool last = link.queueing == Queueing::kPriority;
    options.priority_class = last ? link.datagram_class : link.priority_class;
    // In a queue that serves in the order of arrival, as one connection of the same round trip.
    options.weight = link.weight * (last ? 1.0 : SharingWeight(link.congestion, link.rtt));
    return options;
  }
  const double streams = link.streams;
  options.reverse_share = link.ack_share;
  options.efficiency *= 1.0 - link.loss;
  options.priority_class = link.priority_class;
  options.weight = link.weight * streams * SharingWeight(link.congestion, link.rtt);
  options.ramp.initial_window *= streams;
  options.ramp.window_limit = streams * link.window_limit;
  options.ramp.rate_limit = streams * LossRateCap(link.congestion, link.rtt, link.loss);
  return options;
}

// The time until which the sender must delay a link's datagrams: 0 for no delay, and kNever while the
// `reliable` lane has data to send, whose completion is an event.
inline Time HeldUntil(const FlowNetwork& network, const LinkOptions& link, ConnectionId reliable,
                      Pacer& pacer, Time now) {
  if (link.queueing == Queueing::kPriority) return 0;
  if (network.Busy(reliable)) return kNever;
  const auto delivered = [&] { return network.Ramp(reliable).Delivered(); };
  return pacer.Allows(now, delivered) ? 0 : pacer.NextAt();
}

// Whether a queue has dropped a datagram of `bytes` whose transmission took `took`. Call it when the
// last byte has left. `capacity(edge)`: the edge's bandwidth for all that use it.
template <class Capacity>
bool Overflowed(const LinkOptions& link, double bytes, Time took, Capacity&& capacity) {
  if (link.queue == kNever) return false;
  double narrowest = kInfinity;
  for (const EdgeId edge : link.path) narrowest = std::min(narrowest, capacity(edge));
  const double alone = bytes / link.efficiency / narrowest * kSecond;
  return static_cast<double>(took) > alone + static_cast<double>(link.queue) + 1.0;
}

// The same for a network that has the whole bandwidth of its edges.
inline bool Overflowed(const FlowNetwork& network, const LinkOptions& link, double bytes, Time took) {
  return Overflowed(link, bytes, took, [&](EdgeId edge) { return network.Capacity(edge); });
}

// The probability that no packet of a datagram of `bytes` is lost.
inline double Kept(const LinkOptions& link, double bytes) {
  return std::pow(1.0 - link.loss, std::ceil(bytes / kSegmentBytes));
}

}  // namespace geomx::net
