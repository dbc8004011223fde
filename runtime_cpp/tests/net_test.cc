// Laws of the network model: rates are max-min fair after any history, transfer times follow closed
// forms, a busy connection needs no solution per message, and windows grow in round trips.
#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "net/event_heap.h"
#include "net/flows.h"
#include "net/link.h"
#include "net/transfer.h"
#include "tests/seeds.h"

using namespace geomx;
using namespace geomx::net;

namespace {

constexpr double kMegabyte = 1e6;

ConnectionOptions Plain(std::vector<EdgeId> path) {
  ConnectionOptions options;
  options.path = std::move(path);
  options.efficiency = 1.0;
  options.ramp.window_limit = kInfinity;
  return options;
}

// Runs until all messages are complete; passes each to `done`.
template <class Done>
void Drive(FlowNetwork* network, Done done) {
  std::vector<ConnectionId> completed;
  for (Time now = network->NextEvent(); now != kNever; now = network->NextEvent()) {
    completed.clear();
    network->Advance(now, &completed);
    for (const ConnectionId connection : completed) done(connection, now);
  }
}

// The reference: progressive filling of all connections, as in textbooks.
struct Reference {
  std::vector<double> capacity;
  std::vector<std::vector<Hop>> hops;
  std::vector<double> weight, cap;
  std::vector<int> priority_class;

  std::vector<double> Solve() const {
    std::vector<double> rate(hops.size(), 0.0), free = capacity;
    for (int k = -1; k < 3; ++k) {
      std::vector<bool> open(hops.size());
      for (std::size_t i = 0; i < hops.size(); ++i) open[i] = priority_class[i] == k && cap[i] > 0;
      double level = 0.0;
      while (std::count(open.begin(), open.end(), true) > 0) {
        std::vector<double> pull(capacity.size(), 0.0);
        double step = kInfinity;
        for (std::size_t i = 0; i < hops.size(); ++i) {
          if (!open[i]) continue;
          step = std::min(step, cap[i] / weight[i] - level);
          for (const Hop& hop : hops[i]) pull[hop.edge] += hop.share * weight[i];
        }
        for (std::size_t e = 0; e < pull.size(); ++e) {
          if (pull[e] > 0) step = std::min(step, std::max(free[e], 0.0) / pull[e]);
        }
        level += step;
        for (std::size_t e = 0; e < pull.size(); ++e) free[e] -= step * pull[e];
        for (std::size_t i = 0; i < hops.size(); ++i) {
          if (!open[i]) continue;
          rate[i] = level * weight[i];
          bool full = rate[i] >= cap[i] * (1 - 1e-12);
          for (const Hop& hop : hops[i]) full |= free[hop.edge] <= 1e-9 * capacity[hop.edge];
          if (full) open[i] = false;
        }
      }
    }
    return rate;
  }
};

}  // namespace

TEST(net_heap_agrees_with_a_list_of_events) {
  check::ForSeeds(40, [](std::uint64_t seed) {
    check::Random random(seed);
    IndexedHeap<Time> heap;
    std::map<std::uint32_t, Time> events;
    const auto first = [](const auto& a, const auto& b) {
      return std::pair(a.second, a.first) < std::pair(b.second, b.first);
    };
    std::vector<std::uint32_t> due, expected;
    for (int i = 0; i < 300; ++i) {
      const auto id = static_cast<std::uint32_t>(check::Between(random, 0, 30));
      if (check::Chance(random, 0.7)) {
        heap.Set(id, events[id] = static_cast<Time>(check::Between(random, 0, 20)));
      } else {
        heap.Remove(id);
        events.erase(id);
      }
      CHECK_EQ(heap.empty(), events.empty());
      if (events.empty()) continue;
      CHECK_EQ(heap.top().id, std::min_element(events.begin(), events.end(), first)->first);
      const auto now = static_cast<Time>(check::Between(random, 0, 20));
      heap.Due(now, due);
      expected.clear();
      for (const auto& [each, at] : events) {
        if (at <= now) expected.push_back(each);
      }
      CHECK(due == expected);
    }
  });
}

