// Rounds that complete without lost members, and members that come back (NodeConfig::continues), in
// clusters with kills and returns at random times.
#include <algorithm>
#include <map>
#include <set>

#include "core/natives.h"
#include "tests/cluster.h"

namespace geomx {
namespace {

using check::Between;
using check::Chance;
using check::Cluster;
using check::Plan;

constexpr std::uint32_t kMemberElements = 6;

Plan AnyPlan(check::Random& random) {
  Plan plan;
  plan.continues = true;
  plan.parties.clear();
  for (std::uint64_t i = Between(random, 1, 3); i > 0; --i) {
    plan.parties.push_back(static_cast<std::uint32_t>(Between(random, 1, 3)));
  }
  plan.frame_bytes = 64;
  return plan;
}

// Trains until every worker has pushed every key in every round, or is lost; killed workers may come
// back. Each worker always pushes the same value, so that sums identify their contributors.
class Training {
 public:
  Training(std::uint64_t seed, const Plan& plan, Round rounds, std::uint32_t keys)
      : cluster_(seed, plan), rounds_(rounds), keys_(keys) {
    for (Key key = 0; key < keys_; ++key) cluster_.Declare(key, kMemberElements, {{.elements = kMemberElements}});
    for (Key key = 0; key < keys_; ++key) cluster_.Init(key, std::vector<float>(kMemberElements, 0));
    for (Key key = 0; key < keys_; ++key) cluster_.RequestAll(key);
    cluster_.Drive();  // the master must not be lost before the initial values
    for (const NodeId worker : cluster_.workers) alive_.insert(worker);
  }

  // Makes random moves, pushes, at most `kills` kills, and returns, until the scheduler stops the run.
  void Run(std::uint64_t kills, double returns) {
    check::Random& random = cluster_.random;
    for (int turn = 0; turn < 20000; ++turn) {
      const bool moved = cluster_.Advance(Between(random, 1, 12));
      const bool pushed = PushAll();
      CheckRounds();
      if (cluster_.node(cluster_.scheduler).stopped()) return;
      if (kills > 0 && Chance(random, 0.03) && !alive_.empty()) {
        --kills;
        Kill(*std::next(alive_.begin(), static_cast<std::ptrdiff_t>(
                                            Between(random, 0, alive_.size() - 1))));
      }
      // If all are lost, one comes back.
      if (!lost_.empty() && (alive_.empty() || Chance(random, returns))) Return(*lost_.begin());
      const bool still = !moved && !pushed && joining_.empty();
      if (still && kills == 0 && lost_.empty()) break;
    }
    check::Report(__FILE__, __LINE__, "it waits for ever");
    for (const NodeId id : cluster_.All()) {
      for (const Wait& wait : cluster_.node(id).ListWaits()) {
        std::string whom;
        for (const NodeId each : wait.whom) whom += " " + std::to_string(each);
        std::cerr << "  " << id << " waits (" << static_cast<int>(wait.kind) << ") in round "
                  << wait.round << " of key " << wait.key << " for" << whom << "\n";
      }
    }
  }

  std::vector<float> Final(Key key) const {
    const Buffer& value = *cluster_.node(cluster_.globals.front()).GlobalValue(key, 0);
    return {value.begin(), value.end()};
  }
  std::uint64_t partial() const { return cluster_.Count(Event::Kind::kPartial); }
  std::uint64_t takes_part() const { return cluster_.Count(Event::Kind::kTakesPart); }
  const Cluster& cluster() const { return cluster_; }

 private:
  static std::vector<float> Pushed(NodeId worker) {
    std::vector<float> value(kMemberElements);
    for (std::uint32_t i = 0; i < kMemberElements; ++i) {
      value[i] = i == 0 ? static_cast<float>(1u << worker) : static_cast<float>(worker * 10 + i);
    }
    return value;
  }

