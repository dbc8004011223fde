// Virtual time, and connections in it: what an operating system and TCP give to a driver.
//
// A connection delivers packets in order until it breaks; then each end notices at a time of its own, and
// what was under way is lost from some packet on. Between two members that are cut nothing passes: packets
// wait, are sent again after the cut, and connections are made only then. No end is told of that.
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

// Actions in the order of their times, and of one time in the order in which they were added.
class Agenda {
 public:
  void Add(Time at, std::function<void()> action);
  // Does the next action. Returns false if there is none.
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
  bool final = false;          // a refusal that will not heal
  Message message = {};
  std::uint32_t received = 0;  // messages that its sender has received
};

// The two ends of a connection.
enum End : std::uint8_t { kCaller, kCalled };
inline End Other(End end) { return end == kCaller ? kCalled : kCaller; }

// One process of a member: `life` counts them.
struct ProcessId {
  NodeId node = 0;
  std::uint32_t life = 0;
  bool operator==(const ProcessId&) const = default;
};

struct Connection {
  struct Way {
    std::deque<Packet> packets;
    Time last = 0;         // when the last of them arrives
    bool stalled = false;  // by a cut
  };
  std::array<ProcessId, 2> ends;
  std::array<Way, 2> ways;  // to the caller, to the called
  std::array<bool, 2> open = {true, true};
  bool broken = false;
  std::uint32_t attempt = 0;  // the caller's mark of this call
};
using ConnectionPtr = std::shared_ptr<Connection>;

class Network {
 public:
  // What the network does to processes.
  struct Handler {
    // Whether a process is there. A paused one is; what happens to it waits.
    std::function<bool(ProcessId)> alive;
    std::function<std::uint32_t(NodeId)> life;  // of the member's present process; 0: there is none
    // Does something to a process when it runs, if it is still there.
    std::function<void(ProcessId, std::function<void()>)> act;
    std::function<void(const ConnectionPtr&)> connected;  // told to the caller
    std::function<void(const ConnectionPtr&, End)> arrives;  // a packet, to take out of its way
    std::function<void(const ConnectionPtr&, End)> ended;    // an end learns that it has broken
    std::function<void(NodeId from, std::uint32_t life, NodeId to, Message)> datagram;
  };
  struct Options {
    std::function<Time(NodeId, NodeId)> delay;  // one way
    double loss = 0, duplicates = 0, late = 0;  // of datagrams
  };

  Network(Agenda& agenda, check::Random& random, Options options, Handler handler)
      : agenda_(agenda), random_(random), options_(std::move(options)), handler_(std::move(handler)) {}

  // ---- for processes ----
  // SYNs are repeated, as by Linux, for `patience`; nothing is told if none is answered.
  void Call(ProcessId caller, NodeId called, Time patience, std::uint32_t attempt);
  void Put(const ConnectionPtr& connection, End from, Packet packet);
  // This end closes; the other notices behind what was sent.
  void Close(const ConnectionPtr& connection, End end);
  void SendDatagram(ProcessId from, NodeId to, const Message& message);

  // ---- faults ----
  void Reset(NodeId one, NodeId other);
  void Cut(NodeId one, NodeId other);
  void Heal(NodeId one, NodeId other);
  bool IsCut(NodeId one, NodeId other) const;
  // A process is gone. Its connections close, or (`silently`) nothing is heard of them.
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