TEST(net_rates_are_maxmin_after_any_history) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    std::mt19937_64 random(seed);
    const auto below = [&](std::uint64_t n) { return random() % n; };
    const auto unit = [&] { return static_cast<double>(below(1000) + 1) / 1000; };
    Reference reference;
    MaxMin solver;
    const std::size_t edges = 3 + below(12), streams = 2 + below(40);
    for (std::size_t e = 0; e < edges; ++e) {
      reference.capacity.push_back(100 * unit());
      solver.AddEdge(reference.capacity.back());
    }
    const bool classes = seed % 3 == 0, shares = seed % 2 == 0;
    const auto draw_hops = [&] {
      std::vector<Hop> hops;
      for (EdgeId e = 0; e < edges; ++e) {
        if (below(edges) < 2) hops.push_back({e, shares && below(2) ? 0.05 : 1.0});
      }
      if (hops.empty()) hops.push_back({static_cast<EdgeId>(below(edges)), 1.0});
      return hops;
    };
    const auto draw_class = [&] { return classes ? static_cast<int>(below(4)) - 1 : 0; };
    for (std::size_t i = 0; i < streams; ++i) {
      const std::vector<Hop> hops = draw_hops();
      reference.hops.push_back(hops);
      reference.priority_class.push_back(draw_class());
      reference.weight.push_back(1.0);
      reference.cap.push_back(0.0);
      solver.AddStream(hops, reference.priority_class.back());
    }
    for (int change = 0; change < 120; ++change) {
      for (std::uint64_t n = 1 + below(3); n > 0; --n) {
        const std::size_t i = below(streams);
        if (below(8) == 0) {
          const auto e = static_cast<EdgeId>(below(edges));
          reference.capacity[e] = 100 * unit();
          solver.SetCapacity(e, reference.capacity[e]);
        }
        if (below(6) == 0) {
          reference.hops[i] = draw_hops();
          reference.priority_class[i] = draw_class();
          solver.MoveStream(static_cast<StreamId>(i), reference.hops[i], reference.priority_class[i]);
        }
        reference.weight[i] = 3 * unit();
        reference.cap[i] = below(3) == 0 ? 0.0 : below(2) ? kInfinity : 40 * unit();
        solver.SetDemand(static_cast<StreamId>(i), reference.weight[i], reference.cap[i]);
      }
      solver.Solve();
      const std::vector<double> expected = reference.Solve();
      for (StreamId i = 0; i < streams; ++i) {
        if (std::fabs(solver.rate(i) - expected[i]) <= 1e-6 * (1.0 + expected[i])) continue;
        check::Report(__FILE__, __LINE__,
                      "seed " + std::to_string(seed) + " change " + std::to_string(change) +
                          " stream " + std::to_string(i) + ": " + std::to_string(solver.rate(i)) +
                          " instead of " + std::to_string(expected[i]));
        return;
      }
    }
  }
}

TEST(net_unrelated_connections_are_not_solved_again) {
  MaxMin solver;
  for (EdgeId e = 0; e < 1000; ++e) {
    solver.AddEdge(10.0);
    const Hop hop{e, 1.0};
    solver.SetDemand(solver.AddStream({&hop, 1}), 1.0, kInfinity);
  }
  CHECK_EQ(solver.Solve().size(), 1000u);
  const std::uint64_t before = solver.work();
  const Hop hop{7, 1.0};
  solver.SetDemand(solver.AddStream({&hop, 1}), 1.0, kInfinity);
  CHECK_EQ(solver.Solve().size(), 2u);
  CHECK(solver.work() - before <= 4);
}

