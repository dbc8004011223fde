// The emulated network of one node: when its messages leave, and when they arrive.
//
// The arithmetic is the simulator's (net/flows.h), run against the real clock: connections share
// the edges of this node's outgoing paths by max-min fairness, with slow start and windows. A
// connection takes its next message when the last byte of the previous one has left the model, as
// late as on a real link. The message is then written to a socket at once, with its time of
// arrival; the receiver holds it until then. Of an edge that other nodes use too, this node gets
// its share (usage_table.h), updated when it begins to send and every `kLook` while it sends. Times
// come from the model, not from when the thread woke up, so scheduling delays do not add up.
// Senders and receivers must share a clock: this is for runs whose processes are on one machine.
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

// The emulated network of one node.
struct Shape {
  struct Edge {
    net::BandwidthSchedule schedule;  // from the start of the run
    Time delay = 0;      // one way
  };
  using Path = net::LinkOptions;  // to one peer, for both lanes
  struct Shared {
    net::EdgeId edge = 0;
    std::uint32_t row = 0;  // the edge's row in the file that its users share
  };

  std::uint64_t seed = 0;              // of loss and jitter
  std::vector<Edge> edges;             // their index is their EdgeId
  std::map<NodeId, Path> paths;        // messages to other peers are not delayed
  std::vector<Shared> shared;          // edges that other nodes use too
  std::string usage_file;              // that file; empty: no edge is shared
  std::size_t slots = 1, slot = 0;     // number of nodes that may send, and this node's index
};

// The model of a node's outgoing links.
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
    bool outdated = false;  // for a process that is gone
  };
  using OnSent = std::function<void(Sent)>;
  using Next = std::function<std::optional<Message>(NodeId peer, Lane lane)>;

  // Throws std::invalid_argument for a path over edges that do not exist.
  explicit Shaper(const Shape& shape);

  // Sets time 0 of the schedules; until then edges have their bandwidth at time 0.
  void SetOrigin(Time now);

  bool Shapes(NodeId peer, Lane lane) const { return links_.contains({peer, lane}); }
  // Returns true if the link has nothing to send. REQUIRES: Shapes.
  bool Idle(NodeId peer, Lane lane) const { return !links_.at({peer, lane}).message; }
  // The time until which datagrams to `peer` must wait, by net::HeldUntil. REQUIRES: Shapes.
  Time HeldUntil(NodeId peer, Time now);
  // REQUIRES: Idle, and Advance(now) was called.
  void Start(NodeId peer, Lane lane, Message message, Time now);

  // Calls `visit` with each message under way.
  void EachUnderWay(const std::function<void(NodeId, Lane, const Message&)>& visit) const {
    for (const auto& [id, link] : links_) {
      if (link.message) visit(id.first, id.second, *link.message);
    }
  }
  // Messages under way to `peer` are for a process that is gone.
  void Outdate(NodeId peer);

  Time RoundTrip(NodeId peer) const { return network_.Rtt(links_.at({peer, Lane::kReliable}).connection); }

  // The time that this node has spent sending to `peer`, on either lane, until the last message
  // left.
  Time Busy(NodeId peer) const;

  // The time of the next event.
  Time NextEvent();
  // Advances to `now`. Passes messages that have left to `sent`, in order; `next` supplies the next
  // message of that link.
  void Advance(Time now, const OnSent& sent, const Next& next);

 private:
  struct Link {
    net::ConnectionId connection = 0;
    net::LinkOptions options;
    std::optional<Message> message;
    bool outdated = false;  // the message
    Time started = 0;
    Time last_arrival = 0;
    net::Pacer pacer;  // of a best-effort lane
  };
  static constexpr Time kLook = 2 * kMillisecond;

  using LinkId = std::pair<NodeId, Lane>;
  struct Crossing {  // a connection over a shared edge
    net::ConnectionId connection = 0;
    int priority_class = 0;
    double weight = 1.0, efficiency = 1.0;
  };
  struct SharedEdge {
    net::EdgeId edge = 0;
    std::uint32_t row = 0;
    net::BandwidthSchedule schedule;
    double ours = 0.0;  // bytes/s, in the model
    std::vector<Crossing> crossings;
  };
  struct Activity {
    int links = 0;  // with a message under way
    Time since = 0;
    Time total = 0;
  };
  void Finish(const LinkId& id, Link& link, Time now, const OnSent& sent);
  // Takes this node's share of every shared edge, and publishes its use of it.
  void Share(Time now);
  Time OfRun(Time now) const { return origin_ ? now - *origin_ : 0; }  // of the schedules
  double Whole(net::EdgeId edge, Time now);  // the bandwidth of which this node has a share
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
  net::BandwidthSchedules schedules_;  // of edges that are not shared
  std::optional<Time> origin_;
  std::mt19937_64 random_;
};

}  // namespace geomx::io
