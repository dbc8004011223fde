// What stands in FIFO queues: windows, the waits that they cause, and what these do to shares.
#include <vector>

#include "net/flows.h"
#include "net/hold.h"
#include "net/link.h"
#include "tests/check.h"
#include "tests/passing.h"

using namespace geomx;
using check::Pass;
using namespace geomx::net;

namespace {

constexpr double kHuge = 1e9;  // bytes: more than leaves in a test

ConnectionOptions Across(std::vector<EdgeId> path, Time rtt, std::vector<EdgeId> reverse = {}) {
  ConnectionOptions options;
  options.path = std::move(path);
  options.reverse = std::move(reverse);
  if (!options.reverse.empty()) options.reverse_share = 0.01;
  options.efficiency = 1.0;
  options.ramp.rtt = rtt;
  options.ramp.fifo = true;
  return options;
}

// The wait that slows a connection to its rate: W / rate - RTT, in seconds.
double WaitOf(const FlowNetwork& network, ConnectionId id) {
  const double rtt = static_cast<double>(network.Rtt(id)) / kSecond;
  return network.Ramp(id).QueueWindow() / network.Rate(id) - rtt;
}

}  // namespace

TEST(standing_windows_of_different_round_trips_wait_equally) {
  FlowNetwork network(/*fifo=*/true);
  const EdgeId edge = network.AddEdge(1e6, 0);
  std::vector<ConnectionId> all;
  for (const Time rtt : {5 * kMillisecond, 20 * kMillisecond, 80 * kMillisecond}) {
    all.push_back(network.AddConnection(Across({edge}, rtt)));
  }
  for (const ConnectionId id : all) network.Start(id, kHuge, 0);
  Pass(network, 60 * kSecond);
  double rates = 0.0, standing = 0.0;
  for (const ConnectionId id : all) {
    CHECK_NEAR(WaitOf(network, id), WaitOf(network, all[0]), 1e-5);
    rates += network.Rate(id);
    standing += network.Rate(id) * WaitOf(network, id);
  }
  CHECK_NEAR(rates, 1e6, 1.0);
  CHECK_NEAR(standing / 1e6, WaitOf(network, all[0]), 1e-5);  // bytes in the queue, by its bandwidth
  CHECK(WaitOf(network, all[0]) > 0.01);
}

// The second connection's data cross another edge, which has enough for all that its window allows.
TEST(standing_bytes_delay_the_acknowledgements_of_others) {
  FlowNetwork network(/*fifo=*/true);
  const EdgeId slow = network.AddEdge(1e6, 0), fast = network.AddEdge(1e8, 0);
  const ConnectionId filling = network.AddConnection(Across({slow}, 20 * kMillisecond));
  const ConnectionId other = network.AddConnection(Across({fast}, 20 * kMillisecond, {slow}));
  network.Start(other, kHuge, 0);
  Pass(network, kSecond);
  CHECK_NEAR(network.Rate(other), 1e8, 1.0);
  network.Start(filling, kHuge, kSecond);
  Pass(network, 5 * kSecond);
  CHECK(network.Rate(other) < 0.9e8);
  CHECK_NEAR(WaitOf(network, other), WaitOf(network, filling), 1e-3 * WaitOf(network, filling));
}

// Datagrams that were handed to the network stand in the queue: a connection with a window waits behind
// them, and has less than they, whose rate no acknowledgements limit.
TEST(standing_datagrams_delay_others) {
  FlowNetwork network(/*fifo=*/true);
  LinkOptions link;
  link.path = {network.AddEdge(1e6, 0)};
  link.queueing = Queueing::kFifo;
  link.rtt = 20 * kMillisecond;
  const ConnectionId datagrams = network.AddConnection(LaneOptions(link, Lane::kBestEffort));
  const ConnectionId reliable = network.AddConnection(Across(link.path, 20 * kMillisecond));
  network.Start(reliable, kHuge, 0);
  Pass(network, 10 * kSecond);
  CHECK_NEAR(network.Rate(reliable), 1e6, 1.0);
  const double alone = WaitOf(network, reliable);
  network.SetBehind(datagrams, 3e5 * kPayloadShare, 2e6 * kPayloadShare);
  network.Start(datagrams, 0.5e6, 10 * kSecond);
  Pass(network, 10 * kSecond + kMillisecond);
  const double window = network.Ramp(reliable).QueueWindow(), rate = network.Rate(reliable);
  const double left = network.Left(datagrams, 10 * kSecond + kMillisecond) / kPayloadShare;
  const double wait = (window - 0.02 * rate + 3e5 + left) / 1e6;  // all that stands, by the bandwidth
  CHECK(wait > alone + 0.3);
  // Both are served as they come: the datagrams at their pace, the other at what its window allows.
  const double comes = window / (0.02 + wait);
  CHECK_NEAR(rate / 1e6, comes / (comes + 2e6), 1e-3);
}