TEST(net_consecutive_messages_need_no_solution_and_have_no_rounding_drift) {
  FlowNetwork network;
  const EdgeId edge = network.AddEdge(3e6, 0);  // a byte takes 333.3 ns, so every end is rounded
  const ConnectionId a = network.AddConnection(Plain({edge}));
  const ConnectionId b = network.AddConnection(Plain({edge}));
  int left_a = 3000, left_b = 3000;
  Time last = 0;
  network.Start(a, 1000, 0);
  network.Start(b, 1000, 0);
  Drive(&network, [&](ConnectionId connection, Time now) {
    int& left = connection == a ? left_a : left_b;
    if (--left > 0) network.Start(connection, 1000, now);
    last = now;
  });
  CHECK_EQ(last, 2 * kSecond);
  CHECK(network.solves() <= 2);
}

TEST(net_completions_are_in_the_order_of_ids) {
  FlowNetwork network;
  const EdgeId edge = network.AddEdge(1e6, 0);
  std::vector<ConnectionId> order;
  for (int i = 0; i < 20; ++i) network.AddConnection(Plain({edge}));
  for (int i = 19; i >= 0; --i) network.Start(static_cast<ConnectionId>(i), 500, 0);
  Drive(&network, [&](ConnectionId connection, Time) { order.push_back(connection); });
  CHECK_EQ(order.size(), 20u);
  CHECK(std::is_sorted(order.begin(), order.end()));
}

TEST(net_the_busy_time_of_an_edge_counts_concurrent_messages_once) {
  FlowNetwork network;
  const EdgeId own = network.AddEdge(1e9, 0), shared = network.AddEdge(1e6, 0);
  const EdgeId unused = network.AddEdge(1e6, 0);
  const ConnectionId a = network.AddConnection(Plain({own, shared}));
  const ConnectionId b = network.AddConnection(Plain({shared}));
  network.Start(a, 1e6, 0);
  network.Start(b, 1e6, 0);
  int more = 1;
  Drive(&network, [&](ConnectionId connection, Time now) {
    if (connection == a && more-- > 0) network.Start(a, 1e6, now);  // until 3 s
  });
  CHECK_EQ(network.now(), 3 * kSecond);
  network.Start(b, 5e5, 5 * kSecond);
  network.NextEvent();
  const std::vector<Time> busy = network.EdgesBusy(5 * kSecond + kMillisecond);  // still in flight
  CHECK_EQ(busy[own], 3 * kSecond);
  CHECK_EQ(busy[shared], 3 * kSecond + kMillisecond);
  CHECK_EQ(busy[unused], 0);
  Drive(&network, [](ConnectionId, Time) {});
  network.AddBusy(unused, 7);
  CHECK_EQ(network.EdgesBusy(network.now())[shared], 3 * kSecond + kSecond / 2);
  CHECK_EQ(network.EdgesBusy(network.now())[unused], 7);
}

TEST(net_best_effort_uses_the_remaining_bandwidth) {
  FlowNetwork network;
  const EdgeId out = network.AddEdge(10e6, 0), slow = network.AddEdge(4e6, 0);
  const ConnectionId urgent = network.AddConnection(Plain({out, slow}));
  ConnectionOptions options = Plain({out});
  options.priority_class = 1;
  const ConnectionId patient = network.AddConnection(options);
  network.Start(patient, 100 * kMegabyte, 0);
  network.NextEvent();
  CHECK_NEAR(network.Rate(patient), 10e6, 1);
  network.Start(urgent, 4 * kMegabyte, kSecond);
  network.NextEvent();
  CHECK_NEAR(network.Rate(urgent), 4e6, 1);
  CHECK_NEAR(network.Rate(patient), 6e6, 1);
  std::vector<ConnectionId> completed;
  network.Advance(2 * kSecond, &completed);
  CHECK_EQ(completed.size(), 1u);
  network.NextEvent();
  CHECK_NEAR(network.Rate(patient), 10e6, 1);
}

TEST(net_an_outage_stops_transfers_until_its_end) {
  FlowNetwork network;
  const EdgeId edge = network.AddEdge(1e6, 0);
  const ConnectionId connection = network.AddConnection(Plain({edge}));
  network.Start(connection, 2e6, 0);
  network.SetCapacity(edge, 0.0, kSecond);
  CHECK_EQ(network.NextEvent(), kNever);
  network.SetCapacity(edge, 2e6, 5 * kSecond);
  CHECK_EQ(network.NextEvent(), 5 * kSecond + kSecond / 2);
}

