// ESync's state server: planned steps, missing reports, and late reports. Clusters are tested in
// Python.
#include <cmath>
#include <initializer_list>
#include <map>
#include <vector>

#include "core/natives.h"
#include "tests/check.h"
#include "tests/seeds.h"

namespace geomx {
namespace {

constexpr double kTimeoutS = 30;

Options Defaults(double members) {
  return {{"members", members}, {"local_steps", 1}, {"most", 1000}, {"epsilon_s", 0.001},
          {"timeout_s", kTimeoutS}};
}

std::shared_ptr<Coordinator> Make(const Options& options) {
  return NativeCoordinators::Instance().Create("esync", options);
}

Time At(double seconds) { return static_cast<Time>(std::llround(seconds * kSecond)); }

using Steps = std::map<NodeId, double>;

Steps Read(const std::vector<Coordinator::Reply>& replies) {
  Steps steps;
  for (const auto& reply : replies) {
    CHECK_EQ(reply.values.size(), 1u);
    CHECK(steps.emplace(reply.to, reply.values.at(0)).second);  // one reply per worker
  }
  return steps;
}

Steps Report(Coordinator& server, NodeId from, double steps, double step_s, double at_s, double round) {
  return Read(server.OnReport(from, std::vector<double>{steps, step_s, round}, At(at_s)));
}

// Times of a member between a reply and its next report.
struct Member {
  double step_s = 0;
  double transmission_s = 0;
};

// Runs one round from `began_s`: each worker makes the steps planned for it and reports on arrival.
Steps Round(Coordinator& server, const std::map<NodeId, Member>& members, const Steps& planned,
            double round, double began_s, double* ended_s) {
  std::multimap<double, NodeId> arrivals;
  for (const auto& [id, member] : members) {
    arrivals.emplace(began_s + planned.at(id) * member.step_s + member.transmission_s, id);
  }
  Steps steps;
  for (const auto& [at_s, id] : arrivals) {
    CHECK(steps.empty());  // no reply before the last report
    steps = Report(server, id, planned.at(id), members.at(id).step_s, at_s, round);
    *ended_s = at_s;
  }
  return steps;
}

TEST(EsyncFillsTheTimeUntilTheSlowestArrives) {
  auto server = Make(Defaults(3));
  const std::map<NodeId, Member> members = {{1, {3.0, 0.5}}, {2, {0.03, 0.1}}, {3, {1.0, 0.5}}};
  double now_s = 0;
  // The first report's transmission time is unknown, so the first plan uses computing times only.
  Steps plan = Round(*server, members, {{1, 1}, {2, 1}, {3, 1}}, 1, now_s, &now_s);
  CHECK((plan == Steps{{1, 1}, {2, 99}, {3, 2}}));
  // R = 3 + 0.5; floor((3.5 - 0.001 - 0.1) / 0.03) = 113, floor((3.5 - 0.001 - 0.5) / 1) = 2.
  plan = Round(*server, members, plan, 2, now_s, &now_s);
  CHECK((plan == Steps{{1, 1}, {2, 113}, {3, 2}}));
  CHECK((Round(*server, members, plan, 3, now_s, &now_s) == plan));
}

// A worker may also be the slowest because of its transmission time.
TEST(EsyncIncludesTheTransmissionTime) {
  auto server = Make(Defaults(2));
  const std::map<NodeId, Member> members = {{1, {0.1, 2.0}}, {2, {0.1, 0.05}}};
  double now_s = 0;
  Steps plan = Round(*server, members, {{1, 1}, {2, 1}}, 1, now_s, &now_s);
  CHECK((plan == Steps{{1, 1}, {2, 1}}));
  plan = Round(*server, members, plan, 2, now_s, &now_s);
  CHECK((plan == Steps{{1, 1}, {2, 20}}));
}

// With random members, each arrives before the slowest, but not with one more step.
TEST(EsyncPlansAreTheMostStepsThatFit) {
  check::ForSeeds(40, [](std::uint64_t seed) {
    check::Random random(seed);
    const double least = check::Between(random, 1, 3), most = 200;
    const auto count = static_cast<NodeId>(check::Between(random, 1, 8));
    Options options = Defaults(count);
    options["local_steps"] = least;
    options["most"] = most;
    auto server = Make(options);
    std::map<NodeId, Member> members;
    Steps plan;
    for (NodeId id = 0; id < count; ++id) {
      members[id] = {1e-3 * check::Between(random, 5, 2000), 1e-3 * check::Between(random, 0, 900)};
      plan[id] = least;
    }
    double now_s = 0;
    for (int round = 1; round <= 4; ++round) {
      plan = Round(*server, members, plan, round, now_s, &now_s);
      CHECK_EQ(plan.size(), members.size());
    }
    double reach_s = 0;
    for (const auto& [id, member] : members) {
      reach_s = std::max(reach_s, least * member.step_s + member.transmission_s);
    }
    for (const auto& [id, member] : members) {
      CHECK(plan.at(id) >= least && plan.at(id) <= most);
      const double arrives_s = plan.at(id) * member.step_s + member.transmission_s;
      if (plan.at(id) > least) CHECK(arrives_s <= reach_s - 0.001 + 1e-6);
      if (plan.at(id) < most) CHECK(arrives_s + member.step_s > reach_s - 0.001 - 1e-6);
    }
  });
}

TEST(EsyncAdaptsToAWorkerThatSlowsDown) {
  auto server = Make(Defaults(2));
  std::map<NodeId, Member> members = {{1, {1.0, 0}}, {2, {0.1, 0}}};
  double now_s = 0;
  Steps plan = Round(*server, members, {{1, 1}, {2, 1}}, 1, now_s, &now_s);
  CHECK((plan == Steps{{1, 1}, {2, 9}}));
  members[2].step_s = 0.5;
  plan = Round(*server, members, plan, 2, now_s, &now_s);
  CHECK((plan == Steps{{1, 1}, {2, 1}}));
}

TEST(EsyncPlansWithoutMissingWorkersAfterTheTimeout) {
  auto server = Make(Defaults(3));
  CHECK_EQ(server->NextTimeout(), kNever);
  CHECK(Report(*server, 1, 1, 1.0, 5.0, 1).empty());
  CHECK_EQ(server->NextTimeout(), At(5.0 + kTimeoutS));
  CHECK(Report(*server, 2, 1, 0.1, 6.0, 1).empty());
  CHECK_EQ(server->NextTimeout(), At(5.0 + kTimeoutS));  // since the first report
  CHECK((Read(server->OnTimeout(At(5.0 + kTimeoutS))) == Steps{{1, 1}, {2, 9}}));
  CHECK_EQ(server->NextTimeout(), kNever);
}

TEST(EsyncNeverPlansWithoutMissingWorkersIfTheTimeoutIsForEver) {
  Options options = Defaults(2);
  options["timeout_s"] = 1e12;
  auto server = Make(options);
  CHECK(Report(*server, 1, 1, 1.0, 5.0, 1).empty());
  CHECK(server->NextTimeout() > At(1e8));
}

// The others have their plan and wait for the late worker's pushes, so it must not wait for them.
TEST(EsyncRepliesToALateReportAtOnce) {
  auto server = Make(Defaults(3));
  Report(*server, 1, 1, 1.0, 1.0, 1);
  Report(*server, 2, 1, 0.1, 1.0, 1);
  CHECK_EQ(Read(server->OnTimeout(At(1.0 + kTimeoutS))).size(), 2u);
  CHECK((Report(*server, 3, 1, 0.25, 40.0, 1) == Steps{{3, 3}}));
  CHECK_EQ(server->NextTimeout(), kNever);
  // It takes part in the next plan.
  CHECK(Report(*server, 3, 3, 0.25, 40.75, 2).empty());
  CHECK(Report(*server, 2, 9, 0.1, 40.9, 2).empty());
  CHECK_EQ(Report(*server, 1, 1, 1.0, 41.0, 2).size(), 3u);
}

// A member that is back begins with the round after the open one. If the plan of the open round waited for
// it, the others would be a round behind it from then on, and each would count the time of the other's
// steps as transmission.
TEST(EsyncDoesNotWaitForAMemberThatIsBackUntilItReports) {
  auto server = Make(Defaults(2));
  CHECK(Report(*server, 1, 1, 1.0, 1.0, 1).empty());
  CHECK_EQ(Report(*server, 2, 1, 1.0, 1.1, 1).size(), 2u);
  CHECK(server->OnMember(2, false, At(1.5)).empty());
  CHECK((Report(*server, 1, 1, 1.0, 2.1, 2) == Steps{{1, 1}}));  // alone
  CHECK(server->OnMember(2, true, At(2.5)).empty());
  CHECK((Report(*server, 1, 1, 1.0, 3.1, 3) == Steps{{1, 1}}));  // the open round
  // The next plan waits for both reports, in either order.
  CHECK(Report(*server, 2, 1, 1.0, 4.0, 4).empty());
  CHECK_EQ(Report(*server, 1, 1, 1.0, 4.1, 4).size(), 2u);
  CHECK(Report(*server, 1, 1, 1.0, 5.1, 5).empty());
  CHECK_EQ(Report(*server, 2, 1, 1.0, 5.2, 5).size(), 2u);
}

// It may be ahead of reports that are under way: its own belongs to a later plan.
TEST(EsyncKeepsAReportOfALaterRound) {
  auto server = Make(Defaults(2));
  Report(*server, 1, 1, 1.0, 1.0, 1);
  Report(*server, 2, 1, 1.0, 1.0, 1);
  server->OnMember(2, false, At(1.5));
  server->OnMember(2, true, At(1.6));
  CHECK(Report(*server, 2, 1, 1.0, 2.0, 3).empty());
  CHECK((Report(*server, 1, 1, 1.0, 2.1, 2) == Steps{{1, 1}}));
  CHECK_EQ(Report(*server, 1, 1, 1.0, 3.1, 3).size(), 2u);
}

// After all have been lost, rounds go on with a later number.
TEST(EsyncPlansTheRoundThatIsReported) {
  auto server = Make(Defaults(1));
  CHECK_EQ(Report(*server, 1, 1, 1.0, 1.0, 1).size(), 1u);
  server->OnMember(1, false, At(1.5));
  server->OnMember(1, true, At(1.6));
  CHECK_EQ(Report(*server, 1, 1, 1.0, 2.0, 9).size(), 1u);
  CHECK_EQ(Report(*server, 1, 1, 1.0, 3.0, 10).size(), 1u);
}

TEST(EsyncIgnoresInvalidReports) {
  auto server = Make(Defaults(1));
  const double nan = std::nan("");
  for (const std::vector<double>& report :
       {std::vector<double>{}, {1}, {1, 2}, {1, 2, 3, 4}, {0, 1, 1}, {1, -1, 1}, {nan, 1, 1}, {1, nan, 1},
        {1, 1, nan}, {1, 1, 0}}) {
    CHECK(server->OnReport(1, report, 0).empty());
  }
  CHECK_EQ(server->NextTimeout(), kNever);
}

}  // namespace
}  // namespace geomx
