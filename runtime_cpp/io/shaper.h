// The emulated network of one node: when its messages leave, and when they arrive.
//
// The arithmetic is the simulator's (net/flows.h), run against the real clock: connections share the
// edges of this node's outgoing paths by max-min fairness, with slow start and windows. A connection
// takes its next message when the model says that the last byte of the one before has left, so the
// choice is as late as on a real link. Then comes what other nodes send over the same edges (Meters):
// what they share near the sender, as an access link, is passed before the message has left; what is
// shared further away, before the receiver, which holds it until then, looks at it. A message is
// written to a socket as soon as it has left, with the time at which it arrives. Times come from the
// model, not from when the thread woke up, so that scheduling delays do not add up. Senders and
// receivers read one clock: this is for a run whose processes are on one machine.
//
// Sans-IO like the model itself: time is an argument.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/message.h"
#include "core/send_queue.h"
#include "io/meters.h"
#include "net/course.h"
#include "net/flows.h"
#include "net/link.h"

namespace geomx::io {

// What the emulated network does to the messages of one node.
struct Shape {
  struct Edge {
    net::Course course;  // from the start of the run on
    Time delay = 0;      // one way
  };
  using Path = net::LinkOptions;  // what this node may send to one peer, in both lanes

  std::uint64_t seed = 0;              // of loss and jitter
  std::vector<Edge> edges;             // their index is their EdgeId
  std::map<NodeId, Path> paths;        // peers without one are not slowed down
  std::vector<Meter> meters;           // edges that other nodes send over, too
  std::map<NodeId, Passage> departures;  // those that messages to a peer pass before they leave
  std::map<NodeId, Passage> arrivals;    // those that messages from a peer pass before they are here
  std::string clocks;                    // file with the clocks of meters; empty: nobody shares them
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

  // Courses count from here; until then edges are as at their time 0.
  void SetOrigin(Time now);

  bool Shapes(NodeId peer, Lane lane) const { return links_.contains({peer, lane}); }
  // REQUIRES: Shapes. True if the link has nothing to send.
  bool Idle(NodeId peer, Lane lane) const { return !links_.at({peer, lane}).message; }
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
  };
  using LinkId = std::pair<NodeId, Lane>;
  struct Held {  // through this node's own model, not yet through what others share
    Time until = 0;
    LinkId id;
    bool operator>(const Held& other) const { return until > other.until; }
  };
  struct Activity {
    int links = 0;  // with a message under way
    Time since = 0;
    Time total = 0;
  };
  void Finish(const LinkId& id, Link& link, Time now, const OnSent& sent);
  double Draw() { return std::uniform_real_distribution<double>()(random_); }

  net::FlowNetwork network_;
  std::map<LinkId, Link> links_;
  std::map<NodeId, Activity> activity_;
  std::vector<LinkId> owners_;  // by connection
  std::vector<net::ConnectionId> completed_;
  std::priority_queue<Held, std::vector<Held>, std::greater<>> held_;
  std::unique_ptr<Meters> meters_;
  net::Courses courses_;
  std::optional<Time> origin_;
  std::mt19937_64 random_;
};

// What messages pass before they are here.
std::unique_ptr<Meters> ArrivalMeters(const Shape& shape);

}  // namespace geomx::io
