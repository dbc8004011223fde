// An in-memory network between real Nodes, for tests: no sockets, no clock, one seed.
//
// Every message crosses as bytes (its header is serialised and parsed again), reliable ones in order
// per link and otherwise in any order, best-effort ones in any order at all, with loss, duplicates
// and delays as asked for. Everything that is done to a node is recorded, so that Replay can do it
// again to a fresh node and compare what comes out.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <set>

#include "core/node.h"
#include "core/worker.h"
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

  explicit Wire(std::uint64_t seed) : random(seed) {}

  void Add(std::function<NodeConfig()> make) {
    auto fresh = std::make_unique<Node>(make());
    const NodeId id = fresh->config().id;
    members_[id] = {std::move(make), std::move(fresh), {}, {}};
  }

  const Node& node(NodeId id) const { return *members_.at(id).node; }

  // Do something to a node, on the record. `verb` must do the same when it is called again.
  void Do(NodeId id, std::function<void(Node&, Time)> verb) {
    const Time now = now_;
    Record(id, [verb, now](Node& node) {
      verb(node, now);
      return std::string();
    });
    verb(*members_.at(id).node, now);
    TakeEvents(id);
  }

  // Deliver until nothing moves; then fire the timers that are due within `wait`, one instant after
  // the other, delivering in between.
  void Drive(Time wait = 0) {
    const Time until = now_ + wait;
    for (auto& [left, message] : held_) --left;
    while (true) {
      while (Step()) ++now_;
      const Time next = NextTimeout();
      if (next > until) break;
      now_ = std::max(now_, next);
      for (auto& [id, member] : members_) {
        if (killed_.contains(id) || member.node->PollTimeout() > now_) continue;
        Do(id, [](Node& node, Time now) { node.HandleTimeout(now); });
      }
    }
    now_ = std::max(now_, until);
  }

  // The machine hangs: nothing comes from it any more, and nobody is told.
  void Freeze(NodeId id) {
    killed_.insert(id);
    std::erase_if(links_, [&](const auto& link) {
      return link.first.first == id || link.first.second == id;
    });
  }

  // The process dies: its peers' connections break, what it had in flight is lost.
  void Kill(NodeId id, const std::string& reason) {
    Freeze(id);
    for (const Peer& peer : members_.at(id).node->config().peers) LinkDown(peer.id, id, reason);
  }

  void LinkDown(NodeId at, NodeId peer, const std::string& reason) {
    if (killed_.contains(at)) return;
    Do(at, [peer, reason](Node& node, Time now) { node.HandleLinkDown(peer, reason, now); });
  }

  // Hand `message` to `to` as if `from` had sent it.
  void Deliver(NodeId from, NodeId to, Message message) {
    if (!killed_.contains(to)) {
      Do(to, [from, message](Node& node, Time now) { node.HandleMessage(from, message, now); });
    }
  }

  std::vector<Event> Events(NodeId id, Event::Kind kind) const {
    std::vector<Event> found;
    for (const Event& event : members_.at(id).events) {
      if (event.kind == kind) found.push_back(event);
    }
    return found;
  }
  // How many events of a kind all nodes together have seen.
  std::size_t Count(Event::Kind kind) const {
    std::size_t count = 0;
    for (const auto& [id, member] : members_) count += Events(id, kind).size();
    return count;
  }
  void ClearEvents() {
    for (auto& [id, member] : members_) member.events.clear();
  }

  // Feed a fresh node what this one was fed: the same must come out, to the last byte.
  void Replay(NodeId id) const {
    const Member& member = members_.at(id);
    Node fresh(member.make());
    for (const Taped& taped : member.tape) {
      const std::string again = taped.call(fresh);
      if (taped.output != again) {
        Report(__FILE__, __LINE__, "replay of node " + std::to_string(id) + " differs");
        return;
      }
    }
  }
  void ReplayAll() const {
    for (const auto& [id, member] : members_) Replay(id);
  }

  Time now() const { return now_; }
  // What left each node for each other, by kind of message.
  const std::map<std::tuple<NodeId, NodeId, Kind>, Traffic>& traffic() const { return traffic_; }

  Faults faults;
  Random random;

 private:
  struct Taped {
    std::function<std::string(Node&)> call;
    std::string output;
  };
  struct Member {
    std::function<NodeConfig()> make;
    std::unique_ptr<Node> node;
    std::vector<Taped> tape;
    std::vector<Event> events;
  };
  struct Loose {
    NodeId from, to;
    Message message;
  };

  static std::string Digest(const std::optional<Message>& message) {
    if (!message) return "nothing";
    const WireHeader header = SerializeHeader(message->header);
    std::string digest(reinterpret_cast<const char*>(header.data()), header.size());
    for (const Bytes& piece : message->payload.pieces()) {
      digest.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    }
    return digest;
  }
  static std::string Digest(const std::optional<Event>& event) {
    if (!event) return "nothing";
    std::string digest;
    for (const std::uint64_t number :
         {std::uint64_t(event->kind), std::uint64_t{event->peer}, std::uint64_t{event->key},
          std::uint64_t{event->shard}, std::uint64_t{event->round}}) {
      digest += std::to_string(number) + " ";
    }
    return digest + event->text + " " + event->reason;
  }

  void Record(NodeId id, std::function<std::string(Node&)> call, std::string output = {}) {
    members_.at(id).tape.push_back({std::move(call), std::move(output)});
  }

  void TakeEvents(NodeId id) {
    Member& member = members_.at(id);
    while (true) {
      std::optional<Event> event = member.node->PollEvent();
      Record(id, [](Node& node) { return Digest(node.PollEvent()); }, Digest(event));
      if (!event) return;
      member.events.push_back(std::move(*event));
    }
  }

  std::optional<Message> Poll(NodeId from, NodeId to, Lane lane) {
    std::optional<Message> message = members_.at(from).node->PollTransmit(to, lane);
    Record(from, [=](Node& node) { return Digest(node.PollTransmit(to, lane)); }, Digest(message));
    if (message) {
      Traffic& traffic = traffic_[{from, to, message->header.kind}];
      ++traffic.messages;
      traffic.bytes += message->wire_bytes();
      message = Cross(from, *message);
    }
    return message;
  }

  // As bytes and back.
  static Message Cross(NodeId from, const Message& message) {
    Message arrived;
    std::string error;
    const auto header = ParseHeader(SerializeHeader(message.header), error);
    if (!header) {
      Report(__FILE__, __LINE__, "a node sent a header that no node accepts: " + error);
      return message;
    }
    arrived.header = *header;
    CHECK_EQ(header->source, from);
    CHECK_EQ(header->payload_bytes, message.payload.size());
    std::vector<std::byte> scratch;
    arrived.payload = message.payload.phantom() ? Payload::Phantom(message.payload.size())
                                                : Payload::Copy(message.payload.Contiguous(scratch));
    return arrived;
  }

  void SetLoose(NodeId from, NodeId to, Message message) {
    if (Chance(random, faults.loss)) {
      ++traffic_[{from, to, message.header.kind}].lost;
      return;
    }
    if (Chance(random, faults.duplicate)) loose_.push_back({from, to, message});
    if (Chance(random, faults.delay)) {
      held_.push_back({static_cast<int>(Between(random, 1, 2)), {from, to, std::move(message)}});
    } else {
      loose_.push_back({from, to, std::move(message)});
    }
  }

  // One move, chosen at random among all that are possible. False if there is none.
  bool Step() {
    std::erase_if(held_, [&](auto& held) {
      if (held.first > 0) return false;
      loose_.push_back(std::move(held.second));
      return true;
    });
    std::vector<std::function<void()>> moves;
    for (const auto& [id, member] : members_) {
      if (killed_.contains(id)) continue;
      for (const Peer& peer : member.node->config().peers) {
        const NodeId from = id, to = peer.id;
        if (member.node->HasMessage(to, Lane::kReliable)) {
          moves.push_back([this, from, to] {
            links_[{from, to}].push_back(*Poll(from, to, Lane::kReliable));
          });
        }
        if (member.node->HasMessage(to, Lane::kBestEffort) && !faults.stall) {
          moves.push_back([this, from, to] {
            SetLoose(from, to, *Poll(from, to, Lane::kBestEffort));
          });
        }
      }
    }
    for (auto& [ends, queue] : links_) {
      if (queue.empty()) continue;
      moves.push_back([this, ends, &queue] {
        Message message = std::move(queue.front());
        queue.pop_front();
        Deliver(ends.first, ends.second, std::move(message));
      });
    }
    if (!loose_.empty()) {
      moves.push_back([this] {
        std::swap(loose_[Between(random, 0, loose_.size() - 1)], loose_.back());
        Loose chosen = std::move(loose_.back());
        loose_.pop_back();
        Deliver(chosen.from, chosen.to, std::move(chosen.message));
      });
    }
    if (moves.empty()) return false;
    moves[Between(random, 0, moves.size() - 1)]();
    return true;
  }

  Time NextTimeout() const {
    Time earliest = kNever;
    for (const auto& [id, member] : members_) {
      if (!killed_.contains(id)) earliest = std::min(earliest, member.node->PollTimeout());
    }
    return earliest;
  }

  std::map<NodeId, Member> members_;
  std::set<NodeId> killed_;
  std::map<std::pair<NodeId, NodeId>, std::deque<Message>> links_;
  std::vector<Loose> loose_;
  std::vector<std::pair<int, Loose>> held_;  // (Drives left, message)
  std::map<std::tuple<NodeId, NodeId, Kind>, Traffic> traffic_;
  Time now_ = 0;
};

}  // namespace geomx::check
