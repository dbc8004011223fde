// Peers that break the protocol: each is named in an event, and nothing else happens.
#include <algorithm>

#include "tests/cluster.h"

namespace geomx {
namespace {

using check::Cluster;
using check::Plan;
using check::Transfer;

Message Control(Kind kind, NodeId source, std::initializer_list<std::string_view> strings = {}) {
  Message message;
  message.header.kind = kind;
  message.header.source = source;
  message.payload = Payload::Copy(PackStrings(strings));
  return message;
}

Message Ask(NodeId source, std::uint32_t elements) {
  Message message = Control(Kind::kPullRequest, source);
  message.header.shard_elements = elements;
  return message;
}

// Two parties of two; key 0 has ten elements and a value, and round 1 has not begun.
struct Fixture : Cluster {
  Fixture() : Cluster(1, Plan{}) {
    Declare(0, 10, {{.elements = 10}});
    Init(0, std::vector<float>(10, 3.0f));
    RequestAll(0);
    Drive();
  }

  // The reason for which `at` complains about `from`, and nobody else about anything.
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

TEST(StrangersAndWrongDirectionsAreRefused) {
  Fixture f;
  CHECK_EQ(f.Complaint(f.server(), Transfer(Kind::kPush, f.workers[3], 1, 10)),
           "not a peer of this node");
  CHECK_EQ(f.Complaint(f.server(), Transfer(Kind::kPush, f.global(), 1, 10)), "unexpected push");
  CHECK_EQ(f.Complaint(f.server(), Transfer(Kind::kValue, f.worker(), 1, 10)), "unexpected value");
  CHECK_EQ(f.Complaint(f.worker(), Transfer(Kind::kPush, f.server(), 1, 10)), "unexpected push");
  CHECK_EQ(f.Complaint(f.scheduler, Transfer(Kind::kPush, f.worker(), 1, 10)), "unexpected push");
  CHECK_EQ(f.Complaint(f.global(), Transfer(Kind::kInit, f.scheduler, 0, 10)), "unexpected init");
}

TEST(RoundsComeOneAfterTheOther) {
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
}

TEST(NobodyPushesTwice) {
  Fixture f;
  CHECK_EQ(f.Complaint(f.server(), Transfer(Kind::kPush, f.worker(), 1, 10)), "");
  // Another way of saying the same: plain instead of encoded.
  Message plain = Transfer(Kind::kPush, f.worker(), 1, 10);
  plain.header.flags = kPlain;
  CHECK_EQ(f.Complaint(f.server(), plain), "pushed twice in one round");
}

// A shard has one size, whoever speaks of it; anything else would read or write beyond its memory.
TEST(AllAgreeOnASize) {
  const std::string wrong = "the shard has 10 elements, not 1000";
  {
    Fixture f;
    CHECK_EQ(f.Complaint(f.server(), Ask(f.worker(), 1000)), wrong);
    CHECK_EQ(f.Complaint(f.global(), Ask(f.server(), 1000)), wrong);
    CHECK_EQ(f.Complaint(f.server(), Ask(f.worker(), 10)), "");
  }
  {
    Fixture f;
    CHECK_EQ(f.Complaint(f.server(), Transfer(Kind::kPush, f.worker(), 1, 10)), "");
    CHECK_EQ(f.Complaint(f.server(), Transfer(Kind::kPush, f.workers[1], 1, 1000)), wrong);
  }
  {
    Fixture f;
    f.Command("optimizer\nsgd\nlearning_rate 1");
    CHECK_EQ(f.Complaint(f.global(), Transfer(Kind::kPush, f.server(), 1, 1000)), wrong);
  }
  {
    Fixture f;
    for (const NodeId worker : f.parties[0]) f.Push(worker, 0, std::vector<float>(10, 1.0f));
    f.Drive();
    CHECK_EQ(f.Complaint(f.server(), Transfer(Kind::kValue, f.global(), 1, 1000)), wrong);
  }
  {
    Fixture f;
    f.Push(f.worker(), 0, std::vector<float>(10, 1.0f));
    CHECK_EQ(f.Complaint(f.worker(), Transfer(Kind::kValue, f.server(), 1, 1000)),
             "a value of the wrong size");
  }
}

TEST(NobodyStandsForMoreWorkersThanThereAre) {
  Fixture f;
  Message many = Transfer(Kind::kPush, f.worker(), 1, 10);
  many.header.merge_count = 3;
  CHECK_EQ(f.Complaint(f.server(), many), "stands for more workers than there are");
  Fixture g;
  many.header.merge_count = UINT32_MAX;
  CHECK_EQ(g.Complaint(g.server(), Transfer(Kind::kPush, g.workers[1], 1, 10)), "");
  CHECK_EQ(g.Complaint(g.server(), many), "stands for more workers than there are");
}

TEST(NobodySpeaksForOthers) {
  Fixture f;
  Message forged = Transfer(Kind::kPush, f.workers[1], 1, 10);
  f.Deliver(f.worker(), f.server(), forged);
  CHECK_EQ(f.Complaint(f.server(), f.worker()), "a message in the name of another node");
}

TEST(ShardsLiveOnServersThatExist) {
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

TEST(RequestsComeFromBelow) {
  Fixture f;
  CHECK_EQ(f.Complaint(f.server(), Ask(f.global(), 10)), "unexpected pull_request");
  CHECK_EQ(f.Complaint(f.global(), Ask(f.scheduler, 10)), "unexpected pull_request");
  CHECK_EQ(f.Complaint(f.global(), Control(Kind::kCommand, f.scheduler, {"optimizer\nsgd"})),
           "unexpected command");
  f.Deliver(f.server(), f.worker(), Control(Kind::kRelease, f.server()));
  f.Drive();
  CHECK_EQ(f.Count(Event::Kind::kBarrier), 0u);
}

TEST(OnlyWorkersWaitAtBarriers) {
  Fixture f;
  CHECK_EQ(f.Complaint(f.scheduler, Control(Kind::kBarrier, f.server())), "unexpected barrier");
  CHECK_EQ(f.Complaint(f.scheduler, Control(Kind::kBarrier, f.worker())), "");
}

// A few bytes must not make a node ask for gigabytes.
TEST(ShardsAreNoLargerThanTheExperiments) {
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

TEST(GarbageInControlMessages) {
  Fixture f;
  Message command = Control(Kind::kCommand, f.worker(), {"optimizer\nsgd", "more"});
  CHECK_EQ(f.Complaint(f.server(), command), "a command that is not one string");
  command.header.source = f.server();
  CHECK_EQ(f.Complaint(f.global(), command), "a command that is not one string");
  CHECK_EQ(f.Complaint(f.scheduler, Control(Kind::kJoin, f.worker(), {"somebody else", "1", "a"})),
           "a malformed join");
  CHECK_EQ(f.Complaint(f.scheduler, Control(Kind::kJoin, f.worker(), {"too short"})),
           "a malformed join");
  // Only the scheduler starts, stops and buries.
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

}  // namespace
}  // namespace geomx
