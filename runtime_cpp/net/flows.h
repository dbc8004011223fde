// A fluid model of a WAN: connections that share edges, and the times at which their messages have
// left.
//
// The entity is the connection, not the message. Between two nodes there is one ordered byte stream
// per channel, as in the runtime; the sender's queue decides the next message when the connection
// becomes free. A connection with data to send takes its weighted max-min share of every edge
// on its path (maxmin.h), bounded by its TCP window (ramp.h). Rates change only when a connection
// becomes active or idle, a window opens or closes, or an edge changes. Progress is linear between
// two such times, so there are no events per packet or byte, and a connection with a thousand queued
// messages costs one heap operation per message.
//
// How a driver uses it
//
//     network.Start(connection, bytes, now);          // an idle connection begins a message
//     Time next = network.NextEvent();                // the next event
//     network.Advance(next, &completed);              // whose last byte left at `next`
//     for (auto c : completed) if (more) network.Start(c, more, next);   // same instant: no solve
//
// `Advance` may complete nothing (a window opened). A connection whose message completed stays
// active until the instant is over: the driver first starts what follows, on every connection, then
// asks for the next event. Rates are solved at most once per instant, inside `NextEvent` (or when a
// call with a later `now` shows that the instant is over). The last byte arrives `Delay(connection)`
// after it left; the driver delivers the message.
//
// Where edges are FIFO queues, bbr's connections share them in proportion to the rates at which they
// send instead of equally, their acknowledgements do not wait for a share (fifo.cc), and what stands in
// queues slows all that cross them (standing.cc; docs/model.md has the reasons).
//
// Times are integer nanoseconds and must not decrease. Skipping an event, or starting a busy
// connection, is an error (std::logic_error). A completion is rounded up to the next nanosecond; the
// rounding error is carried over to the following message, so that errors do not accumulate.
// Deterministic: the same calls give the same results, and simultaneous completions are in the order
// of connection ids.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/types.h"
#include "net/event_heap.h"
#include "net/maxmin.h"
#include "net/ramp.h"

namespace geomx::net {

using ConnectionId = std::uint32_t;

struct ConnectionOptions {
  std::vector<EdgeId> path;              // edges in order; empty: within one host
  std::vector<EdgeId> reverse;           // the way back, for acknowledgements and for the RTT
  double reverse_share = 0.0;            // bytes on the way back per byte sent
  double weight = 1.0;                   // SharingWeight(congestion, rtt)
  int priority_class = 0;                // > 0: best effort, takes what lower classes leave
  double efficiency = kPayloadShare;     // payload bytes per byte on the edges, 0 < e <= 1
  RampOptions ramp;                      // rtt 0: taken from the delays of path and reverse
};

// What has happened, for a driver that has a model of its own; see FlowNetwork::Delegate.
struct ModelCall {
  enum class Kind : std::uint8_t {
    kEdge,       // bandwidth or delay of an edge have changed
    kChanged,    // options of a connection have changed
    kNew,        // a connection was renewed
    kStart,      // a message of `bytes` has begun
    kCancelled,  // a message was given up
  };
  Kind kind = Kind::kEdge;
  std::uint32_t number = 0;  // of the edge or the connection
  double bytes = 0.0;
};

class FlowNetwork {
 public:
  // `fifo`: edges are FIFO queues.
  explicit FlowNetwork(bool fifo = false) : fifo_(fifo) {}

  // `bytes_per_s` may be infinite; `delay` is one way.
  EdgeId AddEdge(double bytes_per_s, Time delay);

  // Throws std::invalid_argument for unknown edges, a weight or an efficiency out of range.
  ConnectionId AddConnection(const ConnectionOptions& options);

  // Changes the way, the share and the limits of a connection from `now` on; its window and the rest
  // of its message stay. Throws like AddConnection.
  void Change(ConnectionId connection, const ConnectionOptions& options, Time now);

