// Connections that change while they send: the rest of a message continues on another way or with
// another share, and a connection of something that has ended may be another one's.
#include <algorithm>
#include <stdexcept>
#include <vector>

#include "net/flows.h"
#include "tests/check.h"

using namespace geomx;
using namespace geomx::net;

namespace {

ConnectionOptions Along(std::vector<EdgeId> path) {
  ConnectionOptions options;
  options.path = std::move(path);
  options.efficiency = 1.0;
  options.ramp.window_limit = kInfinity;
  return options;
}

Time Completion(FlowNetwork& network) {
  std::vector<ConnectionId> completed;
  while (completed.empty()) {
    const Time next = network.NextEvent();
    if (next == kNever) return kNever;
    network.Advance(next, &completed);
  }
  return network.now();
}

}  // namespace

TEST(changes_the_rest_of_a_message_takes_the_new_way) {
  FlowNetwork network;
  const EdgeId slow = network.AddEdge(1e6, 0), fast = network.AddEdge(4e6, 0);
  const ConnectionId moved = network.AddConnection(Along({slow}));
  const ConnectionId other = network.AddConnection(Along({slow}));
  network.Start(moved, 3e6, 0);
  network.Start(other, 2e6, 0);
  network.NextEvent();
  CHECK_NEAR(network.Left(moved, kSecond), 2.5e6, 1);
  network.Change(moved, Along({fast}), kSecond);  // 2.5 MB are left of one, 1.5 MB of the other
  network.NextEvent();
  CHECK_NEAR(network.Rate(moved), 4e6, 1);
  CHECK_NEAR(network.Rate(other), 1e6, 1);
  CHECK_EQ(Completion(network), kSecond + kSecond * 25 / 40);
  CHECK_EQ(Completion(network), 2 * kSecond + kSecond / 2);
  const std::vector<Time> busy = network.EdgesBusy(network.now());
  CHECK_EQ(busy[slow], 2 * kSecond + kSecond / 2);
  CHECK_EQ(busy[fast], kSecond * 25 / 40);
}

TEST(changes_of_share_efficiency_and_delay_count_from_then_on) {
  FlowNetwork network;
  const EdgeId edge = network.AddEdge(1e6, kMillisecond);
  ConnectionOptions options = Along({edge});
  const ConnectionId connection = network.AddConnection(options);
  network.Start(connection, 1e6, 0);
  network.NextEvent();
  options.efficiency = 0.5;  // as with lost packets
  network.SetDelay(edge, 7 * kMillisecond);
  CHECK_EQ(network.Delay(connection), kMillisecond);
  network.Change(connection, options, kSecond / 2);
  CHECK_EQ(network.Delay(connection), 7 * kMillisecond);
  CHECK_EQ(Completion(network), kSecond + kSecond / 2);
}

TEST(changes_a_shorter_round_trip_ends_the_round_at_once) {
  FlowNetwork network;
  const EdgeId edge = network.AddEdge(1e9, 50 * kMillisecond);
  ConnectionOptions options;
  options.path = {edge};
  const ConnectionId connection = network.AddConnection(options);
  network.Start(connection, 2 * kInitialWindow, 0);
  std::vector<ConnectionId> completed;
  while (network.NextEvent() < 20 * kMillisecond) network.Advance(network.NextEvent(), &completed);
  network.SetDelay(edge, kMillisecond);
  network.Change(connection, options, 20 * kMillisecond);  // its window was used up long before
  const Time end = Completion(network);
  CHECK(end > 20 * kMillisecond && end < 21 * kMillisecond);
}

TEST(changes_an_aborted_connection_leaves_its_share_and_can_be_renewed) {
  FlowNetwork network;
  const EdgeId edge = network.AddEdge(1e6, 0);
  const ConnectionId one = network.AddConnection(Along({edge}));
  const ConnectionId other = network.AddConnection(Along({edge}));
  network.Start(one, 1e6, 0);
  network.Start(other, 1e6, 0);
  network.Abort(one, kSecond);  // half a megabyte is left of the other
  CHECK(!network.Idle(one));    // in this instant
  CHECK_EQ(Completion(network), kSecond + kSecond / 2);
  network.NextEvent();
  CHECK(network.Idle(one));
  ConnectionOptions first = Along({edge});
  first.priority_class = -1;
  network.Renew(one, first, 2 * kSecond);
  network.Start(one, 1e6, 2 * kSecond);
  network.Start(other, 1e6, 2 * kSecond);
  network.NextEvent();
  CHECK_NEAR(network.Rate(one), 1e6, 1);
  CHECK_NEAR(network.Rate(other), 0.0, 1e-6);
  bool refused = false;
  try {
    network.Renew(one, first, 2 * kSecond);
  } catch (const std::logic_error&) {
    refused = true;
  }
  CHECK(refused);
}

// Although a program may change an edge every 100 ms that nothing uses.
TEST(changes_an_idle_connection_stays_idle) {
  for (const Congestion congestion : {Congestion::kBbr, Congestion::kCubic}) {
    Time ends[2];
    for (const bool changes : {false, true}) {
      FlowNetwork network;
      ConnectionOptions options;
      options.path = {network.AddEdge(1e9, 50 * kMillisecond)};
      options.ramp.congestion = congestion;
      options.ramp.window_limit = 1e6;
      const ConnectionId connection = network.AddConnection(options);
      network.Start(connection, 5e7, 0);
      Time now = Completion(network);
      network.NextEvent();
      CHECK(network.Ramp(connection).window() >= 1e6);
      for (const Time start = now + 10 * kSecond; now < start;) {
        now = std::min(start, now + 100 * kMillisecond - 1);
        if (changes) network.Change(connection, options, now);
      }
      network.Start(connection, 3e6, now);
      ends[changes] = Completion(network);
    }
    CHECK_EQ(ends[1], ends[0]);
  }
}
