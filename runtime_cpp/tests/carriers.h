// Connections between the members of a Wire that may break, to test core/link.h without sockets.
//
// The member with the larger id connects. Connections break at random times, which loses the messages
// in flight; both ends notice it at different times. Connection attempts may overlap, and their hello
// messages arrive in any order.
#pragma once

#include <algorithm>
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
    double breaks = 0;  // probability per step that one connection breaks
    double calls = 0;   // probability per step of another attempt beside a connection
  };

  explicit Carriers(Random& random) : random_(random) {}

  // Returns the end at `at` of the link between two members.
  Link<Message>& LinkOf(NodeId at, NodeId to);
  // Kills the process of `id`: its connections break, and its ends of links are replaced by new ones
  // with the next incarnation. Returns its peers.
  std::vector<NodeId> Crash(NodeId id);
  // Ends the link between two members, with all that is on its way.
  void Forget(NodeId one, NodeId other) { pairs_.erase(std::minmax(one, other)); }
  // Called before any message leaves `from`.
  std::function<void(NodeId from)> before_leaving = [](NodeId) {};

  // Returns whether `from` has a connection to `to`, as far as it knows.
  bool Carried(NodeId from, NodeId to);
  // REQUIRES: Carried.
  void Send(NodeId from, NodeId to, Message message);

  // A possible next step; `deliver` receives messages that arrive for the first time.
  using Deliver = std::function<void(NodeId from, NodeId to, Message message)>;
  using Move = std::function<void(const Deliver& deliver)>;
  // With `disturb`, steps include breaks and additional connection attempts.
  void AddMoves(std::vector<Move>& moves, bool disturb);

  Chances chances;
  std::uint64_t broken = 0, repeats = 0;  // counts

 private:
  enum End { kCaller, kCalled };
  struct Packet {
    std::optional<Greeting> greeting;
    Message message = {};
    std::uint32_t received = 0;
  };
  struct Carrier {
    std::array<std::deque<Packet>, 2> ways;  // to the caller, to the called
    std::array<bool, 2> open = {true, true};  // as known by that end
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
