// What stands in FIFO queues, under bbr. A connection sends at its rate of sending, and what does not leave
// at once waits in the queue of the edge that limits it, until its window W is used up:
//
//     W = rate (RTT + waits in other queues) + what waits in this one
//
// From then on it is full: it sends what acknowledgements allow. Its share of edges is W / (RTT + waits),
// and it has at most W / (RTT + waits in other queues), the rate at which nothing of it waits in its own.
// Short messages end before their window is used up, so how long a connection has been sending counts.
//
// A queue's wait is what stands in it divided by the bandwidth that acknowledgements leave for data.
// Datagrams stand in it as well: they come at their pace, for which no acknowledgement counts.
// A sender of messages that differ in priority holds them back before bbr would: its window is that of hold.h.
// Acknowledgements wait in the queues of the way back.
// What comes over a narrower edge arrives evenly and does not wait in later queues.
//
// Waits and rates determine each other. After every change of rates, waits are computed from them (Queue),
// and shares and caps from these (Slow), until these are alike twice in turn; flows.cc bounds the rounds.
// After a few steps, each goes half the way, since it could alternate. In which queue a connection waits and whether it
// is full are decisions that could alternate, too: the former may change in the first rounds only, and
// the latter is made when nothing else changes (FindFull).
#include <algorithm>
#include <cmath>

#include "net/flows.h"

