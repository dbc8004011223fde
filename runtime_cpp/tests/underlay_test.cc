// Laws of the emulated packet network: transmission times, bounded queues in order, exactly one end per
// packet, and schedules of bandwidth.
#include "emulation/underlay.h"

#include <map>
#include <stdexcept>

#include "tests/check.h"
#include "tests/seeds.h"

namespace geomx::emulation {
namespace {

using check::Between;
using check::Chance;
using check::Random;

constexpr double kMegabyte = 1e6;
constexpr std::uint64_t kAmple = 1'000'000'000;

struct Arrival {
  PacketId id = 0;
  Time at = 0;
};

// Returns all packets in flight when they arrive.
std::vector<Arrival> Drain(Underlay& underlay, std::size_t* gone = nullptr) {
  std::vector<Arrival> arrivals;
  for (Time at = underlay.NextEvent();; at = underlay.NextEvent()) {
    const Time now = at == kNever ? 0 : at;
    underlay.Advance(
        now, [&](const Underlay::Packet& packet) { arrivals.push_back({packet.id, now}); },
        [&](PacketId) { gone == nullptr ? void() : void(++*gone); });
    if (at == kNever) return arrivals;
  }
}

TEST(PacketsAreSentOneAfterAnother) {
  Underlay underlay(1);
  const EdgeId edge = underlay.AddEdge({kMegabyte, 30 * kMillisecond, 0, 0.0, kAmple});
  const RouteId route = underlay.AddRoute({edge});
  for (PacketId id = 0; id < 10; ++id) underlay.Enter({id, 1500, route}, 0);
  const auto arrivals = Drain(underlay);
  CHECK_EQ(arrivals.size(), 10u);
  for (const Arrival& arrival : arrivals) {
    CHECK_EQ(arrival.at, (arrival.id + 1) * 1'500'000 + 30 * kMillisecond);
  }
}

TEST(RoutesShareAnEdge) {
  Underlay underlay(1);
  const EdgeId mine = underlay.AddEdge({10 * kMegabyte, 0, 0, 0.0, kAmple});
  const EdgeId other = underlay.AddEdge({10 * kMegabyte, 0, 0, 0.0, kAmple});
  const EdgeId shared = underlay.AddEdge({kMegabyte, 0, 0, 0.0, kAmple});
  const RouteId routes[] = {underlay.AddRoute({mine, shared}), underlay.AddRoute({other, shared})};
  for (PacketId id = 0; id < 100; ++id) underlay.Enter({id, 1000, routes[id % 2]}, 0);
  const auto arrivals = Drain(underlay);
  CHECK_EQ(arrivals.size(), 100u);
  // The first packets arrive at the shared edge after 0.1 ms; from then on it is always busy.
  CHECK_EQ(arrivals.back().at, kMillisecond / 10 + 100 * kMillisecond);
  std::size_t first_half = 0;
  for (std::size_t i = 0; i < 50; ++i) first_half += arrivals[i].id % 2;
  CHECK_EQ(first_half, 25u);
}

TEST(AFullQueueDropsArrivingPackets) {
  Underlay underlay(1);
  const RouteId route = underlay.AddRoute({underlay.AddEdge({kMegabyte, 0, 0, 0.0, 5000})});
  for (PacketId id = 0; id < 10; ++id) underlay.Enter({id, 1000, route}, 0);
  std::size_t gone = 0;
  const auto arrivals = Drain(underlay, &gone);
  CHECK_EQ(arrivals.size(), 6u);  // one is being sent, five wait
  CHECK_EQ(gone, 4u);
  CHECK_EQ(underlay.counts().overflowed, 4u);
  CHECK_EQ(underlay.counts().waited, (1 + 2 + 3 + 4 + 5) * kMillisecond);
  CHECK_EQ(arrivals.back().id, 5u);
  underlay.Enter({10, 1000, route}, kSecond);
  CHECK_EQ(Drain(underlay).size(), 1u);
}

TEST(PacketsAreLostWithTheEdgesProbability) {
  Underlay underlay(7);
  const RouteId route = underlay.AddRoute({underlay.AddEdge({net::kInfinity, 0, 0, 0.1, 0})});
  for (PacketId id = 0; id < 20'000; ++id) underlay.Enter({id, 100, route}, 0);
  std::size_t gone = 0;
  CHECK_EQ(Drain(underlay, &gone).size(), 20'000 - gone);
  CHECK(gone > 1800 && gone < 2200);
  CHECK_EQ(underlay.counts().lost, gone);
}

TEST(JitterKeepsOrderAndBounds) {
  Underlay underlay(3);
  const Time delay = 10 * kMillisecond, jitter = 4 * kMillisecond;
  const RouteId route = underlay.AddRoute({underlay.AddEdge({net::kInfinity, delay, jitter, 0.0, 0})});
  std::vector<Arrival> arrivals;
  Time least = kNever, most = 0;
  for (PacketId id = 0; id < 2000; ++id) {
    const Time now = id * kMillisecond / 4;
    const auto keep = [&](const Underlay::Packet& packet) { arrivals.push_back({packet.id, now}); };
    underlay.Advance(now, keep, [](PacketId) {});
    underlay.Enter({id, 100, route}, now);
  }
  for (const Arrival& late : Drain(underlay)) arrivals.push_back(late);
  CHECK_EQ(arrivals.size(), 2000u);
  for (std::size_t i = 0; i < arrivals.size(); ++i) {
    CHECK_EQ(arrivals[i].id, i);
    const Time took = arrivals[i].at - static_cast<Time>(i) * kMillisecond / 4;
    least = std::min(least, took);
    most = std::max(most, took);
  }
  CHECK(least >= delay && least < delay + jitter / 4);
  CHECK(most <= delay + jitter + kMillisecond / 4 && most > delay + jitter * 3 / 4);
}

TEST(PacketsWaitForAnEdgeThatIsDown) {
  net::BandwidthSchedule schedule(kMegabyte);
  schedule.AddOutage(0, kSecond);
  Underlay underlay(1);
  const RouteId route = underlay.AddRoute({underlay.AddEdge({schedule, 0, 0, 0.0, kAmple})});
  underlay.Enter({0, 1000, route}, 5 * kSecond);  // before the start of the run, schedules do not apply
  CHECK_EQ(Drain(underlay).back().at, 5 * kSecond + kMillisecond);
  underlay.SetOrigin(6 * kSecond);
  underlay.Enter({1, 1000, route}, 6 * kSecond + 1);
  CHECK_EQ(Drain(underlay).back().at, 7 * kSecond + kMillisecond);
}

TEST(EveryPacketHasOneEnd) {
  check::ForSeeds(30, [](std::uint64_t seed) {
    Random random(seed);
    Underlay underlay(seed);
    const auto edges = static_cast<EdgeId>(Between(random, 1, 6));
    for (EdgeId edge = 0; edge < edges; ++edge) {
      net::BandwidthSchedule schedule(Chance(random, 0.2) ? net::kInfinity
                                             : static_cast<double>(Between(random, 1, 50)) * 1e5);
      if (Chance(random, 0.3)) schedule.AddOutage(kSecond / 10, kSecond / 2);
      underlay.AddEdge({schedule, static_cast<Time>(Between(random, 0, 20)) * kMillisecond,
                        static_cast<Time>(Between(random, 0, 3)) * kMillisecond,
                        Chance(random, 0.5) ? 0.05 : 0.0, Between(random, 0, 40'000)});
    }
    std::vector<RouteId> routes;
    for (int i = 0; i < 4; ++i) {
      std::vector<EdgeId> way;
      for (EdgeId edge = 0; edge < edges; ++edge) {
        if (Chance(random, 0.6)) way.push_back(edge);
      }
      routes.push_back(underlay.AddRoute(way));
    }
    underlay.SetOrigin(0);
    std::map<PacketId, int> ends;
    std::map<RouteId, PacketId> latest;
    std::map<PacketId, RouteId> route_of;
    const auto arrived = [&](const Underlay::Packet& packet) {
      ++ends[packet.id];
      CHECK(latest[packet.route] <= packet.id);  // no reordering on a route
      latest[packet.route] = packet.id;
    };
    const auto gone = [&](PacketId id) { ++ends[id]; };
    Time now = 0;
    for (PacketId id = 0; id < 500; ++id) {
      underlay.Advance(now, arrived, gone);
      underlay.Enter({id, static_cast<std::uint32_t>(Between(random, 40, 1500)),
                      routes[Between(random, 0, 3)]},
                     now);
      now += static_cast<Time>(Between(random, 0, 2)) * kMillisecond;
    }
    underlay.Advance(now + 1000 * kSecond, arrived, gone);
    CHECK_EQ(underlay.NextEvent(), kNever);
    CHECK_EQ(ends.size(), 500u);
    for (const auto& [id, count] : ends) CHECK_EQ(count, 1);
    const Underlay::Counts& counts = underlay.counts();
    CHECK_EQ(counts.delivered + counts.overflowed + counts.lost, 500u);
  });
}

TEST(DelaysAndLossesCanBeSet) {
  Underlay underlay(1);
  const EdgeId edge = underlay.AddEdge({net::kInfinity, 30 * kMillisecond, 0, 0.0, kAmple});
  const RouteId route = underlay.AddRoute({edge});
  const auto arrival_of = [&](PacketId id, Time at) {
    underlay.Enter({id, 1000, route}, at);
    std::size_t gone = 0;
    const auto arrivals = Drain(underlay, &gone);
    return gone > 0 ? kNever : arrivals.at(0).at;
  };
  CHECK_EQ(arrival_of(0, 0), 30 * kMillisecond);
  underlay.Set(edge, 50 * kMillisecond, std::nullopt);
  CHECK_EQ(arrival_of(1, kSecond), kSecond + 50 * kMillisecond);
  underlay.Set(edge, std::nullopt, 1.0);
  CHECK_EQ(arrival_of(2, 2 * kSecond), kNever);
  underlay.Set(edge, 0, 0.0);
  CHECK_EQ(arrival_of(3, 3 * kSecond), 3 * kSecond);

  underlay.Set(edge, 50 * kMillisecond, std::nullopt);
  underlay.Enter({4, 1000, route}, 4 * kSecond);
  underlay.Advance(4 * kSecond, [](const auto&) {}, [](PacketId) {});
  underlay.Set(edge, 0, std::nullopt);
  underlay.Enter({5, 1000, route}, 4 * kSecond + kMillisecond);
  const auto arrivals = Drain(underlay);
  CHECK_EQ(arrivals.at(0).id, 4u);  // the second does not overtake it
  CHECK_EQ(arrivals.at(1).id, 5u);
  CHECK_EQ(arrivals.at(1).at, 4 * kSecond + 50 * kMillisecond);
}

TEST(ARouteNeedsItsEdges) {
  Underlay underlay(1);
  bool refused = false;
  try {
    underlay.AddRoute({0});
  } catch (const std::invalid_argument&) {
    refused = true;
  }
  CHECK(refused);
}

}  // namespace
}  // namespace geomx::emulation