TEST(net_events_must_not_be_skipped_and_time_is_monotonic) {
  FlowNetwork network;
  const ConnectionId connection = network.AddConnection(Plain({network.AddEdge(1e6, 0)}));
  network.Start(connection, 1e6, 10);
  const auto refused = [](auto call) {
    try {
      call();
    } catch (const std::logic_error&) {
      return true;
    }
    return false;
  };
  CHECK(refused([&] { network.Start(connection, 1, 20); }));
  CHECK(refused([&] { network.SetCapacity(0, 1, 5); }));
  std::vector<ConnectionId> completed;
  CHECK(refused([&] { network.Advance(2 * kSecond, &completed); }));
}

TEST(net_empty_messages_and_unlimited_edges_take_no_time) {
  FlowNetwork network;
  const EdgeId edge = network.AddEdge(kInfinity, 0);
  const ConnectionId a = network.AddConnection(Plain({edge}));
  const ConnectionId b = network.AddConnection(Plain({}));
  network.Start(a, 1e9, 7);
  network.Start(b, 0, 7);
  int messages = 0;
  Drive(&network, [&](ConnectionId connection, Time now) {
    CHECK_EQ(now, 7);
    if (++messages < 6) network.Start(connection, 1e6, now);
  });
  CHECK_EQ(messages, 7);
}

// Returns the time of `bytes` after a pause, paced by bbr from `delivered` bytes/s, over a link of `rate`.
double PacedSeconds(double bytes, double rate, double delivered) {
  const double pace = kPacingGain * delivered;
  if (pace >= rate) return bytes / rate;
  const double quantum = std::max(kQuantumShare * kInitialWindow, pace * kQuantumSeconds);
  const double free = std::min(bytes, quantum * rate / (rate - pace));  // the quantum grows while it is sent
  return free / rate + (bytes - free) / pace;
}

TEST(ramp_rounds_double_until_the_link_is_full) {
  // 100 Mbit/s and 80 ms: rounds of 1, 2, 4, ... initial windows, each started by the acknowledgements
  // of the previous one, until sending a window takes longer than a round trip. With bbr, all rounds but
  // the first are paced, which costs at most about one round trip.
  const double rate = 12.5e6, rtt = 0.08;
  for (const Congestion congestion : {Congestion::kBbr, Congestion::kCubic}) {
    for (const double bytes : {1e4, 5e4, 2e5, 6e5, 5e6}) {
      FlowNetwork network;
      ConnectionOptions options = Plain({network.AddEdge(rate, 40 * kMillisecond)});
      options.ramp.window_limit = 1e9;
      options.ramp.congestion = congestion;
      const ConnectionId connection = network.AddConnection(options);
      CHECK_EQ(network.Rtt(connection), 80 * kMillisecond);
      network.Start(connection, bytes, 0);
      double expected = 0, window = kInitialWindow, left = bytes;
      for (; left > window && window < rate * rtt; left -= window, window *= 2) expected += rtt;
      const bool paced = congestion == Congestion::kBbr && expected > 0;
      expected += left / rate;
      Time last = 0;
      Drive(&network, [&](ConnectionId, Time now) { last = now; });
      const double took = static_cast<double>(last) / kSecond;
      if (paced) {
        CHECK(took > expected + 1e-3 && took < expected + 1.2 * rtt);
      } else {
        CHECK_NEAR(took, expected, 1e-6);
      }
    }
  }
}

TEST(ramp_limit_is_window_over_rtt) {
  FlowNetwork network;
  ConnectionOptions options = Plain({network.AddEdge(125e6, 50 * kMillisecond)});
  options.ramp.window_limit = 1e6;
  options.ramp.initial_window = 1e6;
  const ConnectionId connection = network.AddConnection(options);
  network.Start(connection, 50e6, 0);
  Drive(&network, [&](ConnectionId, Time now) {
    CHECK_NEAR(static_cast<double>(now) / kSecond, 5.0, 1e-6);
  });
}

