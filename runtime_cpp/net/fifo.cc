// Shares of edges that are FIFO queues, under bbr. A queue serves connections in proportion to what they
// send into it. A connection has one weight for all its edges, namely that of the edge where it meets
// most others; once its window is used up, what that allows (standing.cc).
//
// Acknowledgements share the queues of the way back with data, and no window slows them. As part of
// max-min they would slow their connection where data fill such a queue. Instead, an edge offers data
// what the acknowledgements of the present rates leave. Since rates depend on that, edges are shared
// again until it changes by no more than kSettled.
#include <algorithm>
#include <cmath>

#include "net/flows.h"

namespace geomx::net {

namespace {

constexpr double kSettled = 1e-3;  // of an edge's bandwidth
constexpr double kMostAcks = 0.95;  // of an edge's bandwidth; what is left is for data

}  // namespace

bool FlowNetwork::Reserves(const ConnectionOptions& options) const {
  return fifo_ && options.reverse_share > 0.0 && options.ramp.congestion == Congestion::kBbr;
}

void FlowNetwork::Join(const Connection& connection, bool present) {
  const ConnectionId id = Id(connection);
  const auto join = [id, present](std::vector<ConnectionId>& list) {
    const auto place = std::ranges::lower_bound(list, id);
    if (present) {
      list.insert(place, id);
    } else {
      list.erase(place);
    }
  };
  if (fifo_) join(sending_);
  if (connection.back == 0) return;
  for (const EdgeId edge : Back(connection)) join(queues_[edge].ackers);
  NoteAcks(connection);
}

void FlowNetwork::NoteAcks(const Connection& connection) {
  for (const EdgeId edge : Back(connection)) {
    if (queues_[edge].noted) continue;
    queues_[edge].noted = true;
    reserving_.Add(edge);
  }
}

double FlowNetwork::Acks(const EdgeQueue& queue) const {
  double acks = 0.0;
  for (const ConnectionId id : queue.ackers) {
    acks += connections_[id].ack_share * solver_.rate(id);
  }
  return acks;
}

void FlowNetwork::Reserve() {
  for (const EdgeId edge : reserving_) {
    EdgeQueue& queue = queues_[edge];
    queue.noted = false;
    if (queue.bytes_per_s == kInfinity) continue;
    const double acks = std::min(Acks(queue), kMostAcks * queue.bytes_per_s);
    const double change = std::fabs(acks - queue.reserved);
    if (change <= (acks > 0.0 ? kSettled * queue.bytes_per_s : 0.0)) continue;
    queue.reserved = acks;
    solver_.SetCapacity(edge, queue.bytes_per_s - acks);
  }
  reserving_.clear();
}

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
    const double here = queues_[edge].bytes_per_s;
    if (here < kInfinity && crossings_[edge] > most) {
      most = crossings_[edge];
      capacity = here;
      upstream = narrowest;
    }
    narrowest = std::min(narrowest, here);
  }
  if (most == 0) return connection.weight;
  const double pace = StandingOf(connection).sender.pace;
  double rate = pace > 0.0 ? pace : connection.ramp.SendingRate();
  if (rate == 0.0) rate = capacity / most;  // not known, so as if all were equal
  const bool bbr = connection.ramp.options().congestion == Congestion::kBbr;
  if (bbr && upstream < capacity) rate = capacity;
  return connection.weight * std::max(rate, 1.0);
}

// These have no rounds of their own, at whose ends others look at the edges again. The bandwidth of an edge,
// who meets there, and the pace of datagrams may have changed since they began.
void FlowNetwork::RenewShares() {
  for (const ConnectionId id : sending_) {
    Connection& connection = connections_[id];
    if (connection.state != State::kBusy || connection.ramp.SendingRate() > 0.0) continue;
    const double share = ShareOf(connection);
    if (share == connection.share) continue;
    connection.share = share;
    Touch(id);
  }
}

}  // namespace geomx::net
