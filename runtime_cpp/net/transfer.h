// Finish times of independent transfers with given start times, by the flow model alone.
//
// There are two families. `FluidTransfers` reproduces SimGrid's models (CM02, LV08, max-min): a flow
// waits a multiple of its route's latency, then drains as fluid; all flows of a route have the same rate
// at any moment, so a route is one stream whose weight is the number of its flows, and a flow ends
// when the route's common progress counter has passed its size. A hundred thousand flows over a dozen
// sites are then a hundred-odd streams. `TcpTransfers` is geomx' own model (flows.h): connections
// with handshake, window and payload share.
//
// SimGrid's rules, from its documentation and checked against its answers (tests/data/simgrid):
//   1. start + latency_factor * sum(lat) passes before the flow uses any link;
//   2. rates x_i are max-min with weights 1 / w_i, w_i = sum(lat_l + S / bw_l) (1 if that is 0),
//      x_i <= min(min bw_l, gamma / (2 sum lat)), and a flow loads the links of its reverse route
//      with `cross_traffic` times its own rate;
//   3. the payload drains at bandwidth_factor * x_i.
// Velho and Legrand, "Accuracy study and improvement of network simulation in the SimGrid
// framework", 2009, for the constants of LV08.
#pragma once

#include <string_view>
#include <vector>

#include "net/bandwidth_schedule.h"
#include "net/flows.h"

namespace geomx::net {

struct TransferEdge {
  BandwidthSchedule schedule;         // in bytes/s; SimGrid's models know constant ones only
  double delay_s = 0.0;  // one way
};

struct TransferRoute {
  std::vector<EdgeId> path;
  std::vector<EdgeId> reverse;  // empty if there is no reverse path
  double loss = 0.0;            // share of the packets, used by the TCP model
};

struct Transfer {
  std::uint32_t route = 0;
  double bytes = 0.0;
  double start_s = 0.0;
};

struct FluidModel {
  double latency_factor = 1.0;
  double bandwidth_factor = 1.0;
  double weight_s = 0.0;            // S, bytes
  double window_bytes = 0.0;        // gamma; 0: no window
  double cross_traffic = 0.0;
  bool latency = true;              // false: every edge counts as without delay

  // "maxmin", "CM02" or "LV08"; throws std::invalid_argument for anything else.
  static FluidModel Named(std::string_view name);
};

struct TcpModel {
  Congestion congestion = Congestion::kBbr;
  int streams = 1;                     // parallel ones that carry each flow
  double window_bytes = kWindowLimit;  // of each stream
  double efficiency = kPayloadShare;
  double reverse_share = 0.0;
  // true: every flow opens a connection of its own and pays a handshake. false: the flows of a route
  // follow each other, in order of start, on one connection that was opened before the first.
  bool new_connections = true;
  bool fifo = false;                   // edges are FIFO queues
};

// Finish times in seconds, in the order of `transfers`; infinite for a flow that never ends (an edge
// of capacity 0 for good). Throws std::invalid_argument for sizes or starts that are negative, and for a
// bandwidth that changes where the model has none.
std::vector<double> FluidTransfers(const std::vector<TransferEdge>& edges,
                                   const std::vector<TransferRoute>& routes,
                                   const std::vector<Transfer>& transfers, const FluidModel& model);

std::vector<double> TcpTransfers(const std::vector<TransferEdge>& edges,
                                 const std::vector<TransferRoute>& routes,
                                 const std::vector<Transfer>& transfers, const TcpModel& model);

}  // namespace geomx::net
