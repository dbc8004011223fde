// Virtual time, and a model of TCP connections and datagrams in it.
//
// A connection delivers packets in order until it breaks. Each end then notices at its own time, and of the
// packets in transit only a random prefix is delivered. During a cut between two members, nothing is
// delivered: packets are retransmitted after the cut, and connections are established after it. Neither end
// is notified of a cut.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/link.h"
#include "core/message.h"
#include "core/types.h"
#include "tests/seeds.h"

namespace geomx::faults {

// Actions, ordered by time; actions of equal time in the order in which they were added.
class Agenda {
 public:
  void Add(Time at, std::function<void()> action);
  // Performs the next action. Returns false if there is none.
  bool Step();
  Time now() const { return now_; }

 private:
  struct Action {
    Time at;
    std::uint64_t order;
    std::function<void()> act;
  };
  static bool Later(const Action& one, const Action& other) {
    return std::pair(one.at, one.order) > std::pair(other.at, other.order);
  }
  std::vector<Action> heap_;
  std::uint64_t order_ = 0;
  Time now_ = 0;
};

struct Packet {
  enum class Kind : std::uint8_t { kHello, kAnswer, kRefusal, kMessage, kEnd };
  Kind kind = Kind::kMessage;
  Greeting greeting = {};
  std::string text = {};       // of a refusal
  bool final = false;          // a refusal that is permanent
  Message message = {};
  std::uint32_t received = 0;  // acknowledgement: number of messages that the packet's sender has received
};

// The two ends of a connection.
enum End : std::uint8_t { kCaller, kCalled };
inline End Other(End end) { return end == kCaller ? kCalled : kCaller; }

// One process of a member; `life` numbers the member's processes from 1.
struct ProcessId {
  NodeId node = 0;
  std::uint32_t life = 0;
  bool operator==(const ProcessId&) const = default;
};

struct Connection {
  struct Way {
    std::deque<Packet> packets;
    Time last = 0;         // arrival time of the last packet
    bool stalled = false;  // by a cut
  };
  std::array<ProcessId, 2> ends;
  std::array<Way, 2> ways;  // to the caller, to the callee
  std::array<bool, 2> open = {true, true};
  bool broken = false;
  std::uint32_t attempt = 0;  // number that the caller gave to this call
};
using ConnectionPtr = std::shared_ptr<Connection>;

class Network {
 public:
  // Callbacks from the network to processes.
  struct Handler {
    // Returns true if a process exists. A paused process exists; its actions are deferred.
    std::function<bool(ProcessId)> alive;
    std::function<std::uint32_t(NodeId)> life;  // of the member's current process; 0: there is none
    // Performs an action on a process once it is not paused, if it still exists.
    std::function<void(ProcessId, std::function<void()>)> act;
    std::function<void(const ConnectionPtr&)> connected;  // called for the caller's end only
    std::function<void(const ConnectionPtr&, End)> arrives;  // a packet, which the callback removes from `ways`
    std::function<void(const ConnectionPtr&, End)> ended;    // the connection has broken, as seen by this end
    std::function<void(NodeId from, std::uint32_t life, NodeId to, Message)> datagram;
  };
  struct Options {
    std::function<Time(NodeId, NodeId)> delay;  // one way
    double loss = 0, duplicates = 0, late = 0;  // of datagrams
  };

  Network(Agenda& agenda, check::Random& random, Options options, Handler handler)
      : agenda_(agenda), random_(random), options_(std::move(options)), handler_(std::move(handler)) {}

  // ---- for processes ----
  // Repeats SYNs, as Linux does, for `patience`. If none is answered, no callback is called.
  void Call(ProcessId caller, NodeId called, Time patience, std::uint32_t attempt);
  void Put(const ConnectionPtr& connection, End from, Packet packet);
  // Closes this end. The other end is notified after all packets that were sent before.
  void Close(const ConnectionPtr& connection, End end);
  void SendDatagram(ProcessId from, NodeId to, const Message& message);

  // ---- faults ----
  void Reset(NodeId one, NodeId other);
  void Cut(NodeId one, NodeId other);
  void Heal(NodeId one, NodeId other);
  bool IsCut(NodeId one, NodeId other) const;
  // Removes the current process of a node. Its connections close or, if `silently`, send nothing more.
  void Forget(NodeId node, bool silently);

  std::uint64_t resets() const { return resets_; }

 private:
  void Syn(ProcessId caller, NodeId called, Time until, Time pause, std::uint32_t attempt);
  void Deliver(const ConnectionPtr& connection, End to);
  void Break(const ConnectionPtr& connection);
  Time Delay(NodeId from, NodeId to);
  std::vector<ConnectionPtr> Between(NodeId one, NodeId other);

  Agenda& agenda_;
  check::Random& random_;
  const Options options_;
  const Handler handler_;
  struct Gap {
    int cuts = 0;  // at the same time
    Time since = 0;
  };
  std::map<std::pair<NodeId, NodeId>, Gap> cuts_;
  std::vector<std::weak_ptr<Connection>> connections_;
  std::uint64_t resets_ = 0;
};

}  // namespace geomx::faults
