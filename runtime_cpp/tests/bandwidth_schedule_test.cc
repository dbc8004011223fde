// Laws of bandwidth schedules: Next returns every change, Finish inverts the integral, and results do
// not depend on earlier calls.
#include "net/bandwidth_schedule.h"

#include <cmath>
#include <functional>

#include "tests/check.h"
#include "tests/seeds.h"

namespace geomx::net {
namespace {

using check::Between;
using check::Chance;
using check::Random;

Time Milliseconds(std::uint64_t count) { return static_cast<Time>(count) * kMillisecond; }

BandwidthSchedule Drawn(Random& random) {
  BandwidthSchedule schedule(static_cast<double>(Between(random, 1, 1000)) * 1e4);
  if (Chance(random, 0.5)) {
    std::vector<std::pair<Time, double>> trace;
    Time at = Milliseconds(Between(random, 0, 300));
    for (std::uint64_t left = Between(random, 1, 8); left > 0; --left) {
      const bool down = left > 1 && Chance(random, 0.3);
      trace.emplace_back(at, down ? 0.0 : static_cast<double>(Between(random, 1, 100)) * 1e5);
      at += Milliseconds(Between(random, 1, 400));
    }
    schedule.SetTrace(trace);
  } else if (Chance(random, 0.7)) {
    schedule.SetRedraw(Milliseconds(Between(random, 1, 200)), 1e5, 9e6, random());
  }
  for (std::uint64_t left = Between(random, 0, 2); left > 0; --left) {
    const Time start = Milliseconds(Between(random, 0, 900));
    schedule.AddOutage(start, start + Milliseconds(Between(random, 1, 300)));
  }
  if (Chance(random, 0.3)) schedule.AddOutage(Milliseconds(50), Milliseconds(80), Milliseconds(120));
  if (Chance(random, 0.3)) schedule.AddFailures(Milliseconds(100), Milliseconds(30), random());
  return schedule;
}

TEST(schedule_changes_only_at_the_announced_times) {
  check::ForSeeds(60, [](std::uint64_t seed) {
    Random random(seed);
    BandwidthSchedule schedule = Drawn(random), other = schedule;
    Time at = 0;
    while (at < 3 * kSecond) {
      const Time next = schedule.Next(at);
      CHECK(next > at);
      const double rate = schedule.At(at);
      const Time span = std::min(next, 3 * kSecond) - at;
      for (int i = 0; i < 4; ++i) {
        const Time inside = at + static_cast<Time>(Between(random, 0, static_cast<std::uint64_t>(span) - 1));
        CHECK_EQ(schedule.At(inside), rate);
        CHECK_EQ(schedule.Next(inside), next);
      }
      if (next == kNever) break;
      at = next;
    }
    // A new object, queried from the end, has the same values.
    for (int i = 0; i < 20; ++i) {
      const Time time = Milliseconds(3000 - Between(random, 0, 3000));
      CHECK_EQ(other.At(time), schedule.At(time));
    }
  });
}

TEST(schedule_finishes_when_the_integral_equals_the_bytes) {
  check::ForSeeds(60, [](std::uint64_t seed) {
    Random random(seed);
    BandwidthSchedule schedule = Drawn(random);
    const Time from = Milliseconds(Between(random, 0, 1000));
    const double bytes = static_cast<double>(Between(random, 1, 3'000'000));
    const Time finish = schedule.Finish(from, bytes);
    double passed = 0.0;
    for (Time at = from; at < finish;) {
      const Time end = std::min(schedule.Next(at), finish);
      passed += schedule.At(at) * static_cast<double>(end - at) / kSecond;
      at = end;
    }
    CHECK_NEAR(passed, bytes, 0.02);  // one nanosecond at the largest bandwidth
  });
}

TEST(schedule_carries_inverts_finish) {
  BandwidthSchedule schedule(10.0);
  schedule.SetTrace({{kSecond, 4.0}, {5 * kSecond, 20.0}});
  schedule.AddOutage(2 * kSecond, 3 * kSecond, 7 * kSecond);
  CHECK_EQ(schedule.Carries(0), 0.0);
  CHECK_NEAR(schedule.Carries(6 * kSecond), 10.0 + 3 * 4.0 + 20.0, 1e-9);
  for (const double bytes : {1.0, 14.5, 42.0, 500.0}) {
    CHECK_NEAR(schedule.Carries(schedule.Finish(0, bytes)), bytes, 1e-6);
  }
  CHECK_EQ(BandwidthSchedule(kInfinity).Carries(kSecond), kInfinity);
}

TEST(schedule_redraws_are_uniform_and_differ_by_stream) {
  BandwidthSchedule one(1.0), same(1.0), other(1.0);
  one.SetRedraw(kSecond, 20.0, 155.0, 7);
  same.SetRedraw(kSecond, 20.0, 155.0, 7);
  other.SetRedraw(kSecond, 20.0, 155.0, 8);
  constexpr int kDraws = 20'000;
  double sum = 0.0, squares = 0.0, product = 0.0;
  for (int i = 0; i < kDraws; ++i) {
    const double rate = one.At(i * kSecond);
    CHECK(rate >= 20.0 && rate < 155.0);
    CHECK_EQ(rate, same.At(i * kSecond + kSecond / 3));
    const double centred = rate - 87.5;
    sum += centred;
    squares += centred * centred;
    product += centred * (other.At(i * kSecond) - 87.5);
  }
  const double variance = 135.0 * 135.0 / 12.0;
  CHECK_NEAR(sum / kDraws, 0.0, 4 * std::sqrt(variance / kDraws));
  CHECK_NEAR(squares / kDraws / variance, 1.0, 0.03);
  CHECK_NEAR(product / kDraws / variance, 0.0, 4 / std::sqrt(kDraws));
}

TEST(schedule_failures_have_the_mean_duration) {
  BandwidthSchedule schedule(1.0);
  schedule.AddFailures(9 * kSecond, kSecond, 3);
  constexpr int kTurns = 20'000;
  Time at = 0, down = 0;
  for (int i = 0; i < kTurns; ++i) {
    const Time next = schedule.Next(at);
    if (schedule.At(at) == 0.0) down += next - at;
    at = next;
  }
  CHECK_NEAR(static_cast<double>(down) / static_cast<double>(at), 0.1, 0.005);
  CHECK_NEAR(static_cast<double>(at) / kSecond / kTurns, 5.0, 0.2);
}

TEST(schedule_refuses_permanent_outages) {
  const std::vector<std::function<void(BandwidthSchedule&)>> wrong = {
      [](BandwidthSchedule& schedule) { schedule.SetTrace({{0, 5.0}, {kSecond, 0.0}}); },
      [](BandwidthSchedule& schedule) { schedule.SetTrace({{kSecond, 5.0}, {kSecond, 6.0}}); },
      [](BandwidthSchedule& schedule) { schedule.SetTrace({{0, -1.0}}); },
      [](BandwidthSchedule& schedule) { schedule.SetRedraw(0, 1.0, 2.0, 0); },
      [](BandwidthSchedule& schedule) { schedule.SetRedraw(kSecond, 0.0, 2.0, 0); },
      [](BandwidthSchedule& schedule) { schedule.SetRedraw(kSecond, 3.0, 2.0, 0); },
      [](BandwidthSchedule& schedule) { schedule.AddOutage(kSecond, kSecond); },
      [](BandwidthSchedule& schedule) { schedule.AddOutage(0, kNever); },
      [](BandwidthSchedule& schedule) { schedule.AddOutage(0, kSecond, kSecond); },
      [](BandwidthSchedule& schedule) {
        schedule.AddOutage(0, 1, 2);
        schedule.AddOutage(1, 2, 2);
      },
      [](BandwidthSchedule& schedule) { schedule.AddFailures(0, kSecond, 0); },
  };
  for (const auto& each : wrong) {
    BandwidthSchedule schedule(1.0);
    bool refused = false;
    try {
      each(schedule);
    } catch (const std::invalid_argument&) {
      refused = true;
    }
    CHECK(refused);
  }
}

// Times drawn with very large means must remain valid.
TEST(schedule_failures_of_any_mean_are_valid_times) {
  BandwidthSchedule schedule(1.0);
  schedule.AddFailures(Nanoseconds(1e9), Nanoseconds(1e9), 7);
  Time time = 0;
  for (int i = 0; i < 100 && time != kNever; ++i) {
    const Time next = schedule.Next(time);
    CHECK(next > time);
    time = next;
  }
  CHECK_EQ(time, kNever);
}

TEST(schedule_refuses_nan) {
  CHECK_EQ(Nanoseconds(1.5), 3 * kSecond / 2);
  CHECK_EQ(Nanoseconds(INFINITY), Time{1'000'000'000} * kSecond);
  CHECK_EQ(Nanoseconds(-INFINITY), Time{-1'000'000'000} * kSecond);
  bool refused = false;
  try {
    Nanoseconds(NAN);
  } catch (const std::invalid_argument&) {
    refused = true;
  }
  CHECK(refused);
}

}  // namespace
}  // namespace geomx::net
