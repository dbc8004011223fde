// Connections that break, between the members of a Wire: what core/link.h is for, without sockets.
//
// The member with the larger id calls. A connection breaks at any moment, and what is under way on it is
// lost, in both directions or only as far as the two ends notice it at different times; calls overlap,
// and their greetings arrive in any order.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/link.h"
#include "tests/seeds.h"

namespace geomx::check {

class Carriers {
 public:
  struct Chances {
    double breaks = 0;  // of the connections that are there, one, per step
    double calls = 0;   // where there is a connection already, per step
  };

  explicit Carriers(Random& random) : random_(random) {}

  // The end of the link between two members that is at `at`.
  Link<Message>& LinkOf(NodeId at, NodeId to);
  // The process at `id` is gone, and with it what it knew of its connections; those that were there have
  // broken. Its ends of links are new, of one incarnation more. Returns the other ends.
  std::vector<NodeId> Crash(NodeId id);
  // Is told before anything leaves `from`.
  std::function<void(NodeId from)> before_leaving = [](NodeId) {};

  // Whether `from` has a connection to `to`, as far as it knows.
  bool Carried(NodeId from, NodeId to);
  // REQUIRES: Carried.
  void Send(NodeId from, NodeId to, Message message);

  // A possible next step, and how to take it: `deliver` is given what arrives for the first time.
  using Deliver = std::function<void(NodeId from, NodeId to, Message message)>;
  using Move = std::function<void(const Deliver& deliver)>;
  // `disturb`: connections may break, and calls be made beside connections.
  void AddMoves(std::vector<Move>& moves, bool disturb);

  Chances chances;
  std::uint64_t broken = 0, repeats = 0;  // so far

 private:
  enum End { kCaller, kCalled };
  struct Packet {
    std::optional<Greeting> greeting;
    Message message = {};
    std::uint32_t received = 0;
  };
  struct Carrier {
    std::array<std::deque<Packet>, 2> ways;  // to the caller, to the called
    std::array<bool, 2> open = {true, true};  // as far as that end knows
    bool broken = false;
  };
  struct Pair {
    std::array<NodeId, 2> ids;
    std::array<Link<Message>, 2> links;
    std::array<std::shared_ptr<Carrier>, 2> carrying;
    std::vector<std::shared_ptr<Carrier>> all;
  };

  Pair& PairOf(NodeId one, NodeId other);
  static void Put(Carrier& carrier, End end, Packet packet);
  void Transmit(Pair& pair, End end);
  void Call(Pair& pair);
  void Arrive(Pair& pair, const std::shared_ptr<Carrier>& carrier, End end, const Deliver& deliver);
  void Greeted(Pair& pair, const std::shared_ptr<Carrier>& carrier, End end, const Greeting& greeting);
  void Notice(Pair& pair, Carrier& carrier, End end);
  void Break(Carrier& carrier);

  Random& random_;
  std::map<std::pair<NodeId, NodeId>, Pair> pairs_;  // (called, caller)
};

}  // namespace geomx::check