  bool PushAll() {
    bool pushed = false;
    for (const NodeId worker : alive_) {
      if (joining_.contains(worker)) {
        if (!Join(worker)) continue;
        pushed = true;
      }
      std::uint32_t done = 0;
      for (Key key = 0; key < keys_; ++key) {
        Worker& self = const_cast<Node&>(cluster_.node(worker)).worker();
        const Round round = self.ValueRound(key);
        if (self.Value(key).empty() || pushed_[{worker, key}] > round) continue;
        if (round >= rounds_) {
          ++done;
          continue;
        }
        pushed_[{worker, key}] = round + 1;
        cluster_.Push(worker, key, Pushed(worker), round + 1 == rounds_);
        pushed = true;
      }
      if (done < keys_ || !left_.insert(worker).second) continue;
      cluster_.Do(worker, [](Node& node, Time now) { node.Leave(now); });
      pushed = true;
    }
    return pushed;
  }

  void Kill(NodeId worker) {
    cluster_.Freeze(worker);
    cluster_.LinkDown(cluster_.scheduler, worker, "killed by SIGKILL");
    alive_.erase(worker);
    lost_.insert(worker);
    joining_.erase(worker);
  }

  void Return(NodeId worker) {
    lost_.erase(worker);
    alive_.insert(worker);
    joining_.insert(worker);
    for (Key key = 0; key < keys_; ++key) pushed_.erase({worker, key});
    left_.erase(worker);
    cluster_.Replace(worker);
    const Round incarnation = ++incarnations_[worker];
    cluster_.Do(worker, [incarnation](Node& node, Time) {
      node.AssumeStarted();
      node.Send(0, ControlMessage(Kind::kJoin, {node.config().name, "0.1.0", "here"}, incarnation));
      node.Send(0, ControlMessage(Kind::kReady));
    });
  }

  // Requests values after its server knows of it; drivers delay its connection until then.
  bool Join(NodeId worker) {
    const NodeId server = cluster_.node(worker).config().parents.front();
    const Round incarnation = incarnations_.at(worker);
    if (cluster_.node(server).Incarnation(worker) != incarnation) return false;
    joining_.erase(worker);
    // Reports about the earlier process do not apply to this one.
    cluster_.Do(server, [incarnation, worker](Node& node, Time) {
      Message stale = ControlMessage(Kind::kDead, {node.FindPeer(worker)->name, "it is silent"});
      stale.header.key = incarnation - 1;
      node.Send(0, std::move(stale));
    });
    for (Key key = 0; key < keys_; ++key) {
      cluster_.Do(worker, [key](Node& node, Time now) {
        node.worker().Declare(key, kMemberElements, std::vector<ShardInfo>{{.elements = kMemberElements}});
        node.worker().Request(key, now);
      });
    }
    return true;
  }

  // Checks that the sum of each round equals a plain sum over its participants.
  void CheckRounds() {
    const NodeId global = cluster_.globals.front();
    const auto updates = cluster_.Events(global, Event::Kind::kUpdated);
    if (updates.size() == checked_) return;
    std::map<Key, Round> last;
    for (const Event& event : updates) {
      CHECK(event.round > last[event.key]);  // every round completes once, and empty ones never do
      last[event.key] = event.round;
    }
    checked_ = updates.size();
    for (const auto& [key, round] : last) {
      CHECK(std::ranges::equal(*cluster_.node(global).GlobalValue(key, 0), Replay(key, round)));
    }
  }

  std::set<NodeId> Without(NodeId server, Key key, Round round, bool above) const {
    std::set<NodeId> without;
    for (const Event& event : cluster_.Events(server, Event::Kind::kPartial)) {
      if (event.key != key || (above ? event.above : event.round) != round) continue;
      for (const double id : event.values) without.insert(static_cast<NodeId>(id));
    }
    return without;
  }

  std::vector<float> Replay(Key key, Round round) const {
    const auto parties = Without(cluster_.globals.front(), key, round, false);
    std::vector<float> sum(kMemberElements, 0);
    std::uint32_t count = 0;
    for (std::size_t party = 0; party < cluster_.servers.size(); ++party) {
      if (parties.contains(cluster_.servers[party])) continue;
      const auto workers = Without(cluster_.servers[party], key, round, true);
      for (const NodeId worker : cluster_.parties[party]) {
        if (workers.contains(worker)) continue;
        ++count;
        const auto value = Pushed(worker);
        for (std::uint32_t i = 0; i < kMemberElements; ++i) sum[i] += value[i];
      }
    }
    const auto all = static_cast<std::uint32_t>(cluster_.workers.size());
    if (count == all) return sum;
    const auto factor = static_cast<float>(static_cast<double>(all) / count);
    for (float& value : sum) value *= factor;
    return sum;
  }

