// Sharing of an edge between datagrams and connections, after transfers have ended, and between distant
// priority classes; and the edges that hold messages back.
#include <vector>

#include "net/bandwidth_schedule.h"
#include "net/flows.h"
#include "net/link.h"
#include "tests/check.h"
#include "tests/passing.h"

using namespace geomx;
using check::Pass;
using namespace geomx::net;

namespace {

ConnectionOptions Over(std::vector<EdgeId> path, int priority_class = 0) {
  ConnectionOptions options;
  options.path = std::move(path);
  options.efficiency = 1.0;
  options.ramp.rtt = 20 * kMillisecond;
  options.priority_class = priority_class;
  return options;
}

}  // namespace

TEST(queues_serve_datagrams_like_a_connection_of_the_same_round_trip) {
  for (const Congestion congestion : {Congestion::kBbr, Congestion::kCubic, Congestion::kReno}) {
    for (const Time rtt : {200 * kMicrosecond, 50 * kMillisecond, 2 * kSecond}) {
      FlowNetwork network;
      LinkOptions link;
      link.path = {network.AddEdge(1e5, 0)};
      link.congestion = congestion;
      link.queueing = Queueing::kFifo;
      link.rtt = rtt;
      const ConnectionId reliable = network.AddConnection(LaneOptions(link, Lane::kReliable));
      const ConnectionId datagrams = network.AddConnection(LaneOptions(link, Lane::kBestEffort));
      for (const ConnectionId id : {reliable, datagrams}) network.Start(id, 1e9, 0);
      network.NextEvent();
      CHECK_NEAR(network.Rate(reliable), 0.5e5 * kPayloadShare, 1e-3);
      CHECK_NEAR(network.Rate(datagrams), 0.5e5 * kPayloadShare, 1e-3);
    }
  }
}

// Three sites send over the hub's edge, the first over a slower edge of its own, which decides nothing.
TEST(queues_are_not_met_by_connections_of_transfers_that_have_ended) {
  std::vector<double> rates[2];
  for (const int others : {0, 20}) {
    FlowNetwork network(/*fifo=*/true);
    const EdgeId site = network.AddEdge(8e6, 0), hub = network.AddEdge(1e7, 0);
    std::vector<ConnectionId> ended;
    for (int i = 0; i < others; ++i) ended.push_back(network.AddConnection(Over({site})));
    for (const ConnectionId id : ended) network.Start(id, 1e4, 0);
    Pass(network, kSecond);
    for (const ConnectionId id : ended) network.Retire(id);
    const std::vector<ConnectionId> training = {network.AddConnection(Over({site, hub})),
                                                network.AddConnection(Over({hub})),
                                                network.AddConnection(Over({hub}))};
    for (const ConnectionId id : training) network.Start(id, 1e9, kSecond);
    Pass(network, 10 * kSecond);
    for (const ConnectionId id : training) rates[others > 0].push_back(network.Rate(id));
  }
  for (std::size_t i = 0; i < 3; ++i) CHECK_NEAR(rates[1][i], rates[0][i], 1.0);
}

TEST(queues_of_classes_far_apart_are_those_of_neighbours) {
  std::vector<double> rates[2];
  for (const int apart : {1, 100}) {
    FlowNetwork network;
    const EdgeId edge = network.AddEdge(1e6, 0), narrow = network.AddEdge(3e5, 0);
    std::vector<ConnectionId> all;
    for (const int priority_class : {-apart, 0, apart}) {
      all.push_back(network.AddConnection(Over({edge, narrow}, priority_class)));
      all.push_back(network.AddConnection(Over({edge}, priority_class)));
    }
    for (const ConnectionId id : {all[2], all[3], all[4], all[5]}) network.Start(id, 1e9, 0);
    Pass(network, kSecond);
    network.Start(all[0], 1e9, kSecond);
    Pass(network, 2 * kSecond);
    for (const ConnectionId id : all) rates[apart > 1].push_back(network.Rate(id));
  }
  for (std::size_t i = 0; i < rates[0].size(); ++i) CHECK_EQ(rates[1][i], rates[0][i]);
  CHECK_NEAR(rates[0][0], 3e5, 1.0);
}

// Of two edges without bandwidth, the first keeps the message until it has some, then the second does.
TEST(queues_wait_for_the_edge_that_limits_them) {
  FlowNetwork network;
  const EdgeId first = network.AddEdge(0.0, 0), second = network.AddEdge(0.0, 0);
  const EdgeId other = network.AddEdge(1e6, 0);
  network.Start(network.AddConnection(Over({first, second, other})), 1e6, 0);
  CHECK_EQ(network.NextEvent(), kNever);
  CHECK(network.Limits(first) && !network.Limits(second) && !network.Limits(other));
  network.SetCapacity(first, 1e6, 0);
  CHECK_EQ(network.NextEvent(), kNever);
  CHECK(!network.Limits(first) && network.Limits(second) && !network.Limits(other));
}

