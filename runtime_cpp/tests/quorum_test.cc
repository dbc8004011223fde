// Global rounds that close without parties that are late (GlobalRounds::quorum, deadline).
#include "tests/cluster.h"

namespace geomx {
namespace {

using check::Cluster;
using check::Plan;

constexpr std::uint32_t kPair = 2;

Plan QuorumOfTwo() {
  Plan plan;
  plan.continues = true;
  plan.parties = {1, 1, 1};
  plan.rounds.quorum = 2;
  plan.rounds.deadline = kSecond;
  return plan;
}

// Three parties of one worker, with the initial value.
struct ThreeParties : Cluster {
  explicit ThreeParties(std::uint64_t seed) : Cluster(seed, QuorumOfTwo()) {
    Declare(0, kPair, {{.elements = kPair}});
    Init(0, {0, 0});
    RequestAll(0);
    Drive();
  }
  void PushOf(std::size_t worker, float value, bool last = false) {
    Push(workers[worker], 0, {value, -value}, last);
  }
  std::size_t Rounds() const { return Events(globals.front(), Event::Kind::kUpdated).size(); }
  bool Holds(std::size_t worker, float value) { return Value(workers[worker], 0) == std::vector{value, -value}; }
  Round Reached(std::size_t worker) {
    Round reached = 0;
    Do(workers[worker], [&reached](Node& node, Time) { reached = node.worker().Reached(0); });
    return reached;
  }
};

TEST(ARoundClosesAtTheDeadlineAfterTheQuorum) {
  ThreeParties run(1);
  run.PushOf(0, 2);
  run.Drive(10 * kSecond);
  CHECK_EQ(run.Rounds(), 0u);  // one party is no quorum
  run.PushOf(1, 4);
  run.Drive(kSecond / 2);
  CHECK_EQ(run.Rounds(), 0u);
  run.Drive(kSecond);
  CHECK_EQ(run.Rounds(), 1u);
  CHECK(run.Holds(0, 9) && run.Holds(1, 9));  // (2 + 4) * 3 / 2
  CHECK(run.Holds(2, 0));
  check::CheckNoErrors(run);
}

TEST(AllPartiesCloseARoundAtOnce) {
  ThreeParties run(2);
  for (std::size_t worker = 0; worker < 3; ++worker) run.PushOf(worker, 2);
  run.Drive();
  CHECK_EQ(run.Rounds(), 1u);
  CHECK(run.Holds(0, 6) && run.Holds(2, 6));
}

TEST(ALateContributionIsAnsweredAtOnceAndCountsOnceInTheNextRound) {
  ThreeParties run(3);
  run.PushOf(0, 2);
  run.PushOf(1, 4);
  run.Drive(2 * kSecond);
  run.PushOf(0, 1);
  run.PushOf(1, 1);
  run.Drive(2 * kSecond);
  CHECK_EQ(run.Rounds(), 2u);
  run.PushOf(2, 8);  // for round 1
  run.Drive();
  CHECK(run.Holds(2, 3));  // the value of round 2
  CHECK_EQ(run.Reached(2), 2u);
  CHECK_EQ(run.Rounds(), 2u);
  for (std::size_t worker = 0; worker < 3; ++worker) run.PushOf(worker, 4);
  run.Drive();
  CHECK_EQ(run.Rounds(), 3u);
  CHECK(run.Holds(0, 15) && run.Holds(2, 15));  // (4 + 4 + 4 + 8) * 3 / 4
  CHECK_EQ(run.Reached(2), 3u);
  const auto partial = run.Events(run.globals.front(), Event::Kind::kPartial);
  CHECK_EQ(partial.size(), 3u);
  CHECK(partial.back().values.empty());
  CHECK(partial.back().late == (std::vector<std::pair<NodeId, Round>>{{run.servers[2], 1}}));
  CHECK_EQ(partial.back().workers, 4u);
  check::CheckNoErrors(run);
}

TEST(PartiesThatHaveMadeTheirLastPushAreNotWaitedFor) {
  ThreeParties run(4);
  run.PushOf(0, 2, true);
  run.PushOf(1, 4, true);
  run.Drive(2 * kSecond);
  run.PushOf(2, 5, true);
  run.Drive();
  CHECK_EQ(run.Rounds(), 2u);
  CHECK(run.Holds(2, 15));  // 5 * 3
  CHECK_EQ(run.Reached(2), 2u);
  check::CheckNoErrors(run);
}

TEST(ASecondPushInOneRoundIsRefusedWithAQuorumAsWell) {
  ThreeParties run(5);
  run.PushOf(0, 2);
  run.Drive();
  run.Deliver(run.servers[0], run.globals.front(), check::Transfer(Kind::kPush, run.servers[0], 2, kPair));
  run.Drive();
  CHECK_EQ(run.Events(run.globals.front(), Event::Kind::kPeerError).size(), 1u);
}

}  // namespace
}  // namespace geomx
