// An in-memory network between real Nodes, for tests: no sockets, no clock, one seed.
//
// Every message crosses as bytes (its header is serialised and parsed again), reliable ones in
// order per link and otherwise in any order, best-effort ones in any order at all, with loss, duplicates
// and delays as asked for. Everything that is done to a node is recorded, so that Replay can do it
// again to a fresh node and compare what comes out.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "core/recorded_node.h"
#include "core/replay.h"
#include "tests/carriers.h"
#include "tests/seeds.h"

namespace geomx::check {

class Wire {
 public:
  // What happens to a best-effort message, as probabilities.
  struct Faults {
    double loss = 0;
    double duplicate = 0;
    double delay = 0;    // kept back until the next Drive, or the one after
    bool stall = false;  // certain: best-effort messages stay in their queues
  };
  struct Traffic {
    std::uint64_t messages = 0, bytes = 0, lost = 0;
    bool operator==(const Traffic&) const = default;
  };

  explicit Wire(std::uint64_t seed);
  ~Wire();

  void Add(std::function<NodeConfig()> make);
  const Node& node(NodeId id) const { return members_.at(id).node->node(); }

  // Do something to a node, on the record. `verb` must do the same when it is called again.
  void Do(NodeId id, std::function<void(Node&, Time)> verb);

  // Deliver until nothing moves; then fire the timers that are due within `wait`, one instant after
  // the other, delivering in between.
  void Drive(Time wait = 0);

  // The machine hangs: nothing comes from it any more, and no connection is closed.
  void Freeze(NodeId id);
  // The process dies: its peers' connections break, what it had in flight is lost.
  void Kill(NodeId id, const std::string& reason);
  void LinkDown(NodeId at, NodeId peer, const std::string& reason);
  // Another process of a node that was frozen or killed begins; it knows nothing of the one before.
  void Replace(NodeId id);
  // At most so many moves. False if nothing moves any more.
  bool Advance(std::uint64_t moves);

  // Hand `message` to `to` as if `from` had sent it.
  void Deliver(NodeId from, NodeId to, Message message);

  std::vector<Event> Events(NodeId id, Event::Kind kind) const;
  // How many events of a kind all nodes together have seen.
  std::size_t Count(Event::Kind kind) const;
  void ClearEvents();

  // Feed a fresh node what this one was fed: the same must come out, to the last byte.
  void Replay(NodeId id) const;
  void ReplayAll() const;

  Time now() const { return now_; }
  // What left each node for each other, by kind of message.
  const std::map<std::tuple<NodeId, NodeId, Kind>, Traffic>& traffic() const { return traffic_; }

  // From now on reliable messages cross over connections that break.
  void BreakConnections(const Carriers::Chances& chances);
  const Carriers* carriers() const { return carriers_.get(); }

  // From now on these nodes have journals, and may be killed at any moment: what they had not committed is
  // lost, and another process continues. Messages to and from them also wait as in an emulated network.
  // `begin` is done to each fresh node first. REQUIRES: BreakConnections.
  void CrashNodes(const std::vector<NodeId>& ids, double chance, std::function<void(Node&)> begin);
  std::uint64_t crashes() const { return crashes_; }

  Faults faults;
  Random random;

 private:
  struct Taped {
    std::function<std::string(Node&)> call;
    std::string output;
  };
  struct Loose {
    NodeId from, to;
    Message message;
  };
  // A possible next step: a node sends from a lane, a link delivers, a loose message arrives, or a node
  // goes on after its device's work.
  struct Move {
    enum class Kind { kSend, kDeliver, kArrive, kResume, kCarry, kLeave, kRelease };
    Kind kind;
    NodeId from = 0, to = 0;
    Lane lane = Lane::kReliable;
    Carriers::Move carry = {};
  };
  // Records in memory.
  struct Journal final : JournalOut {
    void Add(std::span<const std::byte> body, const Payload& payload) override {
      records.emplace_back(std::vector<std::byte>(body.begin(), body.end()), payload);
    }
    void Commit() override { committed = records.size(); }
    std::vector<std::pair<std::vector<std::byte>, Payload>> records;
    std::size_t committed = 0;
  };
  struct Member {
    std::function<NodeConfig()> make;
    std::unique_ptr<RecordedNode> node;
    std::vector<Taped> tape;
    std::vector<Event> events;
    std::size_t device_work = 0;  // ends that the node was not resumed after
    std::optional<std::vector<Move>> sends;  // what it may send, until something happens to it
    std::unique_ptr<Journal> journal = nullptr;
    std::map<std::uint64_t, geomx::Replay::Held> held = {};  // the first is handled next
    std::map<NodeId, std::deque<Message>> under_way = {};  // reliable ones
    std::uint64_t order = 0;
  };

  // Does to a node, on both records, what `verb(node, now)` says.
  template <class Verb>
  void Act(NodeId id, Verb verb);
  void Crash(NodeId id);
  void Restart(Member& member, NodeId id);
  bool CrashOne();
  void Record(NodeId id, std::function<std::string(Node&)> call, std::string output = {});
  void TakeEvents(NodeId id);
  static std::size_t WaitForDevice(Node& node);
  // Whether `from` speaks to a process of `to` that is no more: the link with it went with it.
  bool Outlived(NodeId from, NodeId to) const;
  Message Poll(NodeId from, NodeId to, Lane lane);
  void SetLoose(NodeId from, NodeId to, Message message);
  static std::vector<Move> Sends(const Node& node);
  std::vector<Move> Moves();
  // One move, chosen at random among all that are possible. False if there is none.
  bool Step();
  Time NextTimeout() const;

  std::map<NodeId, Member> members_;
  std::set<NodeId> killed_;
  std::map<NodeId, std::uint32_t> replaced_;  // how often
  std::map<std::pair<NodeId, NodeId>, std::deque<Message>> links_;
  std::unique_ptr<Carriers> carriers_;  // instead of links_
  std::vector<NodeId> mortal_;
  double crash_chance_ = 0;
  std::function<void(Node&)> begin_;
  std::uint64_t crashes_ = 0;
  std::vector<Loose> loose_;
  std::vector<std::pair<int, Loose>> held_;  // (Drives left, message)
  std::map<std::tuple<NodeId, NodeId, Kind>, Traffic> traffic_;
  Time now_ = 0;
};

}  // namespace geomx::check
