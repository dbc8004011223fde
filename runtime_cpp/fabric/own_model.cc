// Simulations whose network is a model in Python (geomx/plugin/wan.py): the fabric notes what happens
// as calls for the model, and goes on when that reports.
#include <stdexcept>
#include <string>

#include "fabric/fabric.h"

namespace geomx {

void Fabric::Delegate() {
  programmed_ = true;  // its state is unknown here
  network_.Delegate();
}

std::pair<const LinkStats*, Lane> Fabric::LinkOf(net::ConnectionId connection) const {
  const auto [owner, lane] = connection_owner_.at(connection);
  return {(owner & kTransfers) != 0 ? nullptr : &links_[owner].stats, lane};
}

void Fabric::MessageLeft(net::ConnectionId connection, Ending ending, Time now) {
  FollowSchedules(now);
  const auto [owner, lane] = connection_owner_.at(connection);
  if (ending == Ending::kLost && (lane == Lane::kReliable || (owner & kTransfers) != 0)) {
    throw std::invalid_argument("only datagrams can be lost; TCP sends again");
  }
  network_.Leave(connection, now_);
  ++happened_;
  ending_ = ending;
  Left(connection, now_);
  ending_ = Ending::kArrives;
}

void Fabric::MessageArrived(net::ConnectionId connection, Time now) {
  const auto held = held_.find(connection);
  if (held == held_.end() || held->second.empty()) {
    throw std::invalid_argument("no message of connection " + std::to_string(connection) +
                                " is on its way");
  }
  agenda_.Add(now, held->second.front());
  held->second.pop_front();
}

}  // namespace geomx
