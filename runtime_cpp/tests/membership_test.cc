// Who takes part: joining, starting, barriers, leaving, and dying, in virtual time.
#include "tests/cluster.h"

namespace geomx {
namespace {

using check::Cluster;
using check::Plan;

Message Join(NodeId id) {
  Message message;
  message.header.kind = Kind::kJoin;
  message.header.source = id;
  message.payload = Payload::Copy(
      PackStrings({Cluster::Name(id), "0.1.0", "10.0.0." + std::to_string(id) + ":99"}));
  return message;
}

std::vector<NodeId> Members(const Cluster& cluster) {
  std::vector<NodeId> members = cluster.globals;
  members.insert(members.end(), cluster.servers.begin(), cluster.servers.end());
  members.insert(members.end(), cluster.workers.begin(), cluster.workers.end());
  return members;
}

Plan Unstarted(Time heartbeat = 0) {
  Plan plan;
  plan.started = false;
  plan.heartbeat_interval = heartbeat;
  return plan;
}

void Start(Cluster& cluster) {
  for (const NodeId id : Members(cluster)) {
    cluster.Do(id, [](Node& node, Time now) { node.Ready(now); });
  }
  cluster.Drive();
  CHECK_EQ(cluster.Count(Event::Kind::kStarted), Members(cluster).size() + 1);
}

TEST(TheRosterGoesOutWhenTheLastHasJoined) {
  check::ForSeeds(5, [](std::uint64_t seed) {
    Cluster cluster(seed, Unstarted());
    const std::vector<NodeId> members = Members(cluster);
    for (std::size_t i = 0; i < members.size(); ++i) {
      CHECK_EQ(cluster.Count(Event::Kind::kRoster), 0u);
      cluster.Deliver(members[i], cluster.scheduler, Join(members[i]));
    }
    const auto rosters = cluster.Events(cluster.scheduler, Event::Kind::kRoster);
    CHECK_EQ(rosters.size(), 1u);
    if (rosters.empty()) return;
    CHECK_EQ(rosters[0].text, "experiment");
    CHECK_EQ(rosters[0].roster.size(), members.size());
    for (const auto& [name, address] : rosters[0].roster) {
      CHECK_EQ("10.0.0." + name.substr(4) + ":99", address);
    }
    cluster.Drive();
    for (const NodeId id : members) {
      CHECK_EQ(cluster.traffic().at({cluster.scheduler, id, Kind::kRoster}).messages, 1u);
    }
    cluster.Deliver(members[0], cluster.scheduler, Join(members[0]));
    CHECK_EQ(cluster.Events(cluster.scheduler, Event::Kind::kPeerError).size(), 1u);
    cluster.ReplayAll();
  });
}

TEST(AllStartWhenTheLastIsReady) {
  check::ForSeeds(5, [](std::uint64_t seed) {
    Cluster cluster(seed, Unstarted());
    for (const NodeId id : Members(cluster)) {
      cluster.Drive();
      CHECK_EQ(cluster.Count(Event::Kind::kStarted), 0u);
      cluster.Do(id, [](Node& node, Time now) { node.Ready(now); });
    }
    cluster.Drive();
    CHECK_EQ(cluster.Count(Event::Kind::kStarted), Members(cluster).size() + 1);
    CHECK(cluster.node(cluster.workers.back()).started());
  });
}

TEST(NobodyPassesABarrierAlone) {
  check::ForSeeds(10, [](std::uint64_t seed) {
    Cluster cluster(seed, {});
    for (Round round = 1; round <= 3; ++round) {
      for (std::size_t i = 0; i < cluster.workers.size(); ++i) {
        cluster.Drive();
        CHECK_EQ(cluster.Count(Event::Kind::kBarrier), (round - 1) * cluster.workers.size());
        cluster.Do(cluster.workers[i], [](Node& node, Time now) { node.worker().Barrier(now); });
      }
      cluster.Drive();
      for (const NodeId worker : cluster.workers) {
        const auto passed = cluster.Events(worker, Event::Kind::kBarrier);
        CHECK_EQ(passed.size(), round);
        if (!passed.empty()) CHECK_EQ(passed.back().round, round);
      }
    }
  });
}

TEST(AllStopWhenTheLastWorkerHasLeft) {
  check::ForSeeds(5, [](std::uint64_t seed) {
    Cluster cluster(seed, Unstarted(kSecond));
    Start(cluster);
    for (const NodeId worker : cluster.workers) {
      cluster.Drive(kSecond);
      CHECK_EQ(cluster.Count(Event::Kind::kStopped), 0u);
      cluster.Do(worker, [](Node& node, Time now) { node.Leave(now); });
    }
    cluster.Drive(kSecond);
    CHECK_EQ(cluster.Count(Event::Kind::kStopped), Members(cluster).size() + 1);
    // The end of a connection is no news now, and no timer runs any more.
    cluster.Kill(cluster.servers.front(), "connection closed");
    cluster.Drive(100 * kSecond);
    CHECK_EQ(cluster.Count(Event::Kind::kDead), 0u);
    CHECK_EQ(cluster.node(cluster.scheduler).PollTimeout(), kNever);
    CHECK(cluster.node(cluster.workers.front()).stopped());
    cluster.ReplayAll();
  });
}

TEST(WhoSaidByeMayGo) {
  Cluster cluster(1, {});
  const NodeId worker = cluster.workers.front();
  cluster.Do(worker, [](Node& node, Time now) { node.Leave(now); });
  cluster.Drive();
  cluster.Kill(worker, "connection closed");
  cluster.Drive();
  CHECK_EQ(cluster.Count(Event::Kind::kDead), 0u);
}

// Whoever sees it, however often: every survivor hears once who was lost, and why.
TEST(ADeathIsAnnouncedToAllOnce) {
  check::ForSeeds(20, [](std::uint64_t seed) {
    check::Random random(seed);
    Cluster cluster(seed, {});
    const std::vector<NodeId> members = Members(cluster);
    const NodeId lost = members[check::Between(random, 0, members.size() - 1)];
    cluster.Kill(lost, "connection reset");
    cluster.Drive();
    if (lost != cluster.scheduler) cluster.LinkDown(cluster.scheduler, lost, "again");
    cluster.Drive();
    for (NodeId id = 0; id <= members.size(); ++id) {
      if (id == lost) continue;
      const auto dead = cluster.Events(id, Event::Kind::kDead);
      CHECK_EQ(dead.size(), 1u);
      if (dead.empty()) continue;
      CHECK_EQ(dead[0].text, Cluster::Name(lost));
      CHECK_EQ(dead[0].reason, "connection reset");
    }
    cluster.ReplayAll();
  });
}

TEST(TheSchedulersDeathIsSeenByAll) {
  Cluster cluster(1, {});
  cluster.Kill(cluster.scheduler, "connection reset");
  cluster.Drive();
  for (const NodeId id : Members(cluster)) {
    const auto dead = cluster.Events(id, Event::Kind::kDead);
    CHECK_EQ(dead.size(), 1u);
    if (!dead.empty()) CHECK_EQ(dead[0].text, "node0");
  }
}

TEST(SilenceIsDeathAfterTheTimeoutAndNotBefore) {
  check::ForSeeds(5, [](std::uint64_t seed) {
    Cluster cluster(seed, Unstarted(kSecond));
    Start(cluster);
    cluster.Drive(60 * kSecond);
    CHECK_EQ(cluster.Count(Event::Kind::kDead), 0u);
    const NodeId lost = cluster.workers[1];
    cluster.Freeze(lost);
    cluster.Drive(4 * kSecond);
    CHECK_EQ(cluster.Count(Event::Kind::kDead), 0u);
    cluster.Drive(4 * kSecond);
    for (const NodeId id : Members(cluster)) {
      if (id == lost) continue;
      const auto dead = cluster.Events(id, Event::Kind::kDead);
      CHECK_EQ(dead.size(), 1u);
      if (!dead.empty()) CHECK_EQ(dead[0].reason, "nothing heard for 5000 ms");
    }
    cluster.Drive(30 * kSecond);
    CHECK_EQ(cluster.Events(cluster.scheduler, Event::Kind::kDead).size(), 1u);
    cluster.ReplayAll();
  });
}

TEST(ASilentSchedulerIsNoticed) {
  Cluster cluster(1, Unstarted(kSecond));
  Start(cluster);
  cluster.Freeze(cluster.scheduler);
  cluster.Drive(10 * kSecond);
  for (const NodeId id : Members(cluster)) {
    const auto dead = cluster.Events(id, Event::Kind::kDead);
    CHECK_EQ(dead.size(), 1u);  // said once per timeout, not at every beat
    if (!dead.empty()) CHECK_EQ(dead[0].text, "node0");
  }
}

}  // namespace
}  // namespace geomx