TEST(ramp_shrinks_while_idle_unless_bbr) {
  for (const Congestion congestion : {Congestion::kBbr, Congestion::kCubic, Congestion::kReno}) {
    RampOptions options;
    options.rtt = 100 * kMillisecond;
    options.congestion = congestion;
    TcpRamp ramp(options);
    Time now = 0;
    ramp.Begin(now);
    for (int round = 0; round < 3; ++round) {
      ramp.Sent(ramp.window(), now + kMillisecond);
      CHECK_EQ(ramp.RateCap(), 0.0);
      now += options.rtt;
      CHECK_EQ(ramp.NextChange(0.0), now);
      ramp.Sent(0.0, now);
    }
    CHECK_NEAR(ramp.window(), 8 * kInitialWindow, 1e-6);
    ramp.End(now);
    ramp.Begin(now + 2 * (options.rtt + kRtoMargin) + kMillisecond);
    const double kept = congestion == Congestion::kBbr ? 8.0 : 2.0;
    CHECK_NEAR(ramp.window(), kept * kInitialWindow, 1e-6);
  }
}

TEST(ramp_paces_repeated_bursts_under_bbr) {
  // Bursts much shorter than a round trip are paced by their own delivery rate, or by a higher one of an
  // earlier burst. This ends after three rounds on a full path, and does not apply to controls without
  // pacing.
  const double rtt_s = 0.1;
  for (const Congestion congestion : {Congestion::kBbr, Congestion::kCubic}) {
    for (const double rate : {125e6, 12.5e6}) {
      for (const double bytes : {5e3, 2e4, 1e5}) {
        FlowNetwork network;
        ConnectionOptions options = Plain({network.AddEdge(rate, 50 * kMillisecond)});
        options.ramp.congestion = congestion;
        options.ramp.window_limit = kWindowLimit;
        const ConnectionId connection = network.AddConnection(options);
        Time now = 0, took = 0;
        const auto send = [&](double size) {
          network.Start(connection, size, now);
          Drive(&network, [&](ConnectionId, Time at) { took = at - now; });
          now += 2 * kSecond / 10 + took;
        };
        const double alone = bytes / rate;
        for (int burst = 0; burst < 16; ++burst) send(bytes);
        const double took_s = static_cast<double>(took) / kSecond;
        if (congestion != Congestion::kBbr) {
          CHECK_NEAR(took_s, alone, 1e-6);
          continue;
        }
        double settled = alone;
        for (int i = 0; i < 100; ++i) {
          const double delivered = std::max(bytes / (rtt_s + settled), kInitialWindow / rtt_s);
          settled = PacedSeconds(bytes, rate, delivered);
        }
        CHECK(took_s < 1.001 * settled && took_s > 0.7 * settled && took_s > 1.2 * alone);
        send(50e6);  // many rounds at the rate of the link or of the largest window
        send(bytes);
        CHECK_NEAR(static_cast<double>(took) / kSecond, alone, 1e-6);
      }
    }
  }
}

TEST(ramp_sends_a_quantum_without_pacing_after_a_pause) {
  RampOptions options;
  options.rtt = 100 * kMillisecond;
  TcpRamp ramp(options);
  const double pace = kPacingGain * kInitialWindow / 0.1;
  const double quantum = kQuantumShare * kInitialWindow;
  ramp.Begin(0);
  CHECK_NEAR(ramp.RateCap(), kBurstRate, 1);  // the initial window of ten segments
  ramp.Sent(1000, 1000);
  ramp.End(1000);
  Time now = kSecond;
  ramp.Begin(now);
  CHECK_NEAR(ramp.RateCap(), kBurstRate, 1);
  CHECK_EQ(ramp.NextChange(kBurstRate), now + 232);  // a quantum at that rate
  ramp.Sent(quantum, now += 232);
  CHECK_NEAR(ramp.RateCap(), pace, 1);
  // A short pause allows the bytes that the pace would have sent.
  ramp.End(now);
  ramp.Begin(now += kMillisecond);
  CHECK_NEAR(ramp.RateCap(), kBurstRate, 1);
  ramp.Sent(pace * 1e-3, now + 1);
  CHECK_NEAR(ramp.RateCap(), pace, 1);
}