namespace geomx::net {

namespace {

constexpr double kAlike = 1e-6;       // shares, of each other
constexpr double kFew = 1e-2;         // of a round trip: a change of waits elsewhere that does not count
constexpr double kFilled = 1e-6;      // of a bandwidth, or of a level
constexpr double kLittle = 1e-6;      // of a rate
constexpr double kUsedUp = 0.5;       // bytes of a window that may be missing
constexpr double kLongest = 1e3;      // seconds until a window is used up; later is never
constexpr double kSettledWait = 1e-9;  // waits, of each other
constexpr int kWholeSteps = 4;        // of both computations; later ones are halves
constexpr int kMostSteps = 50;        // of the computation of waits
constexpr int kMostMoves = 10;        // rounds in which connections may wait in other queues

bool Alike(double one, double other) {
  return one == other || std::fabs(one - other) <= kAlike * std::max(one, other);
}

}  // namespace

void FlowNetwork::SetBehind(ConnectionId id, double bytes, double rate) {
  if (!fifo_) return;
  const double efficiency = connections_.at(id).efficiency;
  standing_[id].sender.behind = bytes / efficiency;
  standing_[id].sender.pace = rate / efficiency;
}

void FlowNetwork::NotePriority(ConnectionId id, std::int32_t priority) {
  if (!fifo_) return;
  Sender& sender = standing_[id].sender;
  sender.holds |= sender.priority && *sender.priority != priority;
  sender.priority = priority;
}

// ---- one connection ----------------------------------------------------------------------------

double FlowNetwork::Room(const Connection& connection) const {
  const Standing& standing = StandingOf(connection);
  const double away_s = static_cast<double>(connection.rtt) / kSecond + standing.apart_s;
  return std::max(standing.window - connection.rate / connection.efficiency * away_s, 0.0);
}

double FlowNetwork::Waiting(const Connection& connection) const {
  const Standing& standing = StandingOf(connection);
  const double left = Left(Id(connection), now_) / connection.efficiency;
  if (standing.window == 0.0) return standing.sender.pace > 0.0 ? standing.sender.behind + left : 0.0;
  const double most = std::min(Room(connection), left);
  if (standing.full) return most;
  const double elapsed = static_cast<double>(now_ - connection.anchor) / kSecond;
  const double more = (standing.sends - connection.rate / connection.efficiency) * elapsed;
  return std::clamp(standing.waiting + more, 0.0, most);
}

void FlowNetwork::TakeWindow(Connection& connection) {
  Standing& standing = StandingOf(connection);
  const double sends = std::min(connection.ramp.SendingRate(), connection.ramp.RateCap());
  const double window = connection.ramp.QueueWindow(standing.sender.holds) / connection.efficiency;
  const bool stalls = sends == 0.0;  // what stood in queues has left when it goes on
  if (standing.full && (stalls || window > standing.window * (1 + kAlike))) {
    standing.waiting = stalls ? 0.0 : Waiting(connection);
    standing.full = false;
    standing.allowed = kInfinity;
    connection.share = ShareOf(connection);
    Touch(Id(connection));
  }
  standing.window = window;
  standing.sends = sends / connection.efficiency;
}

Time FlowNetwork::FullAt(const Connection& connection) const {
  const Standing& standing = StandingOf(connection);
  const double rate = connection.rate / connection.efficiency;
  const double more = standing.sends - rate;
  if (standing.full || rate <= 0.0 || more <= kLittle * standing.sends) return kNever;
  const double room = Room(connection), missing = room - Waiting(connection);
  if (missing <= kUsedUp) return kNever;  // it is full at the end of this instant
  const double seconds = missing / more;
  const double left = Left(Id(connection), now_) / connection.efficiency;
  if (left - rate * seconds <= room || seconds >= kLongest) return kNever;  // it ends before
  return now_ + 1 + static_cast<Time>(std::ceil(seconds * kSecond));
}

// ---- all queues --------------------------------------------------------------------------------

void FlowNetwork::Queue(int round) {
  FindQueues(round < kMostMoves);
  bool again = true;
  for (int step = 0; again && step < kMostSteps; ++step) again = FindWaits(step >= kWholeSteps);
  for (const ConnectionId id : sending_) {
    if (connections_[id].state == State::kBusy && standing_[id].window > 0.0) Slow(id, round >= kWholeSteps);
  }
}

void FlowNetwork::FindQueues(bool move) {
  for (const EdgeId edge : used_) {
    EdgeQueue& queue = queues_[edge];
    queue.load = queue.level = queue.wait_s = 0.0;
  }
  used_.clear();
  for (const ConnectionId id : sending_) {
    const double rate = solver_.rate(id);
    for (const EdgeId edge : Path(connections_[id])) {
      EdgeQueue& queue = queues_[edge];
      if (queue.load == 0.0) used_.push_back(edge);
      queue.load += rate;
      queue.level = std::max(queue.level, rate / connections_[id].share);
    }
  }
  for (const ConnectionId id : sending_) {
    if (connections_[id].state != State::kBusy) continue;
    if (move || standing_[id].edge == kNoEdge) standing_[id].edge = Limiting(id);
  }
}

EdgeId FlowNetwork::Limiting(ConnectionId id) const {
  const Connection& connection = connections_[id];
  const double level = solver_.rate(id) / connection.share;
  const auto limits = [this, level](EdgeId edge) {
    const EdgeQueue& queue = queues_[edge];
    if (queue.load == 0.0 || queue.bytes_per_s == kInfinity) return false;
    const bool filled = queue.load >= (1 - kFilled) * (queue.bytes_per_s - queue.reserved);
    return filled && level >= (1 - kFilled) * queue.level;
  };
  const auto path = Path(connection);
  const auto found = std::ranges::find_if(path, limits);
  return found == path.end() ? kNoEdge : *found;
}

bool FlowNetwork::FindWaits(bool halves) {
  for (const EdgeId edge : used_) queues_[edge].waiting = 0.0;
  for (const ConnectionId id : sending_) {
    const EdgeId edge = standing_[id].edge;
    if (edge == kNoEdge || connections_[id].state != State::kBusy) continue;
    queues_[edge].waiting += Waiting(connections_[id]);
  }
  bool changed = false;
  for (const EdgeId edge : used_) {
    EdgeQueue& queue = queues_[edge];
    const double for_data = queue.bytes_per_s - queue.reserved;
    double wait_s = for_data > 0.0 ? queue.waiting / for_data : 0.0;
    if (halves) wait_s = (wait_s + queue.wait_s) / 2;
    changed = changed || std::fabs(wait_s - queue.wait_s) > kSettledWait * wait_s;
    queue.wait_s = wait_s;
  }
  for (const ConnectionId id : sending_) {
    if (connections_[id].state != State::kBusy) continue;
    Standing& standing = standing_[id];
    standing.found_s = Apart(connections_[id]);
    if (standing.full) standing.apart_s = standing.found_s;
  }
  return changed;
}

double FlowNetwork::Apart(const Connection& connection) const {
  double apart_s = 0.0, narrowest = kInfinity;
  for (const EdgeId edge : Path(connection)) {
    if (queues_[edge].bytes_per_s > narrowest) continue;
    narrowest = queues_[edge].bytes_per_s;
    if (edge != StandingOf(connection).edge) apart_s += queues_[edge].wait_s;
  }
  for (const EdgeId edge : Back(connection)) apart_s += queues_[edge].wait_s;
  return apart_s;
}

void FlowNetwork::Slow(ConnectionId id, bool halves) {
  Connection& connection = connections_[id];
  Standing& standing = standing_[id];
  const double rtt_s = static_cast<double>(connection.rtt) / kSecond;
  if (!standing.full) {
    if (std::fabs(standing.found_s - standing.apart_s) <= kFew * rtt_s) return;
    Integrate(connection);
    standing.apart_s = (standing.apart_s + standing.found_s) / 2;
    connection.stale = true;
    Touch(id);
    return;
  }
  const double own_s = standing.edge == kNoEdge ? 0.0 : queues_[standing.edge].wait_s;
  double rate = standing.window / (rtt_s + standing.apart_s + own_s);
  double most = standing.window / (rtt_s + standing.apart_s);
  if (halves && standing.allowed < kInfinity) {
    rate = std::sqrt(rate * connection.share / connection.weight);
    most = std::sqrt(most * standing.allowed);
  }
  const double share = connection.weight * std::max(rate, 1.0);
  if (Alike(share, connection.share) && Alike(most, standing.allowed)) return;
  connection.share = share;
  standing.allowed = most;
  Touch(id);
}

void FlowNetwork::FindFull() {
  for (const ConnectionId id : sending_) {
    const Connection& connection = connections_[id];
    Standing& standing = standing_[id];
    if (connection.state != State::kBusy || standing.full || standing.window == 0.0) continue;
    if (standing.sends == 0.0 || connection.rate == 0.0) continue;
    if (Waiting(connection) < Room(connection) - kUsedUp) continue;
    standing.full = true;
    standing.apart_s = standing.found_s;
    Slow(id, /*halves=*/false);
  }
}

void FlowNetwork::DescribeQueue(const Connection& connection, Digest& digest) const {
  const Standing& standing = StandingOf(connection);
  digest.Add(connection.share);
  digest.Add(std::uint64_t{standing.full});
  digest.Add(std::uint64_t{standing.edge});
  digest.Add(standing.waiting);
  digest.Add(standing.apart_s);
  digest.Add(standing.allowed);
  digest.Add(standing.sender.behind);
  digest.Add(standing.sender.pace);
  digest.Add(std::uint64_t{standing.sender.holds});
}

}  // namespace geomx::net
