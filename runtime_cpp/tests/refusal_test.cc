// Peers that violate the protocol: each is named in an event, without other effects.
#include <algorithm>

#include "tests/cluster.h"
#include "tests/random_pairs.h"

namespace geomx {
namespace {

using check::Cluster;
using check::Control;
using check::Plan;
using check::Transfer;

Message Ask(NodeId source, std::uint32_t elements) {
  Message message = Control(Kind::kPullRequest, source);
  message.header.shard_elements = elements;
  return message;
}

// Two parties of two workers; key 0 has ten elements and a value, and round 1 has not started.
struct Fixture : Cluster {
  Fixture() : Cluster(1, Plan{}) {
    Declare(0, 10, {{.elements = 10}});
    Init(0, std::vector<float>(10, 3.0f));
    RequestAll(0);
    Drive();
  }

  // Returns the reason for which `at` refuses a message of `from`; no other node has errors.
  std::string Complaint(NodeId at, NodeId from) {
    Drive();
    const auto errors = Events(at, Event::Kind::kPeerError);
    CHECK_EQ(Count(Event::Kind::kPeerError), errors.size());
    ClearEvents();
    if (errors.empty()) return "";
    CHECK_EQ(errors.front().peer, from);
    return errors.front().reason;
  }
  std::string Complaint(NodeId at, const Message& message) {
    Deliver(message.header.source, at, message);
    return Complaint(at, message.header.source);
  }