TEST(ramp_sends_a_window_at_the_links_rate_after_a_pause) {
  // 1 MB per 100 ms is 10 MB/s; the link has 20 MB/s. After all bytes have been acknowledged, one window
  // is sent at the link's rate, and further bytes at the window's.
  for (const Congestion congestion : {Congestion::kBbr, Congestion::kCubic}) {
    FlowNetwork network;
    ConnectionOptions options = Plain({network.AddEdge(20e6, 50 * kMillisecond)});
    options.ramp.congestion = congestion;
    options.ramp.window_limit = 1e6;
    const ConnectionId connection = network.AddConnection(options);
    Time now = 0, took = 0;
    const auto send = [&](double bytes, Time pause) {
      network.Start(connection, bytes, now += pause);
      Drive(&network, [&](ConnectionId, Time at) { took = at - now; });
      now += took;
      return static_cast<double>(took) / kSecond;
    };
    send(20e6, 0);
    CHECK_NEAR(send(1e6, 50 * kMillisecond), 1e6 / 10e6, 1e-6);  // half of the window is unacknowledged
    CHECK_NEAR(send(1e6, 100 * kMillisecond), 1e6 / 20e6, 1e-6);
    CHECK_NEAR(send(3e6, 100 * kMillisecond), 0.1 + 2e6 / 10e6, 1e-6);
  }
}

TEST(ramp_grows_beyond_the_window_limit) {
  // One timeout of idleness therefore does not limit a full window; a second one halves it. The last bytes
  // waited for a round trip, which makes the timeout longer.
  RampOptions options;
  options.rtt = 100 * kMillisecond;
  options.congestion = Congestion::kCubic;
  options.window_limit = 1e6;
  for (const int timeouts : {1, 2}) {
    TcpRamp ramp(options);
    ramp.Begin(0);
    ramp.Sent(19.8e6, 1980 * kMillisecond);
    ramp.End(1980 * kMillisecond);
    CHECK_NEAR(ramp.window(), 2.4e6, 1e-6);
    const Time timeout = options.rtt + 80 * kMillisecond + kRtoMargin;
    ramp.Begin(1980 * kMillisecond + timeouts * timeout);
    CHECK_NEAR(ramp.window(), 2.4e6 / (1 << timeouts), 1e-6);
  }
}

TEST(ramp_of_a_young_connection_waits_longer_before_it_shrinks) {
  // At first the kernel's timeout is three round trips; every round takes a quarter of the difference.
  RampOptions options;
  options.rtt = 400 * kMillisecond;
  options.congestion = Congestion::kReno;
  double variation = 2.0 * 400 * kMillisecond - kRtoMargin;
  for (int rounds = 1; rounds <= 6; ++rounds) {
    variation *= 0.75;
    const Time timeout = options.rtt + kRtoMargin + static_cast<Time>(variation);
    for (const Time early : {Time{0}, kMillisecond}) {
      TcpRamp ramp(options);
      ramp.Begin(0);
      Time now = 0;
      for (int round = 0; round < rounds; ++round) {
        ramp.Sent(ramp.window(), now);
        now += options.rtt;
        ramp.Sent(0.0, now);
      }
      ramp.End(now);
      const double grown = ramp.window();
      ramp.Begin(now + timeout - early);
      CHECK_NEAR(ramp.window(), early > 0 ? grown : grown / 2, 1e-6);
    }
  }
}

TEST(ramp_lazy_and_eager_accounting_agree) {
  RampOptions options;
  options.rtt = 10 * kMillisecond;
  options.initial_window = 1000;
  TcpRamp lazy(options), eager(options);
  lazy.Begin(0);
  eager.Begin(0);
  const double per_ms = 95;  // 950 bytes per round: the window grows once, and never limits after that
  for (Time ms = 1; ms <= 505; ++ms) eager.Sent(per_ms, ms * kMillisecond);
  lazy.Sent(505 * per_ms, 505 * kMillisecond);
  CHECK_NEAR(lazy.window(), eager.window(), 1e-6);
  CHECK_EQ(lazy.NextChange(2e6), eager.NextChange(2e6));
}

