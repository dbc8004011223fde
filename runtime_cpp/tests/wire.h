// An in-memory network between real Nodes, for tests: without sockets and clock, from one seed.
//
// Messages are serialised and parsed. Reliable ones are delivered in order per link, best-effort ones in
// any order, with the configured loss, duplicates and delays. All calls of a node are recorded, so that
// Replay can repeat them on a new node and compare its output.
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
#include "core/standby.h"
#include "tests/carriers.h"
#include "tests/check.h"
#include "tests/seeds.h"

namespace geomx::check {

class Wire {
 public:
  // Faults of best-effort messages, as probabilities.
  struct Faults {
    double loss = 0;
    double duplicate = 0;
    double delay = 0;    // delayed until the next Drive, or the one after
    bool stall = false;  // not random: best-effort messages stay in their queues
  };
  struct Traffic {
    std::uint64_t messages = 0, bytes = 0, lost = 0;
    bool operator==(const Traffic&) const = default;
  };

  explicit Wire(std::uint64_t seed);
  ~Wire();

  void Add(std::function<NodeConfig()> make);
  const Node& node(NodeId id) const { return members_.at(id).node->node(); }

  // Calls `verb` with a node, and records it. `verb` must be deterministic, as Replay repeats it.
  void Do(NodeId id, std::function<void(Node&, Time)> verb);

  // Delivers all messages; then fires the timers that are due within `wait`, in order, and delivers in
  // between.
  void Drive(Time wait = 0);

  // Emulates a hanging machine: the node sends nothing, and its connections stay open.
  void Freeze(NodeId id);
  // Emulates a killed process: its connections break, and its messages in flight are lost.
  void Kill(NodeId id, const std::string& reason);
  void LinkDown(NodeId at, NodeId peer, const std::string& reason);
  // Starts a new process, without state, of a node that was frozen or killed.
  void Replace(NodeId id);
  // Makes up to `moves` moves. Returns false if no move is possible.
  bool Advance(std::uint64_t moves);

  // Delivers `message` to `to` as if `from` had sent it.
  void Deliver(NodeId from, NodeId to, Message message);

  std::vector<Event> Events(NodeId id, Event::Kind kind) const;
  // Returns the number of events of a kind at all nodes.
  std::size_t Count(Event::Kind kind) const;
  void ClearEvents();

  // Repeats the calls of a node on a new one, and checks that its output is equal.
  void Replay(NodeId id) const;
  void ReplayAll() const;

  Time now() const { return now_; }
  // Returns the sent messages by sender, receiver and kind.
  const std::map<std::tuple<NodeId, NodeId, Kind>, Traffic>& traffic() const { return traffic_; }

  // Lets the connections of reliable messages break from now on.
  void BreakConnections(const Carriers::Chances& chances);
  const Carriers* carriers() const { return carriers_.get(); }

  // Gives these nodes journals, and kills them at random times from now on: uncommitted records are lost,
  // and a new process resumes. Messages to and from them also wait as in an emulated network. `begin` is
  // called first with each new node. REQUIRES: BreakConnections.
  void CrashNodes(const std::vector<NodeId>& ids, double chance, std::function<void(Node&)> begin);
  std::uint64_t crashes() const { return crashes_; }
  // The journals of these nodes go to their standbys, which are members too, and with `chance` per step
  // one of them is killed and its standby takes its place. REQUIRES: BreakConnections.
  void StandBy(const std::vector<std::pair<NodeId, NodeId>>& pairs, NodeId scheduler, double chance,
               std::function<void(Node&)> begin);
  std::uint64_t takeovers() const { return takeovers_; }
  // From now on, journals begin anew with a snapshot of their node at random times.
  void CutJournals(double chance) { cut_chance_ = chance; }
  std::uint64_t cuts() const { return cuts_; }

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
  // A possible next step: a node sends from a lane, a link delivers, a best-effort message arrives, or a
  // node resumes after its device's work.
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
    std::size_t device_work = 0;  // completions before which the node has not been resumed
    std::optional<std::vector<Move>> sends;  // its possible sends, valid until its next call
    std::unique_ptr<Journal> journal = nullptr;
    std::map<std::uint64_t, geomx::Replay::Held> held = {};  // in order of their time
    std::map<NodeId, std::deque<Message>> under_way = {};  // reliable messages
    std::uint64_t order = 0;
  };

  // A standby's copy of a node, and of its ends of links.
  struct Copy final : geomx::Replay::Handler {
    NodeId of = 0, keeper = 0;
    std::unique_ptr<RecordedNode> node;
    std::unique_ptr<Standby> standby;
    std::map<NodeId, Link<Message>> links;
    void OnTaken(NodeId, const Message&) override {}
    void OnLinked(NodeId peer, Message message) override { links[peer].outbox.AddLeft(std::move(message)); }
    void OnArrived(NodeId peer) override { CHECK(links[peer].arrivals.Take()); }
    void OnReceived(NodeId peer, std::uint32_t count) override { CHECK(links[peer].outbox.Acknowledge(count)); }
    void OnRenewed(NodeId, const Renewal&) override {}
    void OnLinkMade(NodeId) override {}
    void OnLinkDown(NodeId, const std::string&) override {}
    void OnReady() override {}
    void OnSnapshot(Archive&) override {}
    void OnEvent(Event, Time) override {}
  };

  // Calls `verb(node, now)`, and records it in both records.
  template <class Verb>
  void Act(NodeId id, Verb verb);
  void Crash(NodeId id);
  void Restart(Member& member, NodeId id);
  bool CrashOne();
  bool CommitAll();
  void TakeOver(Copy& copy);
  void CutOne();
  void ExchangeLinks(Archive& archive, NodeId id);
  void Record(NodeId id, std::function<std::string(Node&)> call, std::string output = {});
  void TakeEvents(NodeId id);
  static std::size_t WaitForDevice(Node& node);
  // Returns whether the link of `from` is with an earlier process of `to`.
  bool Outlived(NodeId from, NodeId to) const;
  Message Poll(NodeId from, NodeId to, Lane lane);
  void SetLoose(NodeId from, NodeId to, Message message);
  static std::vector<Move> Sends(const RecordedNode& node);
  std::vector<Move> Moves();
  // Makes one random move of all possible ones. Returns false if there is none.
  bool Step();
  Time NextTimeout() const;

  std::map<NodeId, Member> members_;
  std::set<NodeId> killed_;
  std::map<NodeId, std::uint32_t> replaced_;  // number of replacements
  std::map<std::pair<NodeId, NodeId>, std::deque<Message>> links_;
  std::unique_ptr<Carriers> carriers_;  // instead of links_
  std::vector<NodeId> mortal_;
  double crash_chance_ = 0;
  std::function<void(Node&)> begin_;
  std::uint64_t crashes_ = 0, cuts_ = 0;
  double cut_chance_ = 0;
  std::vector<std::unique_ptr<Copy>> copies_;
  NodeId promoter_ = 0;
  double takeover_chance_ = 0;
  std::uint64_t takeovers_ = 0;
  std::vector<Loose> loose_;
  std::vector<std::pair<int, Loose>> held_;  // (Drives left, message)
  std::map<std::tuple<NodeId, NodeId, Kind>, Traffic> traffic_;
  Time now_ = 0;
};

}  // namespace geomx::check
