// Messages whose driver has a model of its own: what happens is noted for it, and it says when messages
// leave, and at what rates.
#include <stdexcept>
#include <string>

#include "net/flows.h"

namespace geomx::net {

void FlowNetwork::Note(ConnectionId id, double bytes) {
  Connection& connection = connections_[id];
  if (connection.state == State::kIdle) {
    connection.ramp.Begin(now_);
    Occupy(connection);
  }
  connection.state = State::kBusy;
  connection.left = bytes;
  connection.rate = 0.0;
  connection.anchor = now_;
  calls_.push_back({ModelCall::Kind::kStart, id, bytes});
}

void FlowNetwork::Leave(ConnectionId id, Time now) {
  MoveTo(now);
  Connection& connection = connections_.at(id);
  if (connection.state != State::kBusy) {
    throw std::logic_error("connection " + std::to_string(id) + " has no message to end");
  }
  const double elapsed = static_cast<double>(now_ - connection.anchor) / kSecond;
  if (elapsed > 0) connection.rate = connection.left / elapsed;  // so that nothing is left
  Integrate(connection);
  connection.state = State::kFinished;
  Touch(id);
}

void FlowNetwork::SetRate(ConnectionId id, double rate, Time now) {
  MoveTo(now);
  Connection& connection = connections_.at(id);
  if (connection.state != State::kBusy) return;
  Integrate(connection);
  connection.rate = rate;
}

}  // namespace geomx::net
