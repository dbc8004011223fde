// A packet network: computes the arrival time of each packet, or its loss.
//
// It carries the packets of a real kernel, unlike the flow model (net/flows.h), which has none. An edge
// of the graph sends packets one after another at the bandwidth of its schedule, queues waiting packets
// up to a number of bytes, drops packets beyond that, loses some at random, and delays the others.
// Routes with a common edge share its queue, which is the only cause of congestion.
//
// Jitter resembles that of a busy router: the additional delay is drawn again every `jitter`, and
// packets of an edge never overtake each other.
//
// Sans-IO: time is an argument, and a packet is a number whose bytes the caller stores.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <queue>
#include <random>
#include <vector>

#include "core/types.h"
#include "net/bandwidth_schedule.h"

namespace geomx::emulation {

using net::EdgeId;
using RouteId = std::uint32_t;
using PacketId = std::uint32_t;

class Underlay {
 public:
  struct Edge {
    net::BandwidthSchedule schedule;  // from the start of the run on, bytes/s of whole IP packets
    Time delay = 0;                 // one way
    Time jitter = 0;                // largest additional delay
    double loss = 0.0;              // of a packet
    std::uint64_t queue_bytes = 0;  // that may wait, besides the packet being sent
  };
  struct Packet {
    PacketId id = 0;
    std::uint32_t bytes = 0;
    RouteId route = 0;
  };
  struct Counts {
    std::uint64_t delivered = 0, overflowed = 0, lost = 0;
    Time waited = 0;  // of all packets, in queues behind others
  };

  explicit Underlay(std::uint64_t seed) : random_(seed) {}

  EdgeId AddEdge(Edge edge);
  // Throws std::invalid_argument for edges that do not exist.
  RouteId AddRoute(std::vector<EdgeId> edges);

  // Schedules count from here. Until then an edge has the first bandwidth above 0 of its schedule, so
  // that a run can begin.
  void SetOrigin(Time now) { origin_ = now; }

  // Packets that leave the edge from now on have this delay, and are lost with this probability; what
  // is not given stays. Packets never overtake each other, also where the delay shrinks.
  void Set(EdgeId edge, std::optional<Time> delay, std::optional<double> loss);

  // A packet enters its route.
  void Enter(const Packet& packet, Time now) { moves_.push({now, order_++, packet, 0}); }

  // The time of the next event.
  Time NextEvent() const { return moves_.empty() ? kNever : moves_.top().at; }

  // Advances to `now`. Calls `arrived(packet)` for packets that have left the network, in order,
  // and `gone(id)` for lost ones.
  template <class Arrived, class Gone>
  void Advance(Time now, Arrived&& arrived, Gone&& gone) {
    while (NextEvent() <= now) {
      const Move move = moves_.top();
      moves_.pop();
      if (move.hop == routes_[move.packet.route].size()) {
        ++counts_.delivered;
        arrived(move.packet);
      } else {
        Cross(move);
      }
    }
    for (const PacketId id : gone_) gone(id);
    gone_.clear();
  }

  const Counts& counts() const { return counts_; }

 private:
  struct Waiting {
    Time until = 0;  // its last byte has left
    std::uint32_t bytes = 0;
  };
  struct Line {
    Edge options;
    double first_rate = 0.0;  // before the origin
    std::deque<Waiting> queue;
    std::uint64_t queued_bytes = 0;
    Time free_at = 0;
    Time drawn_at = 0;
    Time extra = 0;  // current additional delay
    Time last_arrival = 0;
  };
  struct Move {
    Time at = 0;
    std::uint64_t order = 0;
    Packet packet;
    std::uint32_t hop = 0;  // index of the next edge of its route
  };
  struct Later {
    bool operator()(const Move& a, const Move& b) const {
      return a.at != b.at ? a.at > b.at : a.order > b.order;
    }
  };

  void Cross(Move move);
  Time Finish(Line& line, Time from, double bytes);
  double Draw() { return std::uniform_real_distribution<double>()(random_); }

  std::vector<Line> lines_;
  std::vector<std::vector<EdgeId>> routes_;
  std::priority_queue<Move, std::vector<Move>, Later> moves_;
  std::vector<PacketId> gone_;
  std::uint64_t order_ = 0;
  std::optional<Time> origin_;
  std::mt19937_64 random_;
  Counts counts_;
};

}  // namespace geomx::emulation