  Cluster cluster_;
  const Round rounds_;
  const std::uint32_t keys_;
  std::set<NodeId> alive_, lost_, joining_, left_;
  std::map<std::pair<NodeId, Key>, Round> pushed_;
  std::size_t checked_ = 0;
  std::map<NodeId, Round> incarnations_;
};

// Calls `run(training, plan, random)` for random clusters that train for `rounds` rounds.
template <class Run>
void ForTrainings(std::uint64_t count, Round rounds, Run run) {
  check::ForSeeds(count, [&](std::uint64_t seed) {
    check::Random random(seed);
    const Plan plan = AnyPlan(random);
    Training training(seed, plan, rounds, static_cast<std::uint32_t>(Between(random, 1, 3)));
    run(training, plan, random);
    check::CheckNoErrors(training.cluster());
  });
}

TEST(RoundsCompleteWithoutLostWorkers) {
  std::uint64_t partial = 0;
  ForTrainings(200, 5, [&](Training& training, const Plan& plan, check::Random&) {
    std::uint64_t workers = 0;
    for (const std::uint32_t each : plan.parties) workers += each;
    training.Run(workers - 1, 0);
    partial += training.partial();
  });
  CHECK(partial > check::Draws(300));
}

TEST(ReturningWorkersTakePartAgain) {
  std::uint64_t again = 0;
  ForTrainings(400, 8, [&](Training& training, const Plan&, check::Random& random) {
    training.Run(6, Chance(random, 0.5) ? 0.05 : 0.3);
    again += training.takes_part();
  });
  CHECK(again > check::Draws(300));
}

// A worker that joins while its server is lost starts when the server is back. The scheduler hears it until then.
TEST(LateWorkersStartWithTheirServer) {
  Plan plan;
  plan.continues = true;
  plan.heartbeat_interval = 10;
  Cluster cluster(1, plan);
  const NodeId server = cluster.servers.front();
  Node node(cluster.node(cluster.parties.front().front()).config());
  MemberChange change{.epoch = 1, .who = server, .name = "server", .reason = "killed"};
  const auto hear = [&node, &cluster](Message message) {
    message.header.source = cluster.scheduler;
    node.HandleMessage(cluster.scheduler, message, 1);
  };
  const auto starts = [&node] {
    bool starts = false;
    while (const auto event = node.PollEvent()) starts = starts || event->kind == Event::Kind::kStarted;
    return starts;
  };
  hear(Pack(change));
  hear(ControlMessage(Kind::kStart, {"5"}));
  CHECK(!starts());
  for (Time now : {20, 40}) {
    std::vector<Kind> said;
    node.HandleTimeout(now);
    while (const auto message = node.PollTransmit(cluster.scheduler, Lane::kReliable)) {
      said.push_back(message->header.kind);
    }
    CHECK(said == std::vector<Kind>{Kind::kHeartbeat});
  }
  change = {.epoch = 2, .who = server, .back = true, .incarnation = 2, .name = "server"};
  hear(Pack(change));
  CHECK(starts());
}

// Members that join later count as lost from the start, and the others start without them.
TEST(MembersMayJoinLater) {
  Plan plan;
  plan.continues = true;
  Cluster cluster(1, plan);
  NodeConfig config = cluster.node(cluster.scheduler).config();
  config.absent = {cluster.workers.back()};
  Node scheduler(config);
  const auto say = [&scheduler](NodeId from, Message message) {
    message.header.source = from;
    scheduler.HandleMessage(from, message, 1);
  };
  const auto join = [&](NodeId id) {
    say(id, ControlMessage(Kind::kJoin, {scheduler.FindPeer(id)->name, "0.1.0", "here"}, 1));
  };
  const auto told = [&scheduler](NodeId id) {
    std::vector<Kind> kinds;
    while (auto message = scheduler.PollTransmit(id, Lane::kReliable)) kinds.push_back(message->header.kind);
    return kinds;
  };
  const NodeId late = config.absent.front();
  join(late);  // before the others
  for (const Peer& peer : config.peers) {
    if (peer.id != late) join(peer.id);
  }
  for (const Peer& peer : config.peers) {
    if (peer.id != late) say(peer.id, ControlMessage(Kind::kReady));
  }
  CHECK(scheduler.started());
  CHECK(told(late) == std::vector<Kind>{Kind::kRoster});
  told(cluster.workers.front());
  say(late, ControlMessage(Kind::kReady));
  CHECK(told(late) == (std::vector<Kind>{Kind::kMembers, Kind::kStart}));
  CHECK(told(cluster.workers.front()) == std::vector<Kind>{Kind::kMembers});
}

// The scheduler of a run that has started without the members that are absent.
class Scheduler {
 public:
  Scheduler(const Cluster& cluster, const std::vector<NodeId>& absent) : node_(Config(cluster, absent)) {
    std::vector<NodeId> there;
    for (const Peer& peer : node_.config().peers) {
      if (std::find(absent.begin(), absent.end(), peer.id) == absent.end()) there.push_back(peer.id);
    }
    for (const NodeId id : there) Join(id);
    for (const NodeId id : there) Say(id, ControlMessage(Kind::kReady));
    CHECK(node_.started());
  }
  void Join(NodeId id) {
    Say(id, ControlMessage(Kind::kJoin, {node_.FindPeer(id)->name, "0.1.0", "here"}, 1));
  }
  void Say(NodeId from, Message message) {
    message.header.source = from;
    node_.HandleMessage(from, message, 1);
  }
  bool Releases(NodeId worker) {
    bool releases = false;
    while (const auto message = node_.PollTransmit(worker, Lane::kReliable)) {
      releases = releases || message->header.kind == Kind::kRelease;
    }
    return releases;
  }
  Node& node() { return node_; }

