// Links that outlive their connections (core/link.h), separately and in clusters.
//
// Runs long, so it is optimised.
#include "core/link.h"

#include <set>

#include "tests/random_pairs.h"
#include "tests/training.h"

namespace geomx {
namespace {

using check::Chance;
using check::Cluster;
using check::Plan;
using check::RandomPairs;
using check::Train;

// Trains while connections break with these probabilities; counts the breaks.
std::vector<std::vector<float>> TrainOver(const check::Carriers::Chances& chances, std::uint64_t seed,
                                          const Plan& plan, bool integers, std::uint64_t& broken) {
  return Train(
      seed, plan, integers, [&](Cluster& cluster) { cluster.BreakConnections(chances); },
      [&](Cluster& cluster) { broken += cluster.carriers()->broken; });
}

TEST(AnOutboxKeepsUnacknowledgedMessages) {
  Outbox<int> outbox;
  for (int i = 0; i < 5; ++i) outbox.Add(i, i != 2);  // 2 is best effort
  for (int i = 0; i < 4; ++i) outbox.Leave();
  CHECK_EQ(outbox.kept(), 3u);  // 0, 1, 3
  CHECK_EQ(outbox.unsent(), 1u);
  CHECK(outbox.Acknowledge(1));
  CHECK(!outbox.Acknowledge(4));  // the fourth numbered message has not been sent
  CHECK(outbox.Acknowledge(0));   // an older acknowledgement
  CHECK_EQ(outbox.kept(), 2u);
  CHECK(!outbox.Restart(9).has_value());
  CHECK(outbox.Restart(2) == std::optional<std::uint32_t>(2));
  CHECK_EQ(outbox.kept(), 0u);
  CHECK_EQ(outbox.unsent(), 2u);
  CHECK_EQ(outbox.At(0), 3);
  CHECK_EQ(outbox.At(1), 4);
  CHECK(!outbox.AllReceived());
  outbox.Leave();
  outbox.Leave();
  CHECK(outbox.Acknowledge(4));
  outbox.Add(5, false);  // a heartbeat, for example
  CHECK(outbox.AllReceived());
}

TEST(OnlyTheLatestAttemptCarriesALink) {
  Link<int> caller, called;
  const Greeting first = caller.Call(), second = caller.Call();
  Greeting answer, late;
  CHECK(called.Answer(second, answer) == LinkOutcome::kCarried);
  CHECK(called.Answer(first, late) == LinkOutcome::kLate);
  CHECK(caller.Answered(answer) == LinkOutcome::kCarried);
  CHECK(caller.Answered(answer) == LinkOutcome::kLate);
  Greeting invented = caller.Call();
  invented.received = 7;  // more than was ever sent
  CHECK(called.Answer(invented, answer) == LinkOutcome::kMismatch);
}

// A resumed process counts its attempts from 1; those of its predecessor are refused from then on.
TEST(ALaterIncarnationCarriesTheLink) {
  Link<int> before, called;
  before.incarnation = 1;
  Greeting answer;
  const Greeting late = (before.Call(), before.Call(), before.Call());
  CHECK(called.Answer(before.Call(), answer) == LinkOutcome::kCarried);
  called.outbox.Add(7, true);
  called.outbox.Leave();
  Link<int> after;
  after.incarnation = 2;
  CHECK(after.arrivals.Take());
  CHECK(called.Answer(after.Call(), answer) == LinkOutcome::kCarried);
  CHECK(after.Answered(answer) == LinkOutcome::kCarried);
  CHECK_EQ(called.outbox.kept(), 0u);
  CHECK(called.Answer(late, answer) == LinkOutcome::kLate);
  CHECK(called.Answer(before.Call(), answer) == LinkOutcome::kLate);
}

// A process whose journal lacks its end claims less than it had acknowledged or sent.
TEST(LostEndsOfJournalsAreDetected) {
  const auto pair = [](Link<int>& caller, Link<int>& called) {
    for (Link<int>* link : {&caller, &called}) {
      for (int i = 0; i < 3; ++i) link->outbox.AddLeft(i);
      for (int i = 0; i < 3; ++i) link->arrivals.Take();
    }
    CHECK(caller.outbox.Acknowledge(3) && called.outbox.Acknowledge(3));
  };
  for (const bool caller_forgets : {true, false}) {
    for (const bool sent : {true, false}) {  // loses its sent, or else its received messages
      Link<int> caller, called;
      pair(caller, called);
      Link<int>& one = caller_forgets ? caller : called;
      one = {};
      one.outbox.Begin(sent ? 1 : 3);
      one.arrivals.Begin(sent ? 3 : 1);
      Greeting answer;
      const LinkOutcome first = called.Answer(caller.Call(), answer);
      const LinkOutcome outcome = first == LinkOutcome::kCarried ? caller.Answered(answer) : first;
      CHECK(outcome == LinkOutcome::kMismatch || outcome == LinkOutcome::kForgot);
      CHECK_EQ(outcome == LinkOutcome::kMismatch, sent);
    }
  }
}

// ---- clusters ----

// With breaks at any time, every message is delivered once and in order, so that values, barriers and
// the end of the run equal those of an undisturbed run.
TEST(BrokenConnectionsDoNotChangeResults) {
  std::uint64_t broken = 0;
  check::ForSeeds(120, [&](std::uint64_t seed) {
    check::Random random(seed);
    const Plan plan = check::AnyPlan(random);
    const check::Carriers::Chances chances{.breaks = Chance(random, 0.5) ? 0.02 : 0.2,
                                           .calls = Chance(random, 0.5) ? 0.0 : 0.05};
    CHECK(TrainOver(chances, seed, plan, false, broken) == Train(seed, plan, false));
  });
  CHECK(broken > 100);
}

// In overlays the order of additions depends on time, so these use integers, whose sums are exact.
TEST(BrokenConnectionsDoNotChangeResultsOfOverlays) {
  std::uint64_t broken = 0;
  check::ForSeeds(40, [&](std::uint64_t seed) {
    check::Random random(seed);
    Plan plan;
    plan.parties = {3, 1, 2};
    plan.frame_bytes = 128;
    plan.coordinator = [] { return std::make_shared<RandomPairs>(); };
    CHECK(TrainOver({.breaks = 0.05, .calls = 0.02}, seed, plan, true, broken) ==
          Train(seed, plan, true));
  });
  CHECK(broken > 100);
}

}  // namespace
}  // namespace geomx