  // Makes an idle connection a new one that never sent anything. Throws like AddConnection, and
  // std::logic_error if it is not idle.
  void Renew(ConnectionId connection, const ConnectionOptions& options, Time now);

  // Gives up the message of a connection, which is idle afterwards.
  void Abort(ConnectionId connection, Time now);

  // The connection, which has no message, sends nothing more until it is renewed: it is none of those
  // that meet others in a FIFO queue.
  void Retire(ConnectionId connection);

  // Begins a message of `bytes` of payload on a connection that has none.
  void Start(ConnectionId connection, double bytes, Time now);

  // From `now` on the edge carries at most `bytes_per_s`; 0: an outage; infinite: no limit.
  void SetCapacity(EdgeId edge, double bytes_per_s, Time now);

  // From now on `delay` is the edge's. Connections keep theirs until they are changed.
  void SetDelay(EdgeId edge, Time delay);

  // ---- a driver's own model ----
  // From now on the driver decides when messages leave: nothing is shared or scheduled here, NextEvent
  // is kNever, and what happens is noted as calls for the driver's model. REQUIRES: no connections.
  void Delegate() { delegated_ = true; }
  bool HasCalls() const { return !calls_.empty(); }
  std::vector<ModelCall> TakeCalls() { return std::exchange(calls_, {}); }  // in their order
  const ConnectionOptions& Options(ConnectionId connection) const { return options_.at(connection); }
  // The last byte of its message has left: as a completion of Advance. Throws std::logic_error if it
  // has none.
  void Leave(ConnectionId connection, Time now);
  // Its rate in payload bytes/s from now on, to be read by Rate, Left and Load.
  void SetRate(ConnectionId connection, double rate, Time now);

  // From now on `bytes` of payload are on their way behind the message of a connection without a window,
  // and more come at `rate`, in bytes/s: its share. Only FIFO queues depend on it.
  void SetBehind(ConnectionId connection, double bytes, double rate);

  // A message of this priority is about to start. As soon as messages of a connection differ in priority, its
  // sender holds them back as in hold.h. Only FIFO queues depend on it.
  void NotePriority(ConnectionId connection, std::int32_t priority);

  // The earliest time at which a message completes or a rate changes by itself; kNever if none.
  // Ends the current instant: connections that completed and were not started again are idle.
  Time NextEvent();

  // Advances to `now`, which is at most NextEvent(), and appends the connections whose message's
  // last byte has left, in the order of their ids.
  void Advance(Time now, std::vector<ConnectionId>* completed);

  // Adds the state that future events depend on. Ends the current instant, as NextEvent does.
  void Describe(Digest& digest);

  Time now() const { return now_; }
  bool fifo() const { return fifo_; }
  bool Busy(ConnectionId connection) const { return connections_[connection].state == State::kBusy; }
  // Whether it has no message, and had none in this instant.
  bool Idle(ConnectionId connection) const {
    return connections_.at(connection).state == State::kIdle;
  }
  Time Delay(ConnectionId connection) const { return connections_[connection].delay; }  // one way
  Time Rtt(ConnectionId connection) const { return connections_[connection].rtt; }
  double Weight(ConnectionId connection) const { return connections_[connection].weight; }

  // Payload bytes/s; 0 when idle or waiting for a window. Settled by NextEvent.
  double Rate(ConnectionId connection) const { return connections_[connection].rate; }
  // Payload bytes of its message that have not left at `now`, at the rate of Rate.
  double Left(ConnectionId connection, Time now) const;
  double Load(EdgeId edge) const;                                        // bytes/s on the edge
  // Returns true if a message may leave earlier when the edge has more bandwidth, as far as is known
  // here: of a driver's own model, nothing is.
  bool Limits(EdgeId edge) const {
    return delegated_ || solver_.Limits(edge) || LetsNoAcksPass(edge);
  }
  double Capacity(EdgeId edge) const { return queues_.at(edge).bytes_per_s; }
  Time EdgeDelay(EdgeId edge) const { return delays_.at(edge); }

