// What programs add to a simulated network while time runs: transfers beside those of training, and
// edges whose bandwidth is no longer a schedule. `Fabric` carries them out (traffic.cc).
//
// A transfer is a connection of its own. Its bytes share every edge with those of training, by
// weighted max-min within a class; a lower class goes first (maxmin.h), and training is class 0. A
// transfer with a pace is like datagrams at a constant rate; others begin with a handshake and follow
// TCP's window (ramp.h).
#pragma once

#include <cstdint>
#include <vector>

#include "core/message.h"
#include "core/types.h"
#include "net/flows.h"
#include "net/link.h"

namespace geomx {

using TransferId = std::uint32_t;

// What was sent over a link.
struct LinkStats {
  NodeId source = 0, target = 0;
  Traffic data[kDirections];  // training traffic
  std::uint64_t control_bytes = 0;
  Time busy = 0;  // with a message under way, reliable or not
};

struct TransferOptions {
  net::LinkOptions link;            // its way and its TCP
  double weight = 1.0;              // times that of a connection of training
  int priority_class = 0;
  double pace = net::kInfinity;     // bytes/s on the edges, headers included; infinite: TCP
};

// A transfer from its start until its notice.
struct Transfer {
  enum class State : std::uint8_t { kFree, kOpening, kSending, kArriving };
  State state = State::kFree;
  net::ConnectionId connection = 0;
  std::vector<net::EdgeId> path;
  double bytes = 0.0;               // altogether
  double carried = 0.0;             // of them on former ways
  std::uint32_t count = 0;          // transfers of this number so far; actions of former ones are void
};

// Bytes that were sent over an edge or a link: messages with headers, transfers without.
struct Carried {
  double data = 0.0;                // training and transfers
  double control = 0.0;             // joins, initial values, reports

  Carried& operator+=(const Carried& more) {
    data += more.data;
    control += more.control;
    return *this;
  }
  Carried operator-(const Carried& less) const {
    return {data - less.data, control - less.control};
  }
};

// What is under way: a message between two nodes, or a transfer.
struct ActiveFlow {
  bool transfer = false;
  NodeId source = 0, target = 0;    // of a message
  TransferId id = 0;                // of a transfer
  bool reliable = true;
  double rate = 0.0;                // payload bytes/s
  double left = 0.0;                // payload bytes
};

}  // namespace geomx
