// Membership: joining, starting, barriers, leaving, and loss of members, in virtual time.
#include <algorithm>

#include "tests/cluster.h"
#include "tests/random_pairs.h"

namespace geomx {
namespace {

using check::Cluster;
using check::Plan;
using check::RandomPairs;

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

TEST(TheRosterIsSentWhenAllHaveJoined) {
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

// The roster consists of lines, so an address must not contain a line for another node.
TEST(AnAddressWithWhitespaceIsRefused) {
  for (const std::string address : {"10.0.0.1:9\nnode2\t6.6.6.6:9", "10.0.0.1:9\tnode2",
                                    "10.0.0.1:9\r", "", "10.0.0.1:9\x7f"}) {
    Cluster cluster(1, Unstarted());
    const std::vector<NodeId> members = Members(cluster);
    Message forged = Join(members[0]);
    forged.payload = Payload::Copy(PackStrings({Cluster::Name(members[0]), "0.1.0", address}));
    cluster.Deliver(members[0], cluster.scheduler, forged);
    const auto errors = cluster.Events(cluster.scheduler, Event::Kind::kPeerError);
    CHECK_EQ(errors.size(), 1u);
    if (!errors.empty()) {
      CHECK_EQ(errors[0].peer, members[0]);
      CHECK_EQ(errors[0].reason, "a join whose address is empty or has control characters");
    }
    for (std::size_t i = 1; i < members.size(); ++i) {
      cluster.Deliver(members[i], cluster.scheduler, Join(members[i]));
    }
    CHECK_EQ(cluster.Count(Event::Kind::kRoster), 0u);
  }
}

TEST(AllStartWhenAllAreReady) {
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

TEST(ABarrierWaitsForAllWorkers) {
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

// Scenarios have events at local steps.
TEST(AllHearOfTheFirstWorkerToBeginAStep) {
  check::ForSeeds(5, [](std::uint64_t seed) {
    Cluster cluster(seed, {});
    const auto begin = [&](std::size_t worker, Round step) {
      cluster.Do(cluster.workers[worker], [step](Node& node, Time) { node.BeginIteration(step); });
      cluster.Drive();
    };
    begin(1, 5);
    begin(0, 5);
    begin(0, 7);
    begin(1, 6);
    std::vector<NodeId> all = Members(cluster);
    all.push_back(cluster.scheduler);
    for (const NodeId id : all) {
      std::vector<Round> told;
      for (const Event& event : cluster.Events(id, Event::Kind::kIteration)) told.push_back(event.round);
      CHECK(told == (std::vector<Round>{5, 7}));
    }
    cluster.ReplayAll();
  });
}

TEST(AllStopWhenAllWorkersHaveLeft) {
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
    // After the stop, the end of a connection is no loss, and no timer is active.
    cluster.Kill(cluster.servers.front(), "connection closed");
    cluster.Drive(100 * kSecond);
    CHECK_EQ(cluster.Count(Event::Kind::kDead), 0u);
    CHECK_EQ(cluster.node(cluster.scheduler).PollTimeout(), kNever);
    CHECK(cluster.node(cluster.workers.front()).stopped());
    cluster.ReplayAll();
  });
}

TEST(MembersMayDisconnectAfterBye) {
  Cluster cluster(1, {});
  const NodeId worker = cluster.workers.front();
  cluster.Do(worker, [](Node& node, Time now) { node.Leave(now); });
  cluster.Drive();
  cluster.Kill(worker, "connection closed");
  cluster.Drive();
  CHECK_EQ(cluster.Count(Event::Kind::kDead), 0u);
}

// Returns the name and the reason of the only announced loss.
std::pair<std::string, std::string> Announced(const Cluster& cluster) {
  const auto dead = cluster.Events(cluster.scheduler, Event::Kind::kDead);
  CHECK_EQ(dead.size(), 1u);
  if (dead.empty()) return {};
  return {dead[0].text, dead[0].reason};
}

void LeaveAll(Cluster& cluster, const std::vector<NodeId>& workers) {
  for (const NodeId id : workers) cluster.Do(id, [](Node& node, Time now) { node.Leave(now); });
  cluster.Drive();
}

void PushAll(Cluster& cluster, const std::vector<NodeId>& workers) {
  for (const NodeId id : workers) cluster.Push(id, 0, std::vector<float>(10, 1.0f));
  cluster.Drive();
}

void Begin(Cluster& cluster) {
  cluster.Declare(0, 10, {{.elements = 10}});
  cluster.Init(0, std::vector<float>(10, 3.0f));
  cluster.RequestAll(0);
  cluster.Drive();
}

// Workers that push one round fewer than others, as with uneven data, leave, so that the others wait in
// vain. In a party, between parties, and with overlays; before or after the others push.
TEST(ARoundThatWaitsForAWorkerThatLeftEndsTheRun) {
  check::ForSeeds(4, [](std::uint64_t seed) {
    for (const bool whole_party : {false, true}) {
      for (const bool trees : {false, true}) {
        for (const bool leave_first : {false, true}) {
          Plan plan;
          plan.parties = {2, 1, 3};
          if (trees) plan.coordinator = [] { return std::make_shared<RandomPairs>(); };
          Cluster cluster(seed, plan);
          Begin(cluster);
          for (int round = 0; round < 2; ++round) PushAll(cluster, cluster.workers);
          std::vector<NodeId> gone = {cluster.workers.back()};
          if (whole_party) gone = cluster.parties.back();
          std::vector<NodeId> rest;
          for (const NodeId id : cluster.workers) {
            if (std::find(gone.begin(), gone.end(), id) == gone.end()) rest.push_back(id);
          }
          if (leave_first) LeaveAll(cluster, gone);
          CHECK_EQ(cluster.Count(Event::Kind::kDead), 0u);
          PushAll(cluster, rest);
          if (!leave_first) LeaveAll(cluster, gone);
          const auto [name, reason] = Announced(cluster);
          CHECK_EQ(name, Cluster::Name(whole_party ? cluster.servers.back() : gone.back()));
          CHECK_EQ(reason.substr(0, reason.find("node")), "it left after round 2 of key 0 while ");
          CHECK(reason.find(" waits for round 3: every worker must push every key equally often") !=
                std::string::npos);
          CHECK_EQ(cluster.Count(Event::Kind::kPeerError), 0u);
          cluster.ReplayAll();
        }
      }
    }
  });
}

// With asynchronous parties and a bound on staleness.
TEST(AStalenessBoundOnAPartyThatLeftEndsTheRun) {
  for (const bool leave_first : {false, true}) {
    Plan plan;
    plan.parties = {1, 2};
    plan.rounds = {.together = false, .staleness_bound = 1};
    Cluster cluster(1, plan);
    Begin(cluster);
    for (int round = 0; round < 2; ++round) PushAll(cluster, cluster.workers);
    if (leave_first) LeaveAll(cluster, cluster.parties[1]);
    for (int round = 0; round < 2; ++round) PushAll(cluster, cluster.parties[0]);
    CHECK_EQ(cluster.Count(Event::Kind::kDead), 0u);
    PushAll(cluster, cluster.parties[0]);
    if (!leave_first) LeaveAll(cluster, cluster.parties[1]);
    const auto [name, reason] = Announced(cluster);
    CHECK_EQ(name, Cluster::Name(cluster.servers[1]));
    CHECK_EQ(reason, "it left after round 2 of key 0 while " + Cluster::Name(cluster.servers[0]) +
                         " waits for round 5: every worker must push every key equally often");
  }
}

TEST(ABarrierThatWaitsForAWorkerThatLeftEndsTheRun) {
  for (const bool leave_first : {false, true}) {
    Cluster cluster(1, {});
    const NodeId gone = cluster.workers[2], waiting = cluster.workers[1];
    if (leave_first) LeaveAll(cluster, {gone});
    cluster.Do(waiting, [](Node& node, Time now) { node.worker().Barrier(now); });
    cluster.Drive();
    if (!leave_first) LeaveAll(cluster, {gone});
    cluster.Drive(2 * kSecond);
    const auto [name, reason] = Announced(cluster);
    CHECK_EQ(name, Cluster::Name(gone));
    CHECK_EQ(reason, "it left while " + Cluster::Name(waiting) +
                         " waits at barrier 1: every worker must come to every barrier");
  }
}

// Workers whose wait at a barrier timed out may leave, like all others, in any order.
TEST(AnAbandonedBarrierDoesNotPreventLeaving) {
  Cluster cluster(1, {});
  cluster.Do(cluster.workers[1], [](Node& node, Time now) { node.worker().Barrier(now); });
  cluster.Drive();
  LeaveAll(cluster, {cluster.workers[0], cluster.workers[1]});
  cluster.Drive(2 * kSecond);
  LeaveAll(cluster, {cluster.workers[2], cluster.workers[3]});
  CHECK_EQ(cluster.Count(Event::Kind::kDead), 0u);
  CHECK(cluster.node(cluster.scheduler).stopped());
}

// Parties that push equally often may leave at different times.
TEST(PartiesMayLeaveBeforeOthers) {
  check::ForSeeds(5, [](std::uint64_t seed) {
    for (const bool trees : {false, true}) {
      Plan plan;
      plan.parties = {2, 1, 3};
      if (trees) plan.coordinator = [] { return std::make_shared<RandomPairs>(); };
      Cluster cluster(seed, plan);
      Begin(cluster);
      for (int round = 0; round < 3; ++round) PushAll(cluster, cluster.workers);
      for (const auto& party : cluster.parties) LeaveAll(cluster, party);
      CHECK_EQ(cluster.Count(Event::Kind::kDead), 0u);
      CHECK(cluster.node(cluster.scheduler).stopped());
    }
  });
}

// However many nodes report a loss, every survivor receives its name and reason once.
TEST(ALossIsAnnouncedToAllOnce) {
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

// If two members lose each other, and no other member loses either, the connection between them is
// named, whichever of the two reports it first.
TEST(ALostConnectionBetweenTwoMembersIsNamed) {
  check::ForSeeds(10, [](std::uint64_t seed) {
    check::Random random(seed);
    Cluster cluster(seed, {});
    const NodeId server = cluster.servers.front(), global = cluster.globals.front();
    const bool server_first = check::Between(random, 0, 1) == 0;
    cluster.LinkDown(server_first ? server : global, server_first ? global : server, "cut");
    cluster.LinkDown(server_first ? global : server, server_first ? server : global, "cut too");
    cluster.Drive(100 * kMillisecond);
    CHECK_EQ(cluster.Count(Event::Kind::kDead), 0u);
    cluster.Drive(kSecond);
    const std::string one = Cluster::Name(server), other = Cluster::Name(global);
    for (NodeId id = 0; id <= Members(cluster).size(); ++id) {
      const auto dead = cluster.Events(id, Event::Kind::kDead);
      CHECK_EQ(dead.size(), 1u);
      if (dead.empty()) continue;
      CHECK(dead[0].text == one + " <-> " + other || dead[0].text == other + " <-> " + one);
    }
  });
}

// If one of them has ended, its connection to the scheduler ends a little later.
TEST(ALostMemberIsNamedEvenIfItsPeersReportFirst) {
  Cluster cluster(1, {});
  const NodeId worker = cluster.workers.front();
  cluster.LinkDown(cluster.servers.front(), worker, "connection closed");
  cluster.Drive(100 * kMillisecond);
  cluster.Kill(worker, "connection closed");
  cluster.Drive(kSecond);
  const auto dead = cluster.Events(cluster.scheduler, Event::Kind::kDead);
  CHECK_EQ(dead.size(), 1u);
  if (!dead.empty()) CHECK_EQ(dead[0].text, Cluster::Name(worker));
}

TEST(AMemberDeclaredLostIsNotified) {
  Cluster cluster(1, {});
  const NodeId worker = cluster.workers.front();
  cluster.LinkDown(cluster.servers.front(), worker, std::string(kBrokeProtocol) + "too long");
  cluster.Drive(100 * kMillisecond);
  const auto dead = cluster.Events(worker, Event::Kind::kDead);
  CHECK_EQ(dead.size(), 1u);
  if (!dead.empty()) CHECK_EQ(dead[0].text, Cluster::Name(worker));
}

TEST(TheLossOfTheSchedulerIsDetectedByAll) {
  Cluster cluster(1, {});
  cluster.Kill(cluster.scheduler, "connection reset");
  cluster.Drive();
  for (const NodeId id : Members(cluster)) {
    const auto dead = cluster.Events(id, Event::Kind::kDead);
    CHECK_EQ(dead.size(), 1u);
    if (!dead.empty()) CHECK_EQ(dead[0].text, "node0");
  }
}

TEST(SilenceIsALossAfterTheTimeout) {
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

// With patience, a silent node is first suspect, at every node with a link to it.
TEST(WithPatienceSilenceIsALossAfterThePatience) {
  Plan plan = Unstarted(kSecond);
  plan.patience = 30 * kSecond;
  Cluster cluster(1, plan);
  Start(cluster);
  const NodeId silent = cluster.servers[0];
  cluster.Freeze(silent);
  cluster.Drive(7 * kSecond);
  const NodeId linked[] = {cluster.scheduler, cluster.globals[0], cluster.parties[0][0], cluster.parties[0][1]};
  for (const NodeId id : linked) {
    const auto suspects = cluster.Events(id, Event::Kind::kSuspect);
    CHECK_EQ(suspects.size(), 1u);
    if (suspects.empty()) continue;
    CHECK_EQ(suspects[0].text, Cluster::Name(silent));
    CHECK_EQ(suspects[0].reason, "nothing heard for 5000 ms");
    CHECK(cluster.node(id).Suspects(silent));
    CHECK_EQ(cluster.node(id).Suspicions(silent), 1u);
  }
  CHECK(!cluster.node(cluster.scheduler).Suspects(cluster.globals[0]));
  CHECK_EQ(cluster.node(cluster.scheduler).Suspicions(cluster.globals[0]), 0u);
  cluster.Drive(20 * kSecond);
  CHECK_EQ(cluster.Count(Event::Kind::kDead), 0u);
  cluster.Drive(6 * kSecond);
  const auto [name, reason] = Announced(cluster);
  CHECK_EQ(name, Cluster::Name(silent));
  CHECK_EQ(reason, "nothing heard for 30000 ms");
  CHECK_EQ(cluster.node(cluster.scheduler).Suspicions(silent), 1u);
}

// A local server that receives from all peers but one, for the time `silent`.
struct Listener {
  static constexpr NodeId kScheduler = 0, kGlobal = 1, kWorker = 4;

  static NodeConfig Config() {
    NodeConfig config;
    config.id = 3;
    config.role = Role::kServer;
    config.name = "server";
    config.scheduler = kScheduler;
    config.parents = {kGlobal};
    config.children = {kWorker};
    config.quorum = 1;
    config.heartbeat_interval = kSecond / 4;
    config.peers = {{kScheduler, "scheduler", Role::kScheduler},
                    {kGlobal, "global", Role::kGlobalServer},
                    {kWorker, "worker", Role::kWorker}};
    return config;
  }

  void Run(Time until) {
    for (; now < until; now += kSecond / 4) {
      for (const NodeId id : {kScheduler, kGlobal, kWorker}) {
        if (id != silent) node.Hear(id, now);
      }
      node.HandleTimeout(now);
    }
  }
  // Returns the loss that it reported to its scheduler.
  std::optional<std::pair<std::string, Round>> Told() {
    while (const auto message = node.PollTransmit(kScheduler, Lane::kReliable)) {
      if (message->header.kind != Kind::kDead) continue;
      std::vector<std::byte> scratch;
      return std::pair{UnpackStrings(message->payload.Contiguous(scratch), 2)->front(),
                       message->header.round};
    }
    return std::nullopt;
  }

  NodeId silent = UINT32_MAX;
  Time now = 0;
  Node node{Config()};
};

TEST(SilenceIsDetectedOnEveryLink) {
  for (const NodeId silent : {Listener::kGlobal, Listener::kWorker}) {
    Listener listener;
    listener.node.membership().Start(0);
    listener.Run(20 * kSecond);
    CHECK(!listener.Told().has_value());
    listener.silent = silent;
    listener.Run(25 * kSecond);
    CHECK(!listener.Told().has_value());
    listener.Run(26 * kSecond);
    const auto told = listener.Told();
    CHECK(told.has_value());
    if (!told) continue;
    CHECK_EQ(told->first, silent == Listener::kGlobal ? "global" : "worker");
    CHECK_EQ(told->second, kLinkEnded);
  }
}

// Heartbeats are sent on every link on which nothing else is sent, and only there.
TEST(HeartbeatsAreSentOnIdleLinks) {
  Listener listener;
  listener.node.membership().Start(0);
  listener.Run(kSecond / 2);
  for (const NodeId id : {Listener::kScheduler, Listener::kGlobal, Listener::kWorker}) {
    const auto message = listener.node.PollTransmit(id, Lane::kReliable);
    CHECK(message && message->header.kind == Kind::kHeartbeat);
    while (listener.node.PollTransmit(id, Lane::kReliable)) {
    }
  }
  listener.Run(kSecond);  // one heartbeat has been sent on each
  CHECK(listener.node.HasMessage(Listener::kGlobal, Lane::kReliable));
  listener.Run(60 * kSecond);  // without a connection one waits, however long that lasts
  CHECK_EQ(listener.node.QueuedBytes(Listener::kGlobal), kHeaderBytes);
  CHECK(listener.node.Quiet(Listener::kGlobal));  // which tells nothing
}

// A broken connection is not a loss while the node reconnects, before and after the start.
TEST(ABrokenConnectionIsALossOnlyIfItStaysBroken) {
  for (const bool started : {false, true}) {
    for (const bool made_again : {false, true}) {
      Listener listener;
      if (started) listener.node.membership().Start(0);
      listener.Run(2 * kSecond);
      listener.node.HandleLinkLost(Listener::kGlobal, "reset", listener.now);
      listener.silent = Listener::kGlobal;
      listener.Run(6 * kSecond);
      CHECK(!listener.Told().has_value());
      if (made_again) listener.node.HandleLinkMade(Listener::kGlobal, listener.now);
      if (made_again && started) listener.silent = UINT32_MAX;
      listener.Run(15 * kSecond);
      CHECK_EQ(listener.Told().has_value(), !made_again);
    }
  }
}

// A node that did not run, because it was stopped or its machine slept, has not read messages from that
// time, and may not be able to read all of them at once.
TEST(TheTimeInWhichANodeDidNotRunIsNotSilence) {
  constexpr NodeId kPeers = 300, kReadAtOnce = 256;
  NodeConfig config;
  config.role = Role::kScheduler;
  config.heartbeat_interval = kSecond / 4;
  config.failure_timeout = 5 * kSecond;
  for (NodeId id = 1; id <= kPeers; ++id) {
    config.peers.push_back({id, Cluster::Name(id), Role::kWorker});
  }
  Node node(config);
  const auto dead = [&] {
    std::vector<std::string> names;
    while (const auto event = node.PollEvent()) {
      if (event->kind == Event::Kind::kDead) names.push_back(event->text);
    }
    return names;
  };
  Message beat;
  beat.header.kind = Kind::kHeartbeat;
  const auto hear = [&](NodeId first, NodeId last, Time now) {
    for (beat.header.source = first; beat.header.source <= last; ++beat.header.source) {
      node.HandleMessage(beat.header.source, beat, now);
    }
  };
  node.membership().Start(0);
  Time now = 0;
  const auto run = [&](Time until, NodeId silent) {
    for (; now < until; now += kSecond / 4) {
      hear(1, silent - 1, now);
      node.HandleTimeout(now);
    }
  };
  run(10 * kSecond, kPeers + 1);
  now += 60 * kSecond;
  hear(1, kReadAtOnce, now);
  node.HandleTimeout(now);
  CHECK(dead().empty());
  hear(kReadAtOnce + 1, kPeers, now + 1);
  run(now + 4 * kSecond, kPeers);  // the last peer is really silent
  CHECK(dead().empty());
  run(now + 2 * kSecond, kPeers);
  CHECK(dead() == std::vector<std::string>{Cluster::Name(kPeers)});
}

TEST(ASilentSchedulerIsDetected) {
  Cluster cluster(1, Unstarted(kSecond));
  Start(cluster);
  cluster.Freeze(cluster.scheduler);
  cluster.Drive(10 * kSecond);
  for (const NodeId id : Members(cluster)) {
    const auto dead = cluster.Events(id, Event::Kind::kDead);
    CHECK_EQ(dead.size(), 1u);  // once per timeout, not at every heartbeat
    if (!dead.empty()) CHECK_EQ(dead[0].text, "node0");
  }
}

}  // namespace
}  // namespace geomx