// Both have the same round trip and wait in the same queue, so rates are as windows.
TEST(standing_bytes_are_fewer_where_an_urgent_message_may_come) {
  FlowNetwork network(/*fifo=*/true);
  const EdgeId edge = network.AddEdge(1e6, 0);
  const ConnectionId holding = network.AddConnection(Across({edge}, 40 * kMillisecond));
  const ConnectionId other = network.AddConnection(Across({edge}, 40 * kMillisecond));
  for (const ConnectionId id : {holding, holding, other}) network.NotePriority(id, 3);
  for (const ConnectionId id : {holding, other}) network.Start(id, kHuge, 0);
  Pass(network, 60 * kSecond);
  CHECK_NEAR(network.Rate(holding), network.Rate(other), 1.0);  // all of one priority
  network.Abort(holding, 60 * kSecond);
  network.NotePriority(holding, 4);
  network.Start(holding, kHuge, 60 * kSecond);
  Pass(network, 120 * kSecond);
  const double held = network.Ramp(holding).QueueWindow(/*holds=*/true);
  const double window = network.Ramp(other).QueueWindow();
  CHECK(held < 0.75 * window);
  CHECK_NEAR(network.Rate(holding) / network.Rate(other), held / window, 1e-4);
  CHECK_NEAR(HeldWindow(1e6, 0.04), 1e6 * (0.04 + 0.01 + 0.004), 1e-6);
  CHECK_NEAR(HeldWindow(1e6, 0.02), 1e6 * (0.02 + 0.005 + 0.004), 1e-6);
}

// One round trip after its start, a message has not used its window up, and has its rate of sending.
TEST(standing_windows_that_are_not_used_up_decide_nothing) {
  FlowNetwork network(/*fifo=*/true);
  const EdgeId edge = network.AddEdge(1e6, 0);
  const ConnectionId present = network.AddConnection(Across({edge}, 20 * kMillisecond));
  const ConnectionId late = network.AddConnection(Across({edge}, 200 * kMillisecond));
  network.Start(late, kHuge, 0);
  Pass(network, 20 * kSecond);  // it has a window of its own
  network.Abort(late, 20 * kSecond);
  network.Start(present, kHuge, 21 * kSecond);
  Pass(network, 50 * kSecond);
  network.Start(late, kHuge, 50 * kSecond);
  network.NextEvent();
  const double window = network.Ramp(present).QueueWindow();
  const double full = window / (0.02 + (window - 0.02 * network.Rate(present)) / 1e6);
  const double sends = network.Ramp(late).SendingRate();
  CHECK_NEAR(network.Rate(late) / network.Rate(present), sends / full, 1e-3 * sends / full);
  Pass(network, 55 * kSecond);
  CHECK_NEAR(WaitOf(network, late), WaitOf(network, present), 1e-3);  // now it is
}

TEST(standing_bytes_are_gone_when_their_connection_is) {
  FlowNetwork network(/*fifo=*/true);
  const EdgeId edge = network.AddEdge(1e6, 0);
  const ConnectionId first = network.AddConnection(Across({edge}, 20 * kMillisecond));
  const ConnectionId second = network.AddConnection(Across({edge}, 20 * kMillisecond));
  network.Start(first, kHuge, 0);
  Pass(network, 5 * kSecond);
  network.Start(second, kHuge, 5 * kSecond);
  Pass(network, 10 * kSecond);
  CHECK_NEAR(network.Rate(first) + network.Rate(second), 1e6, 1.0);
  network.Abort(second, 10 * kSecond);
  network.NextEvent();
  CHECK_NEAR(network.Rate(first), 1e6, 1.0);
}

// A program of the simulated world that changes another edge tells all transfers their ways again.
TEST(standing_bytes_stay_where_a_way_does) {
  FlowNetwork network(/*fifo=*/true);
  const EdgeId edge = network.AddEdge(1e6, 0);
  const ConnectionOptions near = Across({edge}, 5 * kMillisecond), far = Across({edge}, 80 * kMillisecond);
  const ConnectionId first = network.AddConnection(near), second = network.AddConnection(far);
  for (const ConnectionId id : {first, second}) network.Start(id, kHuge, 0);
  Pass(network, 60 * kSecond);
  const double rate = network.Rate(second);
  network.Change(second, far, 60 * kSecond);
  network.NextEvent();
  CHECK_NEAR(network.Rate(second), rate, 1e-3 * rate);
  network.Change(second, near, 60 * kSecond);
  network.NextEvent();
  CHECK(network.Rate(second) > 1.02 * rate);  // nothing of it stands there
}
