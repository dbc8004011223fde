// Time that passes in a network model without a driver.
#pragma once

#include <vector>

#include "net/flows.h"

namespace geomx::check {

// Lets time pass until `until`; what completes is not started again.
inline void Pass(net::FlowNetwork& network, Time until) {
  std::vector<net::ConnectionId> completed;
  while (network.NextEvent() <= until) network.Advance(network.NextEvent(), &completed);
  network.Advance(until, &completed);
  network.NextEvent();
}

}  // namespace geomx::check