// Returns the bytes/s of the reliable and the best-effort lane of one link, both busy.
std::pair<double, double> LanesThatMeet(Queueing queueing) {
  FlowNetwork network;
  LinkOptions link;
  link.path = {network.AddEdge(40e6, 0)};
  link.efficiency = 1.0;
  link.queueing = queueing;
  const ConnectionId ids[] = {network.AddConnection(LaneOptions(link, Lane::kReliable)),
                              network.AddConnection(LaneOptions(link, Lane::kBestEffort))};
  for (const ConnectionId id : ids) network.Start(id, 1e6, 0);
  network.NextEvent();
  return {network.Rate(ids[0]), network.Rate(ids[1])};
}

TEST(datagrams_have_low_priority_only_if_routers_obey_marks) {
  const auto marked = LanesThatMeet(Queueing::kPriority);
  CHECK_NEAR(marked.first, 40e6, 1);
  CHECK_NEAR(marked.second, 0, 1);
  const auto met = LanesThatMeet(Queueing::kFifo);
  CHECK_NEAR(met.first, 20e6, 1);
  CHECK_NEAR(met.second, 20e6, 1);
}

TEST(a_sender_delays_datagrams_if_routers_ignore_marks) {
  FlowNetwork network;
  LinkOptions link;
  link.path = {network.AddEdge(1e6, 10 * kMillisecond)};
  link.reverse = link.path;
  const ConnectionId reliable = network.AddConnection(LaneOptions(link, Lane::kReliable));
  Pacer pacer;
  CHECK_EQ(HeldUntil(network, link, reliable, pacer, 0), 0);  // priority: left to the routers
  link.queueing = Queueing::kFifo;
  network.Start(reliable, 1e6, 0);
  CHECK_EQ(HeldUntil(network, link, reliable, pacer, 0), kNever);
  std::vector<ConnectionId> completed;
  Time now = 0;
  while (completed.empty()) {
    now = network.NextEvent();
    network.Advance(now, &completed);
  }
  network.NextEvent();
  CHECK_NEAR(network.Ramp(reliable).Delivered(), kPayloadShare * 1e6, 1e3);
  // The bucket's 64 KiB are sent at once, then as much as the connection has delivered.
  std::size_t sent = 0;
  for (const Time end = now + kSecond; now < end;) {
    const Time until = HeldUntil(network, link, reliable, pacer, now);
    if (until > 0) {
      CHECK(until > now);
      now = until;
      continue;
    }
    pacer.Spend(10'000);
    sent += 10'000;
  }
  CHECK_NEAR(static_cast<double>(sent), Pacer::kBurst + kPayloadShare * 1e6, 25'000);
}

TEST(transfer_open_connections_need_no_handshake) {
  const std::vector<TransferEdge> edges{{12.5e6, 0.04}, {12.5e6, 0.04}};
  const std::vector<TransferRoute> routes{{{0}, {1}, 0.0}};
  const std::vector<net::Transfer> flows{{0, 1e4, 0.0}, {0, 1e4, 1.0}};
  TcpModel model;
  model.efficiency = 1.0;
  const auto fresh = TcpTransfers(edges, routes, flows, model);
  CHECK_NEAR(fresh[0], 0.08 + 0.0008 + 0.04, 1e-6);
  CHECK_NEAR(fresh[1], 1 + 0.08 + 0.0008 + 0.04, 1e-6);
  model.new_connections = false;
  const auto kept = TcpTransfers(edges, routes, flows, model);
  CHECK_NEAR(kept[0], 0.0008 + 0.04, 1e-6);
  // The second of two bursts is paced by ten segments per round trip.
  CHECK_NEAR(kept[1], 1 + PacedSeconds(1e4, 12.5e6, kInitialWindow / 0.08) + 0.04, 1e-6);
}
