// The emulated network of one node: when its messages leave, and when they arrive.
//
// The arithmetic is the simulator's (net/flows.h), run against the real clock: connections share the
// edges of this node's outgoing paths by max-min fairness, with slow start and windows. A connection
// takes its next message when the model says that the last byte of the one before has left, so the
// choice is as late as on a real link. The message is then written to a socket at once, with the time
// at which it arrives; the receiver holds it until then. Of an edge that other nodes send over too,
// this node has its share (usage_table.h), looked at whenever it begins to send and every `kLook`
// while it does. Times come from the model, not from when the thread woke up, so that scheduling delays do not
// add up. Senders and receivers read one clock: this is for a run whose processes are on one machine.
//
// Sans-IO like the model itself: time is an argument.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/message.h"
#include "core/send_queue.h"
#include "io/usage_table.h"
#include "net/bandwidth_schedule.h"
#include "net/flows.h"
#include "net/link.h"

namespace geomx::io {

// What the emulated network does to the messages of one node.
struct Shape {
  struct Edge {
    net::BandwidthSchedule schedule;  // from the start of the run on
    Time delay = 0;      // one way
  };
  using Path = net::LinkOptions;  // what this node may send to one peer, in both lanes
  struct Shared {
    net::EdgeId edge = 0;
    std::uint32_t row = 0;  // the edge's in the file that all who send over it share
  };

  std::uint64_t seed = 0;              // of loss and jitter
  std::vector<Edge> edges;             // their index is their EdgeId
  std::map<NodeId, Path> paths;        // peers without one are not slowed down
  std::vector<Shared> shared;          // edges that other nodes send over, too
  std::string usage_file;              // that file; empty: no other node sends over the edges
  std::size_t slots = 1, slot = 0;     // nodes that may send, and which of them this is
};

// The way out.
class Shaper {
 public:
  // A message whose last byte has left.
  struct Sent {
    NodeId peer = 0;
    Lane lane = Lane::kReliable;
    Message message;
    Time started = 0;
    Time left = 0;
    Time arrives = 0;
    bool lost = false;
  };
  using OnSent = std::function<void(Sent)>;
  using Next = std::function<std::optional<Message>(NodeId peer, Lane lane)>;

  // Throws std::invalid_argument for a path over edges that do not exist.
  explicit Shaper(const Shape& shape);

  // Schedules count from here; until then edges are as at their time 0.
  void SetOrigin(Time now);

  bool Shapes(NodeId peer, Lane lane) const { return links_.contains({peer, lane}); }
  // REQUIRES: Shapes. True if the link has nothing to send.
  bool Idle(NodeId peer, Lane lane) const { return !links_.at({peer, lane}).message; }
  // Until when datagrams to `peer` must wait, as net::HeldUntil says. REQUIRES: Shapes.
  Time HeldUntil(NodeId peer, Time now);
  // REQUIRES: Idle, and Advance(now) was called.
  void Start(NodeId peer, Lane lane, Message message, Time now);

  // How long this node has been sending to `peer`, in either lane, until the last message left.
  Time Busy(NodeId peer) const;

  // When something happens next.
  Time NextEvent();
  // Goes to `now`. What left is handed to `sent`, in order; `next` says what follows on that link.
  void Advance(Time now, const OnSent& sent, const Next& next);

 private:
  struct Link {
    net::ConnectionId connection = 0;
    net::LinkOptions options;
    std::optional<Message> message;
    Time started = 0;
    Time last_arrival = 0;
    net::Pacer pacer;  // of a best-effort lane
  };
  static constexpr Time kLook = 2 * kMillisecond;

  using LinkId = std::pair<NodeId, Lane>;
  struct Crossing {  // one connection over a shared edge
    net::ConnectionId connection = 0;
    int priority_class = 0;
    double weight = 1.0, efficiency = 1.0;
  };
  struct SharedEdge {
    net::EdgeId edge = 0;
    std::uint32_t row = 0;
    net::BandwidthSchedule schedule;
    double ours = 0.0;  // bytes/s, as the model has it
    std::vector<Crossing> crossings;
  };
  struct Activity {
    int links = 0;  // with a message under way
    Time since = 0;
    Time total = 0;
  };
  void Finish(const LinkId& id, Link& link, Time now, const OnSent& sent);
  // Takes this node's part of every shared edge, and tells the others what it does with it.
  void Share(Time now);
  Use UseOf(const SharedEdge& shared) const;
  double Draw() { return std::uniform_real_distribution<double>()(random_); }

  net::FlowNetwork network_;
  std::map<LinkId, Link> links_;
  std::map<NodeId, Activity> activity_;
  std::vector<LinkId> owners_;  // by connection
  std::vector<net::ConnectionId> completed_;
  std::vector<SharedEdge> shared_;
  std::unique_ptr<UsageTable> usage_;
  Time next_look_ = kNever;
  bool advancing_ = false;
  net::BandwidthSchedules schedules_;  // of edges that no other node sends over
  std::optional<Time> origin_;
  std::mt19937_64 random_;
};

}  // namespace geomx::io
