// Laws of the emulated network, with a simulated clock: messages are sent at the times of the model,
// even if the shaper is called late; outages, shared edges, loss, and jitter.
#include "io/shaper.h"

#include <stdlib.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/check.h"

namespace geomx::io {
namespace {

TEST(shaper_sends_at_the_models_times) {
  Shape shape;
  shape.edges = {{.schedule = 12.5e6, .delay = 20 * kMillisecond}};
  Shape::Path path;
  path.path = {0};
  path.window_limit = net::kInfinity;
  path.efficiency = 1.0;
  shape.paths[7] = path;
  Shaper shaper(shape);
  const auto message = [](std::size_t bytes) {
    Message made;
    made.payload = Payload::Phantom(bytes - kHeaderBytes);
    return made;
  };
  const Time start = 5 * kSecond;
  std::vector<Shaper::Sent> sent;
  int more = 2;
  const auto next = [&](NodeId, Lane) {
    return more-- > 0 ? std::optional(message(125'000)) : std::nullopt;
  };
  const auto collect = [&](Shaper::Sent each) { sent.push_back(std::move(each)); };
  shaper.Advance(start, collect, next);
  CHECK(shaper.Shapes(7, Lane::kReliable) && !shaper.Shapes(8, Lane::kReliable));
  shaper.Start(7, Lane::kReliable, message(125'000), start);
  // After a second without calls, messages have the model's times.
  shaper.Advance(start + kSecond, collect, next);
  CHECK_EQ(sent.size(), std::size_t{3});
  for (std::size_t i = 0; i < sent.size(); ++i) {
    const Time left = start + static_cast<Time>(i + 1) * 10 * kMillisecond;
    CHECK_NEAR(static_cast<double>(sent[i].left), static_cast<double>(left), 10.0);
    CHECK_EQ(sent[i].arrives, sent[i].left + 20 * kMillisecond);
  }
  CHECK_NEAR(static_cast<double>(shaper.Busy(7)), 30.0 * kMillisecond, 10.0);
}

TEST(shaper_follows_a_schedule_from_the_start_of_the_run) {
  // 1 MB/s, nothing from 2 s to 5 s, then 2 MB/s; the run starts at 7 s of the clock.
  net::BandwidthSchedule schedule(1e6);
  schedule.SetTrace({{2 * kSecond, 0.0}, {5 * kSecond, 2e6}});
  Shape shape;
  shape.edges = {{.schedule = schedule, .delay = 10 * kMillisecond}};
  Shape::Path path;
  path.path = {0};
  path.window_limit = net::kInfinity;
  path.efficiency = 1.0;
  shape.paths[7] = path;
  Message megabyte;
  megabyte.payload = Payload::Phantom(1'000'000 - kHeaderBytes);
  const Time origin = 7 * kSecond;
  Shaper shaper(shape);
  std::vector<Time> left;
  int more = 3;
  const auto collect = [&](Shaper::Sent sent) { left.push_back(sent.left - origin); };
  const auto next = [&](NodeId, Lane) {
    return more-- > 0 ? std::optional(megabyte) : std::nullopt;
  };
  shaper.Advance(origin + kSecond / 2, collect, next);
  shaper.SetOrigin(origin);
  shaper.Start(7, Lane::kReliable, megabyte, origin + kSecond / 2);
  for (Time now = origin; now < origin + 10 * kSecond; now += 700 * kMillisecond) {
    if (now > origin + kSecond / 2) shaper.Advance(now, collect, next);
  }
  const std::vector<double> expected = {1.5, 5.25, 5.75, 6.25};
  CHECK_EQ(left.size(), expected.size());
  for (std::size_t i = 0; i < left.size(); ++i) {
    CHECK_NEAR(static_cast<double>(left[i]) / kSecond, expected[i], 1e-7);
  }
}

TEST(usage_table_shares_are_fair) {
  CHECK_EQ(FairShare(10, 1, {}), 10.0);
  CHECK_EQ(FairShare(10, 1, {{1, 2}}), 8.0);
  CHECK_EQ(FairShare(10, 1, {{1, 9}}), 5.0);
  CHECK_NEAR(FairShare(10, 1, {{1, net::kInfinity}, {1, 1}}), 4.5, 1e-12);
  CHECK_NEAR(FairShare(10, 3, {{1, net::kInfinity}, {1, 1}}), 6.75, 1e-12);
  CHECK_EQ(FairShare(0, 1, {{1, 1}}), 0.0);
  CHECK_EQ(FairShare(net::kInfinity, 1, {{1, net::kInfinity}}), net::kInfinity);
}

// A file of zeros for `slots` nodes and `rows` edges, removed with this object.
class UsageFile {
 public:
  UsageFile(std::size_t rows, std::size_t slots)
      : path(std::filesystem::temp_directory_path() / "geomx_usage_XXXXXX") {
    const int file = mkstemp(path.data());
    CHECK(file >= 0 &&
          ftruncate(file, static_cast<off_t>(UsageTable::FileBytes(rows, slots))) == 0);
    close(file);
  }
  ~UsageFile() { std::filesystem::remove(path); }
  std::string path;
};

TEST(shaper_senders_share_an_edge_as_in_a_single_model) {
  // Three senders over an edge of 3 MB/s, one limited to 0.6 MB/s elsewhere, and one that sends at times.
  // They have the rates of a single model of all, except for the interval between two updates.
  constexpr std::size_t kBytes = 30'000;
  const UsageFile file(4, 3);
  Message message;
  message.payload = Payload::Phantom(kBytes - kHeaderBytes);
  std::vector<std::unique_ptr<Shaper>> senders;
  std::array<int, 3> left{};
  net::FlowNetwork whole;
  const net::EdgeId common = whole.AddEdge(3e6, 0), narrow = whole.AddEdge(0.6e6, 0);
  std::array<int, 3> expected{};
  for (std::size_t slot = 0; slot < 3; ++slot) {
    Shape shape;
    shape.edges = {{.schedule = slot == 0 ? 0.6e6 : 100e6}, {.schedule = 3e6}};
    Shape::Path path;
    path.path = {0, 1};
    path.window_limit = net::kInfinity;
    path.efficiency = 1.0;
    shape.paths[7] = path;
    shape.shared = {{1, 2}};
    shape.usage_file = file.path;
    shape.slots = 3;
    shape.slot = slot;
    senders.push_back(std::make_unique<Shaper>(shape));
    senders.back()->SetOrigin(0);
    path.path = slot == 0 ? std::vector{narrow, common} : std::vector{common};
    whole.AddConnection(net::LaneOptions(path, Lane::kReliable));
  }
  const auto wanted = [&](std::size_t slot, Time now) {
    return slot < 2 || (now >= kSecond && now < 2 * kSecond);
  };
  std::vector<net::ConnectionId> completed;
  for (Time now = 0; now < 3 * kSecond; now += kMillisecond / 4) {
    while (whole.NextEvent() <= now) {
      const Time at = whole.NextEvent();
      completed.clear();
      whole.Advance(at, &completed);
      for (const net::ConnectionId done : completed) {
        ++expected[done];
        if (wanted(done, at)) whole.Start(done, kBytes, at);
      }
    }
    for (std::size_t slot = 0; slot < 3; ++slot) {
      senders[slot]->Advance(
          now, [&](const Shaper::Sent&) { ++left[slot]; },
          [&](NodeId, Lane) { return wanted(slot, now) ? std::optional(message) : std::nullopt; });
      if (!wanted(slot, now)) continue;
      if (senders[slot]->Idle(7, Lane::kReliable)) {
        senders[slot]->Start(7, Lane::kReliable, message, now);
      }
      if (!whole.Busy(static_cast<net::ConnectionId>(slot))) {
        whole.Start(static_cast<net::ConnectionId>(slot), kBytes, now);
      }
    }
  }
  for (std::size_t slot = 0; slot < 3; ++slot) CHECK_NEAR(left[slot], expected[slot], 4.0);
  CHECK_NEAR(expected[2], 40.0, 2.0);  // 1.2 MB/s for one second
}

// A process that was killed or stopped in the midst of a message says no more that it sends.
TEST(shaper_senders_that_are_gone_leave_their_share) {
  const UsageFile file(1, 2);
  Message message;
  std::vector<std::unique_ptr<Shaper>> senders;
  for (std::size_t slot = 0; slot < 2; ++slot) {
    Shape shape;
    shape.edges = {{.schedule = 1e6}};
    shape.paths[7] = {.path = {0}, .window_limit = net::kInfinity, .efficiency = 1.0};
    shape.shared = {{0, 0}};
    shape.usage_file = file.path;
    shape.slots = 2;
    shape.slot = slot;
    senders.push_back(std::make_unique<Shaper>(shape));
    message.payload = Payload::Phantom((slot == 0 ? 100'000'000 : 10'000) - kHeaderBytes);
    senders.back()->Start(7, Lane::kReliable, message, kSecond);
  }
  Time now = kSecond;
  // Returns the bytes that the second sender has sent until then.
  const auto sent_until = [&](Time end, bool both) {
    double bytes = 0;
    for (; now < end; now += kMillisecond) {
      if (both) senders[0]->Advance(now, [](const Shaper::Sent&) {}, [](NodeId, Lane) { return std::nullopt; });
      senders[1]->Advance(
          now, [&](const Shaper::Sent& sent) { bytes += static_cast<double>(sent.message.wire_bytes()); },
          [&](NodeId, Lane) { return std::optional(message); });
    }
    return bytes;
  };
  CHECK_NEAR(sent_until(2 * kSecond, true), 0.5e6, 0.03e6);
  sent_until(3 * kSecond, false);  // until it is noticed
  CHECK_NEAR(sent_until(4 * kSecond, false), 1e6, 0.03e6);
}

TEST(shaper_waits_for_the_end_of_an_outage_of_a_shared_edge) {
  // 1 MB/s behind an unlimited edge, both down from the start until 2 s, for two senders of a megabyte
  // each.
  const UsageFile file(2, 2);
  net::BandwidthSchedule schedule(1e6), unlimited;
  schedule.AddOutage(0, 2 * kSecond);
  unlimited.AddOutage(0, 2 * kSecond);
  Message megabyte;
  megabyte.payload = Payload::Phantom(1'000'000 - kHeaderBytes);
  std::vector<std::unique_ptr<Shaper>> senders;
  for (std::size_t slot = 0; slot < 2; ++slot) {
    Shape shape;
    shape.edges = {{.schedule = schedule, .delay = 10 * kMillisecond}, {.schedule = unlimited}};
    Shape::Path path;
    path.path = {0, 1};
    path.window_limit = net::kInfinity;
    path.efficiency = 1.0;
    shape.paths[7] = path;
    shape.shared = {{0, 0}, {1, 1}};
    shape.usage_file = file.path;
    shape.slots = 2;
    shape.slot = slot;
    senders.push_back(std::make_unique<Shaper>(shape));
    senders.back()->SetOrigin(0);
    senders.back()->Start(7, Lane::kReliable, megabyte, 0);
  }
  std::vector<Time> left;
  for (Time now = 0; now < 6 * kSecond; now += kMillisecond) {
    for (const auto& sender : senders) {
      sender->Advance(
          now, [&](const Shaper::Sent& sent) { left.push_back(sent.left); },
          [](NodeId, Lane) { return std::nullopt; });
    }
  }
  CHECK_EQ(left.size(), std::size_t{2});
  for (const Time each : left) CHECK_NEAR(static_cast<double>(each) / kSecond, 4.0, 0.05);
}

TEST(shaper_queues_drop_datagrams_above_their_limit) {
  // 1 MB/s. A connection keeps the edge busy for a second; the datagram behind it takes 0.1 s alone.
  const auto run = [](Time queue, bool beside) {
    Shape shape;
    shape.edges = {{.schedule = 1e6}};
    shape.paths[7] = {.path = {0}, .window_limit = net::kInfinity, .efficiency = 1.0, .queue = queue};
    Shaper shaper(shape);
    const auto message = [](std::size_t bytes) {
      Message made;
      made.payload = Payload::Phantom(bytes - kHeaderBytes);
      return made;
    };
    std::vector<Shaper::Sent> datagrams;
    const auto collect = [&](Shaper::Sent sent) {
      if (sent.lane == Lane::kBestEffort) datagrams.push_back(std::move(sent));
    };
    if (beside) shaper.Start(7, Lane::kReliable, message(1'000'000), 0);
    shaper.Start(7, Lane::kBestEffort, message(100'000), 0);
    shaper.Advance(3 * kSecond, collect, [](NodeId, Lane) { return std::nullopt; });
    CHECK_EQ(datagrams.size(), std::size_t{1});
    CHECK_NEAR(static_cast<double>(datagrams[0].left) / kSecond, beside ? 1.1 : 0.1, 1e-6);
    return datagrams[0].lost;
  };
  CHECK(!run(kNever, true));
  CHECK(!run(0, false));
  CHECK(!run(kSecond, true));
  CHECK(run(kSecond - kMillisecond, true));
  CHECK(run(0, true));
}

// As in a simulation: of two datagrams that share 1 MB/s, each takes 0.2 s, and would take 0.1 s alone.
TEST(shaper_queues_of_shared_edges_count_their_whole_bandwidth) {
  for (const Time queue : {kSecond / 20, kSecond / 5}) {
    const UsageFile file(1, 2);
    std::vector<std::unique_ptr<Shaper>> senders;
    Message datagram;
    datagram.payload = Payload::Phantom(100'000 - kHeaderBytes);
    for (std::size_t slot = 0; slot < 2; ++slot) {
      Shape shape;
      shape.edges = {{.schedule = 1e6}};
      shape.paths[7] = {.path = {0}, .efficiency = 1.0, .queue = queue};
      shape.shared = {{0, 0}};
      shape.usage_file = file.path;
      shape.slots = 2;
      shape.slot = slot;
      senders.push_back(std::make_unique<Shaper>(shape));
      senders.back()->Start(7, Lane::kBestEffort, datagram, 0);
    }
    int left = 0;
    for (Time now = 0; now < kSecond; now += kMillisecond) {
      for (const auto& sender : senders) {
        sender->Advance(
            now,
            [&](const Shaper::Sent& sent) {
              ++left;
              CHECK_EQ(sent.lost, queue < kSecond / 10);
            },
            [](NodeId, Lane) { return std::nullopt; });
      }
    }
    CHECK_EQ(left, 2);
  }
}

TEST(shaper_jitter_is_uniform_and_keeps_order) {
  constexpr int kMessages = 4000;
  constexpr Time kDelay = 5 * kMillisecond, kJitter = 8 * kMillisecond;
  for (const Lane lane : {Lane::kReliable, Lane::kBestEffort}) {
    Shape shape;
    shape.seed = 11;
    shape.edges = {{.schedule = 1e6, .delay = kDelay}};
    shape.paths[7] = {
        .path = {0}, .window_limit = net::kInfinity, .efficiency = 1.0, .jitter = kJitter};
    Shaper shaper(shape);
    Message message;
    message.payload = Payload::Phantom(100'000 - kHeaderBytes);  // 0.1 s apart, so that jitter cannot reorder
    int more = kMessages - 1;
    double sum = 0.0, last = 0.0;
    int seen = 0;
    shaper.Start(7, lane, message, 0);
    shaper.Advance(
        kMessages * kSecond,
        [&](Shaper::Sent sent) {
          const auto late = static_cast<double>(sent.arrives - sent.left - kDelay);
          CHECK(late >= 0.0 && late <= static_cast<double>(kJitter));
          CHECK(static_cast<double>(sent.arrives) >= last);
          last = static_cast<double>(sent.arrives);
          sum += late;
          ++seen;
        },
        [&](NodeId, Lane) { return more-- > 0 ? std::optional(message) : std::nullopt; });
    CHECK_EQ(seen, kMessages);
    CHECK_NEAR(sum / kMessages / static_cast<double>(kJitter), 0.5, 0.02);
  }
}

}  // namespace
}  // namespace geomx::io