  // For each edge, by EdgeId: the time until `now` in which any connection had a message under way.
  // REQUIRES: now >= now().
  std::vector<Time> EdgesBusy(Time now) const;
  // Adds `time` to an edge's, for a driver that skips repetitions.
  void AddBusy(EdgeId edge, Time time) { uses_.at(edge).total += time; }
  const TcpRamp& Ramp(ConnectionId connection) const { return connections_[connection].ramp; }

  std::size_t edges() const { return delays_.size(); }
  std::uint64_t solves() const { return solves_; }
  std::uint64_t work() const { return solver_.work(); }

 private:
  enum class State : std::uint8_t { kIdle, kBusy, kFinished };  // finished: idle unless restarted

  struct alignas(64) Connection {
    TcpRamp ramp;
    double weight = 1.0, efficiency = 1.0;
    double share = 1.0;       // `weight` times, of FIFO queues, the rate of sending
    Time delay = 0, rtt = 0;
    State state = State::kIdle;
    bool touched = false;     // listed in `touched_`
    bool stale = false;       // its event times are to be computed again
    bool counted = false;     // in `crossings_`
    double rate = 0.0;        // payload bytes/s since `anchor`
    Time anchor = 0;          // the time of `left`
    double left = 0.0;        // payload bytes of the message at `anchor`
    Time done_at = kNever;    // the message's last byte
    Time ramp_at = kNever;    // the window's next change
    double ack_share = 0.0;   // bytes that it reserves on its way back per byte on an edge
    std::uint32_t first_edge = 0, edges = 0, room = 0;  // of its path, in `paths_`
    std::uint32_t back = 0;   // edges of its way back, behind those, if it reserves bytes there
  };
  // The bandwidth of an edge, and what acknowledgements take of it.
  struct EdgeQueue {
    double bytes_per_s = 0.0;
    double reserved = 0.0;             // for acknowledgements, of this bandwidth
    std::vector<ConnectionId> ackers;  // connections with a message whose way back crosses it, by id
    bool noted = false;                // listed in `reserving_`
    // While waits are computed:
    double load = 0.0;     // bytes/s
    double level = 0.0;    // the most that a connection has of it, as a multiple of its share
    double waiting = 0.0;  // bytes that stand in it
    double wait_s = 0.0;   // how long what comes now waits
  };
  static constexpr EdgeId kNoEdge = ~EdgeId{0};
  // What is known of a connection's sender, from one message to the next.
  struct Sender {
    double behind = 0.0;  // without a window: bytes behind the present message
    double pace = 0.0;    // and the bytes/s at which they come
    std::optional<std::int32_t> priority;  // of the last message
    bool holds = false;   // messages have differed in priority
  };
  // A connection at the FIFO queues on its way. Bytes and rates are those on the edges.
  struct Standing {
    bool full = false;           // its window is used up, by what is under way and what waits
    EdgeId edge = kNoEdge;       // in whose queue it waits
    double waiting = 0.0;        // bytes in that queue at `anchor`
    double apart_s = 0.0;        // the wait in other queues, of its data and their acknowledgements
    double found_s = 0.0;        // the same, as of the last computation of waits
    double window = 0.0;         // bytes; 0: it has none
    double sends = 0.0;          // bytes/s until its window is used up
    double allowed = kInfinity;  // bytes/s, afterwards
    Sender sender;
  };
  // The time that an edge was in use.
  struct Use {
    int active = 0;  // connections that have a message
    Time since = 0;  // of the present use
    Time total = 0;  // of earlier uses
  };

