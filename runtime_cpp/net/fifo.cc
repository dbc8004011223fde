// Weights of connections where edges are FIFO queues: a queue serves connections in proportion to what
// they send into it. A connection has one weight for all its edges, namely that of the edge where it
// meets most others.
#include <algorithm>

#include "net/flows.h"

namespace geomx::net {

void FlowNetwork::Count(Connection& connection, bool present) {
  if (connection.counted == present || connection.ramp.options().window_limit == kInfinity) return;
  connection.counted = present;
  for (const EdgeId edge : Path(connection)) crossings_[edge] += present ? 1 : -1;
}

double FlowNetwork::ShareOf(const Connection& connection) const {
  if (!fifo_) return connection.weight;
  // The edge where it meets most others decides. What comes to it over a narrower one arrives evenly,
  // and is served nearly whole, since others under bbr wait for acknowledgements there.
  double most = 0, capacity = 0, narrowest = kInfinity, upstream = kInfinity;
  for (const EdgeId edge : Path(connection)) {
    const double here = solver_.capacity(edge);
    if (here < kInfinity && crossings_[edge] > most) {
      most = crossings_[edge];
      capacity = here;
      upstream = narrowest;
    }
    narrowest = std::min(narrowest, here);
  }
  if (most == 0) return connection.weight;
  double rate = connection.ramp.SendingRate();
  if (rate == 0.0) rate = capacity / most;  // not known, so as if all were equal
  const bool bbr = connection.ramp.options().congestion == Congestion::kBbr;
  if (bbr && upstream < capacity) rate = capacity;
  return connection.weight * std::max(rate, 1.0);
}

}  // namespace geomx::net