 private:
  static NodeConfig Config(const Cluster& cluster, const std::vector<NodeId>& absent) {
    NodeConfig config = cluster.node(cluster.scheduler).config();
    config.absent = absent;
    return config;
  }

  Node node_;
};

// A worker whose server has not joined neither ends the run nor keeps it from ending.
TEST(RunsEndWithoutWorkersThatWaitForTheirServer) {
  Plan plan;
  plan.continues = true;
  const Cluster cluster(1, plan);
  std::vector<NodeId> absent = cluster.parties.back();
  absent.push_back(cluster.servers.back());
  Scheduler scheduler(cluster, absent);
  scheduler.Join(absent.front());
  scheduler.Say(absent.front(), ControlMessage(Kind::kReady));
  for (const NodeId worker : cluster.parties.front()) {
    CHECK(!scheduler.node().stopped());
    scheduler.Say(worker, ControlMessage(Kind::kBye));
  }
  CHECK(scheduler.node().stopped());
}

// A process reports that its connection has ended, and is lost. What it said does not concern the next one.
TEST(ReportsOfEarlierProcessesDoNotCount) {
  Plan plan;
  plan.continues = true;
  const Cluster cluster(1, plan);
  Scheduler scheduler(cluster, {});
  Node& node = scheduler.node();
  const NodeId server = cluster.servers.back();
  const std::string global = node.FindPeer(cluster.globals.front())->name;
  scheduler.Say(server, ControlMessage(Kind::kDead, {global, "silence"}, kLinkEnded));
  node.HandleLinkDown(server, kReplaced, 1);
  scheduler.Join(server);
  scheduler.Say(server, ControlMessage(Kind::kReady));
  node.HandleTimeout(kSecond);
  std::size_t gone = 0, back = 0;
  while (const auto event = node.PollEvent()) {
    gone += event->kind == Event::Kind::kGone;
    back += event->kind == Event::Kind::kBack;
  }
  CHECK_EQ(gone, 1u);
  CHECK_EQ(back, 1u);
}

// With logs, a global server that was killed resumes. Until then it is silent, and the end of one of its connections
// is no reason to lose it.
TEST(AServerThatMayResumeIsWaitedFor) {
  Plan plan;
  plan.continues = true;
  plan.heartbeat_interval = kSecond;
  plan.patience = 60 * kSecond;
  const Cluster cluster(1, plan);
  Scheduler scheduler(cluster, {});
  Node& node = scheduler.node();
  const NodeId global = cluster.globals.front(), server = cluster.servers.back();
  node.membership().Start(1);
  const auto report = ControlMessage(Kind::kDead, {node.FindPeer(global)->name, "silence"}, kLinkEnded);
  for (Time now = kSecond; now <= 5 * kSecond; now += kSecond) {
    for (const Peer& peer : node.config().peers) {
      if (peer.id != global) node.Hear(peer.id, now);
    }
    if (now == 4 * kSecond) scheduler.Say(server, report);
    node.HandleTimeout(now);
  }
  while (const auto event = node.PollEvent()) {
    CHECK(event->kind != Event::Kind::kDead);
    if (event->kind == Event::Kind::kGone) CHECK_EQ(event->peer, server);  // the run needs it less
  }
  CHECK(node.IsAway(server));
}

// Barriers do not wait for workers whose server is lost, and these do not count in place of others.
TEST(BarriersWaitForWorkersWhoseServerIsThere) {
  Plan plan;
  plan.continues = true;
  const Cluster cluster(1, plan);
  Scheduler scheduler(cluster, {});
  const auto& there = cluster.parties.front();
  scheduler.Say(cluster.parties.back().front(), ControlMessage(Kind::kBarrier, {}, 1));
  scheduler.node().HandleLinkDown(cluster.servers.back(), "killed", 1);
  for (const NodeId worker : there) {
    CHECK(!scheduler.Releases(there.front()));
    scheduler.Say(worker, ControlMessage(Kind::kBarrier, {}, 1));
  }
  CHECK(scheduler.Releases(there.front()));
}

// A new process of a worker counts barriers from the first, which the others have passed: it passes that one
// as well, and all meet at the next.
TEST(ReturningWorkersPassBarriersThatTheOthersHavePassed) {
  Plan plan;
  plan.continues = true;
  const Cluster cluster(1, plan);
  Scheduler scheduler(cluster, {});
  const NodeId back = cluster.workers.back();
  const auto come = [&](Round round) {
    for (const NodeId worker : cluster.workers) {
      if (worker != back) scheduler.Say(worker, ControlMessage(Kind::kBarrier, {}, round));
    }
  };
  come(1);
  scheduler.Say(back, ControlMessage(Kind::kBarrier, {}, 1));
  for (const NodeId worker : cluster.workers) CHECK(scheduler.Releases(worker));
  scheduler.node().HandleLinkDown(back, "killed", 1);
  scheduler.Join(back);
  scheduler.Say(back, ControlMessage(Kind::kReady));
  scheduler.Say(back, ControlMessage(Kind::kBarrier, {}, 1));
  CHECK(scheduler.Releases(back));
  come(2);
  for (const NodeId worker : cluster.workers) CHECK(!scheduler.Releases(worker));
  scheduler.Say(back, ControlMessage(Kind::kBarrier, {}, 2));
  for (const NodeId worker : cluster.workers) CHECK(scheduler.Releases(worker));
}

// A returning master repeats instructions, in case its predecessor had not sent them.
TEST(RepeatedInstructionsOfAReturningMasterAreIgnored) {
  Plan plan;
  plan.continues = true;
  Cluster cluster(1, plan);
  const auto say = [&](bool unless_given) {
    cluster.Do(cluster.workers.front(), [unless_given](Node& node, Time now) {
      node.worker().Command("optimizer\nsgd\nlearning_rate 0.1", now, unless_given);
    });
    cluster.Drive();
    return cluster.Events(cluster.globals.front(), Event::Kind::kCommand).size();
  };
  CHECK_EQ(say(true), 1u);
  CHECK_EQ(say(true), 1u);
  CHECK_EQ(say(false), 2u);
}

// If no member is lost, sums are not scaled.
TEST(CompleteRoundsAreNotScaled) {
  check::ForSeeds(20, [](std::uint64_t seed) {
    check::Random random(seed);
    Plan plan = AnyPlan(random);
    Training lasting(seed, plan, 4, 2);
    lasting.Run(0, 0);
    plan.continues = false;
    Training usual(seed, plan, 4, 2);
    usual.Run(0, 0);
    CHECK_EQ(lasting.partial(), 0u);
    for (Key key = 0; key < 2; ++key) CHECK(lasting.Final(key) == usual.Final(key));
  });
}

}  // namespace
}  // namespace geomx