  NodeId server() const { return servers[0]; }
  NodeId global() const { return globals[0]; }
  NodeId worker() const { return workers[0]; }
};

TEST(UnknownSendersAndWrongDirectionsAreRefused) {
  Fixture f;
  CHECK_EQ(f.Complaint(f.server(), Transfer(Kind::kPush, f.workers[3], 1, 10)),
           "not a peer of this node");
  CHECK_EQ(f.Complaint(f.server(), Transfer(Kind::kPush, f.global(), 1, 10)), "unexpected push");
  CHECK_EQ(f.Complaint(f.server(), Transfer(Kind::kValue, f.worker(), 1, 10)), "unexpected value");
  CHECK_EQ(f.Complaint(f.worker(), Transfer(Kind::kPush, f.server(), 1, 10)), "unexpected push");
  CHECK_EQ(f.Complaint(f.scheduler, Transfer(Kind::kPush, f.worker(), 1, 10)), "unexpected push");
  CHECK_EQ(f.Complaint(f.global(), Transfer(Kind::kInit, f.scheduler, 0, 10)), "unexpected init");
}

TEST(RoundsMustBeConsecutive) {
  Fixture f;
  CHECK_EQ(f.Complaint(f.server(), Transfer(Kind::kPush, f.worker(), 2, 10)),
           "push of round 2 in round 1");
  Fixture g;
  CHECK_EQ(g.Complaint(g.global(), Transfer(Kind::kPush, g.server(), 3, 10)),
           "push of round 3 in round 1");
  Fixture h;
  CHECK_EQ(h.Complaint(h.server(), Transfer(Kind::kValue, h.global(), 1, 10)),
           "answer to round 1 that is not open");
  CHECK_EQ(h.Complaint(h.worker(), Transfer(Kind::kValue, h.server(), 1, 10)), "an unasked value");
  Fixture k;
  k.Push(k.worker(), 0, std::vector<float>(10, 1.0f));
  CHECK_EQ(k.Complaint(k.worker(), Transfer(Kind::kValue, k.server(), 2, 10)),
           "a value of another round");
}

TEST(ASecondPushInARoundIsRefused) {
  Fixture f;
  CHECK_EQ(f.Complaint(f.server(), Transfer(Kind::kPush, f.worker(), 1, 10)), "");
  // The same contribution, dense instead of encoded.
  Message plain = Transfer(Kind::kPush, f.worker(), 1, 10);
  plain.header.flags = kPlain;
  CHECK_EQ(f.Complaint(f.server(), plain), "pushed twice in one round");
}

// A shard has the same size in all messages; others would access memory out of bounds.
TEST(OtherSizesOfAShardAreRefused) {
  const auto wrong = [](NodeId peer, NodeId first) {
    return "key 0 (piece 0) has 1000 elements at " + Cluster::Name(peer) + " and 10 at " +
           Cluster::Name(first) + ": all workers must give a key the same shape";
  };
  {
    Fixture f;
    CHECK_EQ(f.Complaint(f.server(), Ask(f.worker(), 1000)), wrong(f.worker(), f.worker()));
    // A local server asks in the words of its workers, and gets what there is.
    CHECK_EQ(f.Complaint(f.global(), Ask(f.server(), 1000)), "");
    CHECK_EQ(f.Complaint(f.server(), Ask(f.worker(), 10)), "");
  }
  {
    Fixture f;
    CHECK_EQ(f.Complaint(f.server(), Transfer(Kind::kPush, f.worker(), 1, 10)), "");
    CHECK_EQ(f.Complaint(f.server(), Transfer(Kind::kPush, f.workers[1], 1, 1000)),
             wrong(f.workers[1], f.worker()));
  }
  {
    Fixture f;
    f.Command("optimizer\nsgd\nlearning_rate 1");
    CHECK_EQ(f.Complaint(f.global(), Transfer(Kind::kPush, f.server(), 1, 1000)),
             wrong(f.server(), f.server()));  // by the initial value
  }
  {
    Fixture f;
    for (const NodeId worker : f.parties[0]) f.Push(worker, 0, std::vector<float>(10, 1.0f));
    f.Drive();
    CHECK_EQ(f.Complaint(f.server(), Transfer(Kind::kValue, f.global(), 1, 1000)),
             wrong(f.global(), f.worker()));
  }
  {
    Fixture f;
    f.Push(f.worker(), 0, std::vector<float>(10, 1.0f));
    CHECK_EQ(f.Complaint(f.worker(), Transfer(Kind::kValue, f.server(), 1, 1000)),
             "a value of the wrong size");
  }
}

// Workers that mean different tensors by one key are noticed even if the shapes are equal.
TEST(AnotherNameOfAKeyIsRefused) {
  for (const std::size_t other : {1u, 3u}) {   // in the party of the first worker, and in another
    for (const bool early : {false, true}) {  // it asks before there is a value
      Cluster f(1, Plan{});
      for (const NodeId id : f.workers) {
        const std::uint32_t name = NameDigest(id == f.workers[other] ? "bias" : "weight");
        f.Do(id, [=](Node& node, Time) {
          node.worker().Declare(0, 10, Worker::Cut(0, 10, {{.elements = 4}, {.offset = 4, .elements = 6}}, name));
        });
      }
      const auto ask = [&](NodeId id) {
        f.Do(id, [](Node& node, Time now) { node.worker().Request(0, now); });
        f.Drive();
      };
      if (early) ask(f.workers[other]);
      f.Init(0, std::vector<float>(10, 3.0f));
      f.Drive();
      for (const NodeId id : f.workers) ask(id);
      const auto errors = f.Events(f.servers[other / 2], Event::Kind::kPeerError);
      CHECK_EQ(f.Count(Event::Kind::kPeerError), errors.size());
      CHECK(!errors.empty());
      if (errors.empty()) continue;
      CHECK_EQ(errors.front().peer, f.workers[other]);
      CHECK_EQ(errors.front().reason,
               "key 0 (piece 0) has another name at " + Cluster::Name(f.workers[other]) + " than at " +
                   Cluster::Name(other == 1 ? f.workers[0] : f.globals[0]) +
                   ": all workers must initialise the same keys in the same order");
    }
  }
}

// A worker represents one worker, and a local server at most its party; otherwise, one of them could
// complete a round alone.
TEST(MergeCountsAboveTheNumberOfWorkersAreRefused) {
  const auto claim = [](bool global, std::uint32_t workers, bool together = true) {
    Plan plan;
    plan.rounds.together = together;
    Cluster cluster(1, plan);
    const NodeId from = global ? cluster.servers[0] : cluster.workers[0];
    const NodeId to = global ? cluster.globals[0] : cluster.servers[0];
    Message push = Transfer(Kind::kPush, from, 1, 10);
    push.header.merge_count = workers;
    cluster.Deliver(from, to, push);
    cluster.Drive();
    CHECK_EQ(cluster.Count(Event::Kind::kUpdated), 0u);
    const auto errors = cluster.Events(to, Event::Kind::kPeerError);
    CHECK_EQ(errors.size(), 1u);
    return errors.empty() ? "" : errors[0].reason;
  };
  CHECK_EQ(claim(false, 2), "stands for 2 workers, not 1");  // the whole party
  CHECK_EQ(claim(false, 3), "stands for 3 workers, not 1");
  CHECK_EQ(claim(false, UINT32_MAX), "stands for 4294967295 workers, not 1");
  CHECK_EQ(claim(true, 4), "stands for 4 workers, not 2");  // all parties
  CHECK_EQ(claim(true, 4, false), "stands for 4 workers, not 2");
  CHECK_EQ(claim(true, 1), "stands for 1 workers, not 2");
}

// In an overlay, a member may send others' contributions, but at most those of all.
TEST(MergeCountsInOverlaysAreBounded) {
  Plan plan;
  plan.parties = {3, 1};
  plan.coordinator = [] { return std::make_shared<check::RandomPairs>(); };
  for (const std::uint32_t workers : {1u, 2u, 3u, 4u}) {
    Cluster cluster(1, plan);
    Message push = Transfer(Kind::kPush, cluster.workers[0], 1, 10);
    push.header.merge_count = workers;
    cluster.Deliver(cluster.workers[0], cluster.servers[0], push);
    const auto errors = cluster.Events(cluster.servers[0], Event::Kind::kPeerError);
    CHECK_EQ(errors.size(), workers > 3 ? 1u : 0u);
    if (!errors.empty()) CHECK_EQ(errors[0].reason, "stands for more workers than there are");
  }
}

// Invalid best-effort slices are dropped and counted; the connection is kept.
TEST(InvalidBestEffortSlicesAreDroppedAndCounted) {
  Fixture f;
  Message slice = Transfer(Kind::kPush, f.worker(), 1, 10);
  slice.header.channel = 2;
  slice.header.slices = 2;
  slice.header.reliable = 1;
  const std::vector<void (*)(Message&)> ways = {
      [](Message& m) { m.payload = Payload::Copy(std::vector<std::byte>(7)); },
      [](Message& m) { m.header.total_rows = 11; },
      [](Message& m) { m.header.kind = Kind::kValue; },
      [](Message& m) { m.header.source = 77; },
      [](Message& m) { m.header.shard_elements = UINT32_MAX; }};
  std::uint64_t refused = f.node(f.server()).stats().refused_slices;
  for (const auto change : ways) {
    Message broken = slice;
    change(broken);
    f.Deliver(f.worker(), f.server(), broken);
    CHECK_EQ(f.Complaint(f.server(), f.worker()), "");
    CHECK_EQ(f.node(f.server()).stats().refused_slices, ++refused);
  }
  // The round completes correctly.
  for (const NodeId worker : f.workers) f.Push(worker, 0, std::vector<float>(10, 1.0f));
  f.Drive();
  CHECK(f.Value(f.worker(), 0) == std::vector<float>(10, 4.0f));
}

TEST(MessagesInTheNameOfOthersAreRefused) {
  Fixture f;
  Message forged = Transfer(Kind::kPush, f.workers[1], 1, 10);
  f.Deliver(f.worker(), f.server(), forged);
  CHECK_EQ(f.Complaint(f.server(), f.worker()), "a message in the name of another node");
}

TEST(ShardsMustBeOnExistingServers) {
  Fixture f;
  Message lost = Transfer(Kind::kInit, f.worker(), 0, 10);
  lost.header.key = 5;
  lost.header.server = 1;
  CHECK_EQ(f.Complaint(f.server(), lost), "no global server 1");
  Message ask = Ask(f.worker(), 10);
  ask.header.key = 6;
  ask.header.server = 9;
  CHECK_EQ(f.Complaint(f.server(), ask), "no global server 9");
}

TEST(RequestsMustComeFromChildren) {
  Fixture f;
  CHECK_EQ(f.Complaint(f.server(), Ask(f.global(), 10)), "unexpected pull_request");
  CHECK_EQ(f.Complaint(f.global(), Ask(f.scheduler, 10)), "unexpected pull_request");
  CHECK_EQ(f.Complaint(f.global(), Control(Kind::kCommand, f.scheduler, {"optimizer\nsgd"})),
           "unexpected command");
  f.Deliver(f.server(), f.worker(), Control(Kind::kRelease, f.server()));
  f.Drive();
  CHECK_EQ(f.Count(Event::Kind::kBarrier), 0u);
}

TEST(BarriersAreForWorkersOnly) {
  Fixture f;
  CHECK_EQ(f.Complaint(f.scheduler, Control(Kind::kBarrier, f.server())), "unexpected barrier");
  Message first = Control(Kind::kBarrier, f.worker());
  first.header.round = 1;
  CHECK_EQ(f.Complaint(f.scheduler, first), "");
}

// A small message must not cause an allocation of gigabytes.
TEST(ShardsAboveTheExperimentsLimitAreRefused) {
  NodeConfig config;
  config.role = Role::kServer;
  config.id = 1;
  config.peers = {{2, "worker", Role::kWorker}};
  config.children = {2};
  config.max_shard_elements = 100;
  Node node(config);
  node.HandleMessage(2, Transfer(Kind::kPush, 2, 1, 101), 0);
  const auto event = node.PollEvent();
  CHECK(event && event->kind == Event::Kind::kPeerError);
  if (event) CHECK_EQ(event->reason, "a shard larger than any of this experiment");
}

TEST(InvalidControlMessagesAreRefused) {
  Fixture f;
  Message command = Control(Kind::kCommand, f.worker(), {"optimizer\nsgd", "more"});
  CHECK_EQ(f.Complaint(f.server(), command), "a command that is not one string");
  command.header.source = f.server();
  CHECK_EQ(f.Complaint(f.global(), command), "a command that is not one string");
  CHECK_EQ(f.Complaint(f.scheduler, Control(Kind::kJoin, f.worker(), {"somebody else", "1", "a"})),
           "a malformed join");
  CHECK_EQ(f.Complaint(f.scheduler, Control(Kind::kJoin, f.worker(), {"too short"})),
           "a malformed join");
  // Only the scheduler may send start, stop and dead.
  for (const Kind kind : {Kind::kStart, Kind::kStop, Kind::kDead}) {
    f.Deliver(f.server(), f.worker(), Control(kind, f.server(), {"node0", "because"}));
  }
  f.Drive();
  CHECK_EQ(f.Count(Event::Kind::kStarted) + f.Count(Event::Kind::kStopped) +
               f.Count(Event::Kind::kDead),
           0u);
}

TEST(AnOptimizerNeedsAnInitialValue) {
  Cluster cluster(1, {});
  cluster.Declare(0, 4, {{.elements = 4}});
  cluster.Command("optimizer\nsgd\nlearning_rate 1");
  cluster.Drive();
  for (const NodeId worker : cluster.workers) cluster.Push(worker, 0, std::vector<float>(4));
  cluster.Drive();
  const auto errors = cluster.Events(cluster.globals[0], Event::Kind::kPeerError);
  CHECK(!errors.empty());
  if (!errors.empty()) CHECK_EQ(errors[0].reason, "push of a key that was never initialised");
}

TEST(AStepOfAPartyNeedsAnInitialValue) {
  Plan plan;
  plan.rounds.update_at_party = plan.rounds.step_first = true;
  plan.rounds.workers = 4;
  Cluster cluster(1, plan);
  cluster.Declare(0, 4, {{.elements = 4}});
  cluster.Command("optimizer\nsgd\nlearning_rate 1");
  cluster.Init(0, std::vector<float>(4));
  cluster.Drive();
  for (const NodeId worker : cluster.workers) cluster.Push(worker, 0, std::vector<float>(4));
  cluster.Drive();
  for (std::size_t party = 0; party < cluster.servers.size(); ++party) {
    const auto errors = cluster.Events(cluster.servers[party], Event::Kind::kPeerError);
    CHECK_EQ(errors.size(), 1u);
    if (errors.empty()) continue;
    CHECK_EQ(errors[0].reason, "a push of a key whose initial value no worker has requested");
    CHECK(std::ranges::count(cluster.parties[party], errors[0].peer) == 1);
  }
}

}  // namespace
}  // namespace geomx