  // Checks and applies options, but those that the ramp keeps. Returns the hops for the solver.
  std::vector<Hop> Configure(Connection& connection, const ConnectionOptions& options);
  double ShareOf(const Connection& connection) const;  // its weight at present
  void RenewShares();  // of connections that have no rate of sending of their own
  void Begin(Connection& connection);  // as one of which nothing is under way
  // ---- of FIFO queues ----
  Standing& StandingOf(const Connection& connection) { return standing_[Id(connection)]; }
  const Standing& StandingOf(const Connection& connection) const { return standing_[Id(connection)]; }
  double Room(const Connection& connection) const;     // for bytes in its queue, at its rate
  double Waiting(const Connection& connection) const;  // bytes in its queue now
  void TakeWindow(Connection& connection);             // and the rate of sending, from its ramp
  Time FullAt(const Connection& connection) const;     // when its window is used up
  void Queue(int round);  // waits, shares and caps from rates, in this round of settling
  void FindQueues(bool move);  // `move`: connections may wait in other queues than before
  EdgeId Limiting(ConnectionId id) const;              // in whose queue it waits, or kNoEdge
  bool FindWaits(bool halves);  // from what waits; returns true if they have changed
  double Apart(const Connection& connection) const;    // the waits in other queues, from those of edges
  void Slow(ConnectionId id, bool halves);             // its share and cap, from the waits on its way
  void FindFull();                                     // the connections whose window is used up now
  void DescribeQueue(const Connection& connection, Digest& digest) const;
  bool Reserves(const ConnectionOptions& options) const;  // its acknowledgements wait for no share
  void Join(const Connection& connection, bool present);  // in `sending_`, and `ackers`
  void NoteAcks(const Connection& connection);  // its rate has changed
  void Reserve();                               // what the rates at present need
  double Acks(const EdgeQueue& queue) const;
  bool LetsNoAcksPass(EdgeId edge) const {
    const EdgeQueue& queue = queues_.at(edge);
    return queue.bytes_per_s == 0.0 && !queue.ackers.empty();
  }
  void Count(Connection& connection, bool present);  // in `crossings_`
  RampOptions RampOf(const Connection& connection, const ConnectionOptions& options) const;
  void Occupy(const Connection& connection);   // its edges, from now on
  void Release(const Connection& connection);
  void MoveTo(Time now);                 // a later instant begins
  void Settle();                         // ends an instant: demands, rates, event times
  void Integrate(Connection& connection);
  void Schedule(ConnectionId id);        // event times from the rate
  void Note(ConnectionId id, double bytes);  // a message for the driver's model
  void Touch(ConnectionId id);
  ConnectionId Id(const Connection& connection) const {
    return static_cast<ConnectionId>(&connection - connections_.data());
  }
  std::span<const EdgeId> Path(const Connection& connection) const {
    return {paths_.data() + connection.first_edge, connection.edges};
  }
  std::span<const EdgeId> Back(const Connection& connection) const {
    return {paths_.data() + connection.first_edge + connection.edges, connection.back};
  }
  Time Done(const Connection& connection) const;
  double Cap(const Connection& connection) const;  // bytes/s on the edges

  MaxMin solver_;                        // stream i is connection i
  std::vector<Time> delays_;
  std::vector<Use> uses_;                // by edge
  std::vector<EdgeQueue> queues_;        // by edge
  IdList reserving_;                     // edges
  std::vector<Standing> standing_;       // by connection, of FIFO queues
  std::vector<ConnectionId> sending_;    // of FIFO queues, those with a message, by id
  std::vector<EdgeId> used_;             // edges that these cross
  std::vector<EdgeId> paths_;            // of all connections
  std::vector<int> crossings_;           // by edge: windowed connections over it that ever sent,
                                         // without those that are retired
  std::vector<Connection> connections_;
  IndexedHeap<Time> events_;
  std::vector<ConnectionId> due_;        // of the last Advance
  IdList touched_;                       // to settle at the end of this instant
  IdList settling_;
  Time now_ = 0;
  std::uint64_t solves_ = 0;
  bool fifo_;
  bool changed_ = false;                 // an edge; its queue is to be computed
  bool delegated_ = false;
  std::vector<ModelCall> calls_;
  std::vector<ConnectionOptions> options_;  // by connection, where delegated
};

}  // namespace geomx::net