// Neither do data move while acknowledgements find no bandwidth on the way back.
TEST(queues_wait_for_an_edge_that_lets_no_acknowledgement_pass) {
  FlowNetwork network(/*fifo=*/true);
  const EdgeId out = network.AddEdge(1e6, 0), back = network.AddEdge(1e6, 0);
  ConnectionOptions options = Over({out});
  options.reverse = {back};
  options.reverse_share = 0.03;
  const ConnectionId id = network.AddConnection(options);
  network.SetCapacity(back, 0.0, 0);
  CHECK(!network.Limits(back));  // no message waits
  network.Start(id, 1e6, 0);
  CHECK_EQ(network.NextEvent(), kNever);
  CHECK(network.Limits(back) && !network.Limits(out));
  network.SetCapacity(back, 1e6, kSecond);
  CHECK(network.NextEvent() < kNever);
  CHECK(!network.Limits(back) && network.Rate(id) > 0.0);
}

TEST(queues_that_nothing_else_moves_wait_for_changes_of_such_edges_only) {
  BandwidthSchedules schedules;
  for (const EdgeId edge : {0u, 1u}) {
    BandwidthSchedule schedule(1e6);
    schedule.AddOutage((edge + 1) * kSecond, (edge + 2) * kSecond);
    schedules.Add(edge, std::move(schedule));
  }
  const auto last = [](EdgeId edge) { return edge == 1; };
  const auto none = [](EdgeId) { return false; };
  CHECK_EQ(schedules.Next(5 * kSecond, last), kSecond);
  CHECK_EQ(schedules.Next(kNever, last), 2 * kSecond);
  CHECK_EQ(schedules.Next(kNever, none), kNever);
}

// A driver that asks often, as where a program of the simulated world reads the network every millisecond,
// waits for the end of an outage as others do.
TEST(queues_wait_for_a_change_however_often_it_is_asked_for) {
  BandwidthSchedules schedules;
  BandwidthSchedule schedule(0.0);
  schedule.SetTrace({{kSecond, 1e6}});
  schedules.Add(0, std::move(schedule));
  const auto all = [](EdgeId) { return true; };
  for (int i = 0; i < 2'000'000; ++i) schedules.Next(kNever, all);
  CHECK_EQ(schedules.Next(kNever, all), kSecond);
}

// A constant rate has no window and no rounds: it began before anything else was sent, or in an outage.
TEST(queues_serve_a_constant_rate_whenever_it_began) {
  for (const bool outage : {false, true}) {
    FlowNetwork network(/*fifo=*/true);
    const EdgeId edge = network.AddEdge(outage ? 0.0 : 1e7, 0);
    ConnectionOptions constant = Over({edge});
    constant.ramp.window_limit = kInfinity;
    constant.ramp.rate_limit = 2e6;
    const ConnectionId other = network.AddConnection(constant);
    const ConnectionId training = network.AddConnection(Over({edge}));
    if (outage) network.Start(training, 1e9, 0);
    network.Start(other, 1e9, 0);
    Pass(network, kSecond);
    network.SetCapacity(edge, 1e7, kSecond);
    if (!outage) network.Start(training, 1e9, kSecond);
    Pass(network, 10 * kSecond);
    CHECK_NEAR(network.Rate(other), 2e6, 1.0);
    CHECK_NEAR(network.Rate(training), 8e6, 1.0);
  }
}

// Those of a constant rate, as those of other connections, wait for no share of the way back.
TEST(queues_let_acknowledgements_of_a_constant_rate_pass) {
  FlowNetwork network(/*fifo=*/true);
  const EdgeId there = network.AddEdge(1e7, 0), back = network.AddEdge(1e6, 0);
  ConnectionOptions constant = Over({there});
  constant.reverse = {back};
  constant.reverse_share = 0.02;
  constant.ramp.window_limit = kInfinity;
  constant.ramp.rate_limit = 2e6;
  const ConnectionId other = network.AddConnection(constant);
  const ConnectionId training = network.AddConnection(Over({back}));
  for (const ConnectionId id : {other, training}) network.Start(id, 1e9, 0);
  Pass(network, 10 * kSecond);
  CHECK_NEAR(network.Rate(other), 2e6, 1.0);
  CHECK_NEAR(network.Rate(training), 1e6 - 0.02 * 2e6, 1e3);
}
