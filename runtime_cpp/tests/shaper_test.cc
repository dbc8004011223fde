// Laws of the emulated network, on a clock of our own: messages leave when the model says, whoever looks
// late; they wait out what they must, and are lost for a reason.
#include "io/shaper.h"

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tests/check.h"

namespace geomx::io {
namespace {

TEST(shaper_keeps_the_models_times) {
  Shape shape;
  shape.edges = {{.course = 12.5e6, .delay = 20 * kMillisecond}};
  Shape::Path path;
  path.path = {0};
  path.window_limit = net::kInfinity;
  path.efficiency = 1.0;
  shape.paths[7] = path;
  shape.meters = {{.course = 1e6}};
  shape.arrivals[7] = {.meters = {0}, .efficiency = 1.0};
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
  // Nobody looks for a whole second: what left, left when the model says.
  shaper.Advance(start + kSecond, collect, next);
  CHECK_EQ(sent.size(), std::size_t{3});
  const auto meters = ArrivalMeters(shape);
  meters->SetOrigin(start);
  Time here = 0;
  for (std::size_t i = 0; i < sent.size(); ++i) {
    const Time left = start + static_cast<Time>(i + 1) * 10 * kMillisecond;
    CHECK_NEAR(static_cast<double>(sent[i].left), static_cast<double>(left), 10.0);
    CHECK_EQ(sent[i].arrives, sent[i].left + 20 * kMillisecond);
    // The shared edge on the way in is slower: 125 ms each, one after another.
    const Time before = here;
    const Time began = sent[i].arrives - 10 * kMillisecond;
    here = meters->Pass(7, 125'000, began, sent[i].arrives);
    CHECK_NEAR(here, (i == 0 ? began : before) + 125 * kMillisecond, 10.0);
  }
  CHECK_NEAR(static_cast<double>(shaper.Busy(7)), 30.0 * kMillisecond, 10.0);
}

TEST(shaper_follows_a_course_from_the_start_of_the_run) {
  // 1 MB/s, nothing from 2 s to 5 s, then 2 MB/s; the run starts at 7 s of the clock.
  net::Course course(1e6);
  course.SetTrace({{2 * kSecond, 0.0}, {5 * kSecond, 2e6}});
  Shape shape;
  shape.edges = {{.course = course, .delay = 10 * kMillisecond}};
  Shape::Path path;
  path.path = {0};
  path.window_limit = net::kInfinity;
  path.efficiency = 1.0;
  shape.paths[7] = path;
  shape.meters = {{.course = course}};
  shape.arrivals[7] = {.meters = {0}, .efficiency = 1.0};
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
  // On the way in the same: what comes while the edge is busy, or down, waits for its turn.
  const auto meters = ArrivalMeters(shape);
  meters->SetOrigin(origin);
  const auto pass = [&](double began_s, double ended_s) {
    const auto at = [&](double seconds) { return origin + static_cast<Time>(seconds * kSecond); };
    return static_cast<double>(meters->Pass(7, 1'000'000, at(began_s), at(ended_s)) - origin) /
           kSecond;
  };
  CHECK_NEAR(pass(0.0, 1.0), 1.0, 1e-7);
  CHECK_NEAR(pass(0.5, 1.0), 2.0, 1e-7);
  CHECK_NEAR(pass(1.0, 1.2), 5.5, 1e-7);
  CHECK_NEAR(pass(1.2, 1.3), 6.0, 1e-7);
  CHECK_NEAR(pass(8.0, 9.0), 9.0, 1e-7);
}

TEST(shaper_senders_at_one_site_share_its_access_link) {
  // Two nodes, each with a link's worth of messages, behind one access link of 1 MB/s.
  std::string path = std::filesystem::temp_directory_path() / "geomx_clocks_XXXXXX";
  const int file = mkstemp(path.data());
  CHECK(file >= 0 && ftruncate(file, 2 * sizeof(Clocks::Clock)) == 0);
  close(file);
  Shape shape;
  shape.edges = {{.course = 1e6, .delay = 10 * kMillisecond}};
  shape.paths[7] = {.path = {0}, .window_limit = net::kInfinity, .efficiency = 1.0};
  shape.meters = {{.course = 1e6, .clock = 1}};
  shape.departures[7] = {.meters = {0}, .efficiency = 1.0};
  shape.clocks = path;
  Shaper one(shape);
  Shaper other(shape);
  Message message;
  message.payload = Payload::Phantom(100'000 - kHeaderBytes);
  std::vector<double> left;
  const auto collect = [&](Shaper::Sent sent) {
    CHECK_EQ(sent.arrives, sent.left + 10 * kMillisecond);
    left.push_back(static_cast<double>(sent.left) / kSecond);
  };
  int alone = 4;
  const auto next = [&](NodeId, Lane) { return std::optional(message); };
  const auto few = [&](NodeId, Lane) { return --alone > 0 ? std::optional(message) : std::nullopt; };
  for (Shaper* shaper : {&one, &other}) shaper->SetOrigin(0);
  one.Start(7, Lane::kReliable, message, 0);
  other.Start(7, Lane::kReliable, message, 0);
  for (Time now = 0; now <= 2 * kSecond; now += kMillisecond) {
    one.Advance(now, collect, next);
    other.Advance(now, collect, few);
  }
  // Never idle, never faster than the link; the second sender's four messages took turns.
  CHECK_NEAR(static_cast<double>(left.size()), 20.0, 1.0);
  std::sort(left.begin(), left.end());
  for (std::size_t i = 0; i < left.size(); ++i) {
    CHECK_NEAR(left[i], 0.1 * static_cast<double>(i + 1), 2e-3);
  }
  CHECK_EQ(alone, 0);
  std::filesystem::remove(path);
}

TEST(shaper_meters_leave_a_link_alone_that_has_room) {
  // Two messages cross side by side, each at half the meter's rate: neither waits for the other.
  Shape shape;
  shape.meters = {{.course = 2e6}};
  shape.arrivals[7] = shape.arrivals[8] = {.meters = {0}, .efficiency = 1.0};
  const auto meters = ArrivalMeters(shape);
  meters->SetOrigin(0);
  for (Time begin = 0; begin < 5 * kSecond; begin += kSecond) {
    CHECK_EQ(meters->Pass(7, 1'000'000, begin, begin + kSecond), begin + kSecond);
    CHECK_EQ(meters->Pass(8, 1'000'000, begin, begin + kSecond), begin + kSecond);
  }
}

TEST(shaper_queues_hold_datagrams_only_so_long) {
  // 1 MB/s. A connection keeps the edge busy for a second; the datagram behind it takes 0.1 s alone.
  const auto run = [](Time queue, bool beside) {
    Shape shape;
    shape.edges = {{.course = 1e6}};
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

TEST(shaper_jitter_is_even_and_keeps_order) {
  constexpr int kMessages = 4000;
  constexpr Time kDelay = 5 * kMillisecond, kJitter = 8 * kMillisecond;
  for (const Lane lane : {Lane::kReliable, Lane::kBestEffort}) {
    Shape shape;
    shape.seed = 11;
    shape.edges = {{.course = 1e6, .delay = kDelay}};
    shape.paths[7] = {
        .path = {0}, .window_limit = net::kInfinity, .efficiency = 1.0, .jitter = kJitter};
    Shaper shaper(shape);
    Message message;
    message.payload = Payload::Phantom(100'000 - kHeaderBytes);  // 0.1 s apart: no reordering
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
