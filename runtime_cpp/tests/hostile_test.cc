// Hostile members: whatever one member sends, no other member is blamed, the others continue, and their sums
// contain exactly the contributions that they count. Memory is bounded by the experiment.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "core/member_list.h"
#include "tests/cluster.h"
#include "tests/random_pairs.h"

namespace geomx {
namespace {

using check::Between;
using check::Chance;
using check::Cluster;
using check::Control;
using check::Plan;
using check::Random;
using check::Transfer;

constexpr std::uint32_t kElements = 6;

std::shared_ptr<const Declaration> Declared() {
  return std::make_shared<const Declaration>(
      std::vector<std::vector<ShardInfo>>{{{.elements = kElements}}});
}

template <class Value>
Value One(Random& random, std::initializer_list<Value> values) {
  return values.begin()[Between(random, 0, values.size() - 1)];
}

// Returns a message whose fields are mostly plausible and sometimes wrong; none if its header does not parse.
std::optional<Message> AnyMessage(Random& random, NodeId from, Round round) {
  const auto any = [&](std::uint64_t most) { return static_cast<std::uint32_t>(Between(random, 0, most)); };
  Message message;
  Header& header = message.header;
  header.kind = static_cast<Kind>(any(kKinds - 1));
  if (Chance(random, 0.5)) header.kind = One(random, {Kind::kPush, Kind::kInit, Kind::kPullRequest, Kind::kValue});
  header.source = Chance(random, 0.95) ? from : any(9);
  header.flags = static_cast<std::uint8_t>(any(15));
  header.key = One(random, {0u, 0u, 0u, 1u, 7u, UINT32_MAX});
  header.shard = One(random, {0u, 0u, 0u, 1u, UINT32_MAX});
  header.round = One(random, {0u, 1u, round, round, round + 1, UINT32_MAX});
  header.merge_count = One(random, {1u, 1u, 2u, 3u, UINT32_MAX});
  header.shard_elements = One(random, {kElements, kElements, kElements, 1u, 100u, kMaxShardElements});
  header.server = One(random, {0u, 0u, 0u, 1u, 9u});
  header.offset = One<std::uint64_t>(random, {0u, 0u, 0u, 4u, std::uint64_t{1} << 40});
  header.total_rows = Chance(random, 0.8) ? header.shard_elements : any(200);
  header.slices = One(random, {1u, 1u, 2u, 100u});
  header.slice = any(header.slices - 1);
  header.reliable = Chance(random, 0.8) ? header.slices : any(header.slices);
  header.rows = header.slices == 1 ? header.total_rows : any(std::min(header.total_rows, 8u));
  header.loss = One(random, {1.0f, std::nanf(""), std::numeric_limits<float>::infinity()});
  header.priority = One(random, {0, INT32_MIN, INT32_MAX});
  if (IsTransfer(header.kind)) {
    const std::vector<float> ones(Chance(random, 0.9) ? std::min(header.rows, 1000u) : any(9), 1.0f);
    message.payload = Payload::Copy(std::as_bytes(std::span(ones)));
  } else if (Chance(random, 0.3)) {
    const double numbers[] = {static_cast<double>(any(4)), std::nan(""), 1e300};
    message.payload = Payload::Copy(PackNumbers(numbers));
  } else if (Chance(random, 0.3)) {
    message.payload = Payload::Copy(PackStrings({"optimizer\nsgd\nspeed 9"}));
  } else if (Chance(random, 0.5)) {
    message.payload = Payload::Copy(PackStrings({Cluster::Name(any(9)), "lost"}));
  } else if (Chance(random, 0.5)) {
    message.payload = Payload::Copy(PackStrings({Cluster::Name(from), "0.1.0", "10.0.0.1:99"}));
  }
  header.payload_bytes = static_cast<std::uint32_t>(message.payload.size());
  std::string error;
  if (!ParseHeader(SerializeHeader(header), error)) return std::nullopt;
  return message;
}

// A cluster of which one member is hostile and all others follow the protocol.
class Attack {
 public:
  Attack(std::uint64_t seed, const Plan& plan, bool server)
      : cluster_(seed, plan),
        hostile_(server ? cluster_.servers.back() : cluster_.workers.back()) {
    bad_ = server ? cluster_.parties.back() : std::vector{hostile_};
    bad_.push_back(hostile_);
    cluster_.Declare(0, kElements, {{.elements = kElements}});
    cluster_.Init(0, std::vector<float>(kElements, 0));
    cluster_.RequestAll(0);
    Settle();
    CHECK(lost_.empty());
  }

  // Runs one round, and checks that the value of every other worker is the sum of the others' contributions and
  // of what the hostile side may have contributed.
  void Round(Random& random) {
    ++round_;
    const auto attack = [&](double chance) {
      if (!Chance(random, chance)) return;
      for (std::uint64_t i = Between(random, 1, 6); i > 0; --i) SendAnything(random);
    };
    attack(0.3);
    const bool all = BadMayPush();
    for (const NodeId worker : cluster_.workers) {
      if (IsBad(worker) && (!all || lost_.contains(hostile_))) continue;
      cluster_.Push(worker, 0, std::vector<float>(kElements, Value(worker)));
      attack(0.1);
    }
    Settle();
    attack(0.3);
    Settle();
    for (const NodeId worker : cluster_.workers) {
      if (!IsBad(worker)) CheckValue(worker);
    }
  }

  // The others enter a barrier and leave, and the run stops.
  void End() {
    const bool all = BadMayPush();
    for (const NodeId worker : cluster_.workers) {
      if (!IsBad(worker) || all) {
        cluster_.Do(worker, [](Node& node, Time now) { node.worker().Barrier(now); });
      }
    }
    Settle();
    for (const NodeId worker : cluster_.workers) {
      if (IsBad(worker)) continue;
      CHECK_EQ(cluster_.Events(worker, Event::Kind::kBarrier).size(), 1u);
      cluster_.Do(worker, [](Node& node, Time now) { node.Leave(now); });
    }
    if (!lost_.contains(hostile_)) {
      for (const NodeId id : bad_) {
        if (cluster_.node(id).config().role != Role::kWorker) continue;
        cluster_.Do(id, [](Node& node, Time now) { node.Leave(now); });
      }
    }
    Settle();
    CHECK(cluster_.node(cluster_.scheduler).stopped() || Unfinished());
  }

 private:
  bool IsBad(NodeId id) const { return std::find(bad_.begin(), bad_.end(), id) != bad_.end(); }
  float Value(NodeId worker) const { return static_cast<float>(worker + round_); }
  // Returns true if the hostile side's workers can push. If their own round was attacked, they may wait for
  // ever.
  bool BadMayPush() const {
    if (lost_.contains(hostile_)) return false;
    return std::all_of(bad_.begin(), bad_.end(), [&](NodeId id) {
      return cluster_.node(id).config().role != Role::kWorker || !Waits(id);
    });
  }
  bool Waits(NodeId worker) const { return !cluster_.node(worker).ListWaits().empty(); }
  // Returns true if the hostile member violated no rule, so that the others wait for it as for a slow one.
  bool Unfinished() const { return attacked_ && !lost_.contains(hostile_); }

  void SendAnything(Random& random) {
    if (lost_.contains(hostile_)) return;
    const auto& peers = cluster_.node(hostile_).config().peers;
    const NodeId to = peers[Between(random, 0, peers.size() - 1)].id;
    if (IsBad(to)) return;
    const auto message = AnyMessage(random, hostile_, round_);
    if (!message) return;
    attacked_ = true;
    cluster_.Deliver(hostile_, to, *message);
    Punish();
  }

  // Delivers all messages, and ends the links of peers that violated the protocol, as drivers do.
  void Settle() {
    do {
      cluster_.Drive(kSecond);
    } while (Punish());
  }
  bool Punish() {
    bool any = false;
    for (const NodeId id : cluster_.All()) {
      if (IsBad(id)) continue;
      const auto errors = cluster_.Events(id, Event::Kind::kPeerError);
      for (std::size_t& seen = seen_[id]; seen < errors.size(); ++seen) {
        const Event& error = errors[seen];
        if (!IsBad(error.peer)) {
          check::Report(__FILE__, __LINE__, Cluster::Name(id) + " blames " +
                                                Cluster::Name(error.peer) + ": " + error.reason);
        }
        any = true;
        if (!ended_.insert({id, error.peer}).second) continue;
        cluster_.LinkDown(id, error.peer, std::string(kBrokeProtocol) + error.reason);
      }
      for (const Event& gone : cluster_.Events(id, Event::Kind::kGone)) {
        CHECK(IsBad(gone.peer));
        if (!lost_.insert(gone.peer).second || gone.peer != hostile_) continue;
        for (const NodeId each : bad_) {  // a party ends with its server
          if (each != hostile_) cluster_.Kill(each, "it ended");
        }
        any = true;
      }
      CHECK_EQ(cluster_.Events(id, Event::Kind::kDead).size(), 0u);
      CHECK_EQ(cluster_.Events(id, Event::Kind::kRefused).size(), 0u);
    }
    return any;
  }

  void CheckValue(NodeId worker) {
    const auto values = cluster_.Value(worker, 0);
    if (Waits(worker) && Unfinished()) return;  // for the hostile one
    double sum = 0, all = 0, theirs = 0;
    std::uint32_t good = 0, bad = 0;
    for (const NodeId each : cluster_.workers) {
      (IsBad(each) ? theirs : sum) += Value(each);
      (IsBad(each) ? bad : good) += 1;
      ++all;
    }
    std::set<float> possible;
    const auto add = [&](double pushed, std::uint32_t workers) {
      const float whole = static_cast<float>(sum + pushed);
      const bool partial = good + workers < all;
      possible.insert(partial ? whole * static_cast<float>(all / (good + workers)) : whole);
    };
    add(0, 0);
    add(theirs, bad);
    for (std::uint32_t workers = 1; workers <= bad; ++workers) add(1, workers);
    for (const float value : values) {
      if (possible.contains(value)) continue;
      check::Report(__FILE__, __LINE__, "round " + std::to_string(round_) + ": " + std::to_string(value) +
                                            " is not a sum of what was pushed");
      return;
    }
  }

  Cluster cluster_;
  const NodeId hostile_;
  std::vector<NodeId> bad_;  // the hostile member and, if that is a server, its workers
  geomx::Round round_ = 0;
  bool attacked_ = false;
  std::map<NodeId, std::size_t> seen_;
  std::set<std::pair<NodeId, NodeId>> ended_;
  std::set<NodeId> lost_;
};

TEST(AHostileMemberHarmsOnlyItself) {
  check::ForSeeds(600, [](std::uint64_t seed) {
    Random random(seed);
    Plan plan;
    plan.parties.assign(Between(random, 2, 3), 1);
    for (std::uint32_t& workers : plan.parties) workers = static_cast<std::uint32_t>(Between(random, 1, 3));
    plan.continues = plan.strict = true;
    plan.global_servers = static_cast<std::uint32_t>(Between(random, 1, 2));
    if (Chance(random, 0.5)) plan.declared = Declared();
    Attack attack(seed, plan, Chance(random, 0.4));
    for (int round = 0; round < 4; ++round) attack.Round(random);
    attack.End();
  });
}

// ---- single violations -----------------------------------------------------------------------

struct Strict : Cluster {
  explicit Strict(bool declared, NonFinite non_finite = NonFinite::kIgnore, bool together = true)
      : Cluster(1, Make(declared, non_finite, together)) {
    Declare(0, kElements, {{.elements = kElements}});
    Init(0, std::vector<float>(kElements, 3.0f));
    RequestAll(0);
    Drive();
  }
  static Plan Make(bool declared, NonFinite non_finite, bool together = true) {
    Plan plan;
    plan.rounds.together = together;
    plan.strict = true;
    plan.non_finite = non_finite;
    if (declared) plan.declared = Declared();
    return plan;
  }

  // Delivers a message; returns the reason for which `at` blames its sender; empty: it does not.
  std::string Complaint(NodeId at, const Message& message) {
    const NodeId from = message.header.source;
    const std::size_t before = Events(at, Event::Kind::kPeerError).size();
    Deliver(from, at, message);
    Drive();
    const auto errors = Events(at, Event::Kind::kPeerError);
    if (errors.size() == before) return "";
    CHECK_EQ(errors.back().peer, from);
    return errors.back().reason;
  }
};

Message Ask(NodeId source, Key key, std::uint32_t elements) {
  Message message = Control(Kind::kPullRequest, source);
  message.header.key = key;
  message.header.shard_elements = elements;
  return message;
}

// A message of 128 bytes that announces 4 GiB is refused before memory is allocated.
TEST(UnknownShardsAllocateNoMemory) {
  for (const bool declared : {true, false}) {
    Strict f(declared);
    const NodeId server = f.servers[0], other = f.workers[1], master = f.workers[0];
    Message large = Transfer(Kind::kPush, other, 1, 4);
    large.header.shard_elements = large.header.total_rows = kMaxShardElements;
    large.header.slices = large.header.reliable = 2;
    CHECK_EQ(f.Complaint(server, large),
             "key 0 (piece 0) has 1073741824 elements at " + Cluster::Name(other) + " and 6 " +
                 (declared ? "in the experiment" : "at " + Cluster::Name(master)) +
                 ": all workers must give a key the same shape");
    large.header.key = 5;
    CHECK_EQ(f.Complaint(server, large), declared ? "key 5 (piece 0) is none of this experiment"
                                                  : "push of a key that was never initialised");
    large.header.kind = Kind::kInit;
    CHECK_EQ(f.Complaint(server, large), "unexpected init");
  }
}

// A worker that requests a key with a wrong shape is refused, even if its request is the first.
TEST(AWrongShapeIsBlamedOnItsSender) {
  for (const bool before : {true, false}) {
    Plan plan = Strict::Make(false, NonFinite::kIgnore);
    plan.global_servers = 2;
    Cluster f(1, plan);
    const NodeId bad = f.workers[3];
    f.Declare(0, kElements, {{.elements = kElements, .server = 1}});
    if (!before) f.Init(0, std::vector<float>(kElements, 3.0f));
    if (!before) f.Drive();
    for (const std::uint32_t server : {0u, 1u}) {
      Message wrong = Ask(bad, 0, 99);
      wrong.header.server = server;
      f.Deliver(bad, f.servers[1], wrong);
    }
    f.Drive();
    if (before) f.Init(0, std::vector<float>(kElements, 3.0f));
    for (std::size_t i = 0; i < 3; ++i) {
      f.Do(f.workers[i], [](Node& node, Time now) { node.worker().Request(0, now); });
    }
    f.Drive();
    for (std::size_t i = 0; i < 3; ++i) {
      CHECK(f.Value(f.workers[i], 0) == std::vector<float>(kElements, 3.0f));
    }
    const auto errors = f.Events(f.servers[1], Event::Kind::kPeerError);
    CHECK(!errors.empty());
    for (const Event& error : errors) CHECK_EQ(error.peer, bad);
    CHECK_EQ(f.Count(Event::Kind::kPeerError), errors.size());
  }
}

TEST(RequestsAreBounded) {
  for (const bool declared : {true, false}) {
    Strict f(declared);
    const NodeId server = f.servers[0], other = f.workers[1];
    std::string reason;
    std::uint32_t sent = 0;
    for (; sent < 100 && reason.empty(); ++sent) reason = f.Complaint(server, Ask(other, 0, kElements));
    CHECK_EQ(reason, "asks for values again and again");
    CHECK(sent < 10);
    if (declared) CHECK_EQ(f.Complaint(server, Ask(other, 1, 4)), "key 1 (piece 0) is none of this experiment");
  }
  NodeConfig config;
  config.role = Role::kServer;
  config.id = 1;
  config.peers = {{2, "worker", Role::kWorker}, {3, "global", Role::kGlobalServer}};
  config.children = {2};
  config.parents = {3};
  Node node(config);
  std::uint32_t asked = 0;
  std::optional<Event> event;
  for (; asked < 1u << 20 && !event; ++asked) {
    node.HandleMessage(2, Ask(2, asked, 1), 0);
    while (node.PollTransmit(3, Lane::kReliable)) {
    }
    event = node.PollEvent();
  }
  CHECK_EQ(asked, (1u << 18) + 1);
  CHECK(event && event->reason == "asks for too many keys that were never initialised");
}

TEST(OnlyTheMasterGivesValuesAndInstructions) {
  Strict f(true);
  const auto optimizer = [](NodeId from) { return Control(Kind::kCommand, from, {"optimizer\nsgd"}); };
  CHECK_EQ(f.Complaint(f.servers[0], optimizer(f.workers[1])), "unexpected command");
  CHECK_EQ(f.Complaint(f.servers[1], optimizer(f.workers[2])), "unexpected command");
  CHECK_EQ(f.Complaint(f.globals[0], optimizer(f.servers[1])), "unexpected command");
  CHECK_EQ(f.Complaint(f.servers[0], optimizer(f.globals[0])), "unexpected command");
  CHECK_EQ(f.Complaint(f.globals[0], Transfer(Kind::kInit, f.servers[1], 0, kElements)), "unexpected init");
  CHECK_EQ(f.Complaint(f.servers[0], Control(Kind::kCommand, f.workers[0], {"optimizer\nsgdd"}))
               .substr(0, 41),
           "an instruction that no server can carry o");
  CHECK_EQ(f.Count(Event::Kind::kCommand) + f.Count(Event::Kind::kRefused), 0u);
}

TEST(OnlyTheSchedulerReportsMembers) {
  Strict f(true);
  for (const Kind kind : {Kind::kStart, Kind::kStop, Kind::kDead, Kind::kRoster, Kind::kRelease, Kind::kMembers,
                          Kind::kIteration}) {
    const std::string unexpected = std::string("unexpected ") + KindName(kind);
    CHECK_EQ(f.Complaint(f.servers[0], Control(kind, f.workers[1], {"node0", "because"})), unexpected);
    const NodeId other = kind == Kind::kIteration ? f.servers[1] : f.workers[1];  // workers report steps
    if (kind == Kind::kDead) continue;
    CHECK_EQ(f.Complaint(f.scheduler, Control(kind, other, {"node0", "because"})), unexpected);
  }
  const std::vector<double> numbers = {1, 2};
  Message reply = NumbersMessage(Kind::kReply, 0, numbers, 0);
  reply.header.source = f.workers[1];
  CHECK_EQ(f.Complaint(f.servers[0], reply), "unexpected reply");
  CHECK_EQ(f.Complaint(f.scheduler, reply), "unexpected reply");
  CHECK_EQ(f.Count(Event::Kind::kReply), 0u);
}

// A member is not lost because one child reports its loss.
TEST(OnlyNeighboursReportALossAndOnlyParentsAreBelieved) {
  const auto says = [](NodeId who, NodeId whom) { return Control(Kind::kDead, who, {Cluster::Name(whom), "so"}); };
  const std::string strangers = "reports the loss of a node that it has no connection with";
  {
    Strict f(true);
    CHECK_EQ(f.Complaint(f.scheduler, says(f.workers[0], f.workers[3])), strangers);
    CHECK_EQ(f.Complaint(f.scheduler, says(f.servers[0], f.workers[3])), strangers);
    CHECK_EQ(f.Complaint(f.scheduler, says(f.workers[0], f.globals[0])), strangers);
    CHECK_EQ(f.Complaint(f.scheduler, Control(Kind::kDead, f.workers[0], {"nobody"})),
             "a malformed report of a loss");
    CHECK_EQ(f.Count(Event::Kind::kDead), 0u);
  }
  {
    Plan plan = Strict::Make(true, NonFinite::kIgnore);
    plan.continues = true;
    Cluster f(1, plan);
    for (int i = 0; i < 1000; ++i) f.Deliver(f.workers[0], f.scheduler, says(f.workers[0], f.servers[0]));
    f.Drive(kSecond);
    const auto gone = f.Events(f.scheduler, Event::Kind::kGone);
    CHECK_EQ(gone.size(), 1u);
    if (!gone.empty()) CHECK_EQ(gone[0].peer, f.workers[0]);
  }
}

TEST(BarriersComeInOrderAndFewAtATime) {
  Strict f(true);
  const NodeId worker = f.workers[0];
  const auto at = [&](Round round) {
    Message message = Control(Kind::kBarrier, worker);
    message.header.round = round;
    return f.Complaint(f.scheduler, message);
  };
  CHECK_EQ(at(2), "barrier 2 after barrier 0");
  for (Round round = 1; round <= 64; ++round) CHECK_EQ(at(round), "");
  CHECK_EQ(at(65), "waits at too many barriers");
  CHECK_EQ(at(64), "barrier 64 after barrier 64");
}

TEST(NanAndInfinityAreRefused) {
  {
    Strict f(true, NonFinite::kRefuse);
    const Message nan = Transfer(Kind::kPush, f.workers[0], 1, kElements, std::nanf(""));
    CHECK_EQ(f.Complaint(f.servers[0], nan), "pushed values that are NaN or infinite");
  }
  for (const bool together : {true, false}) {
    Strict f(true, NonFinite::kRefuse, together);
    Message infinite = Transfer(Kind::kPush, f.servers[0], 1, kElements, HUGE_VALF);
    infinite.header.merge_count = 2;
    CHECK_EQ(f.Complaint(f.globals[0], infinite), "pushed values that are NaN or infinite");
  }
  Plan plan;
  plan.coordinator = [] { return std::make_shared<check::RandomPairs>(); };
  Cluster f(1, plan);
  const double numbers[] = {0, std::nan("")};
  Message report = NumbersMessage(Kind::kReport, 3, numbers, 0);
  report.header.source = f.workers[0];
  f.Deliver(f.workers[0], f.servers[0], report);
  const auto errors = f.Events(f.servers[0], Event::Kind::kPeerError);
  CHECK_EQ(errors.size(), 1u);
  if (!errors.empty()) CHECK_EQ(errors[0].reason, "a report with numbers that are NaN or infinite");
}

TEST(ControlMessagesAreShort) {
  Strict f(true);
  const std::string text(70'000, 'a');
  CHECK_EQ(f.Complaint(f.scheduler, Control(Kind::kJoin, f.workers[0], {text})), "a join that is too long");
}

// What one member says and all are told does not make the scheduler's messages too long, for which they would
// blame the scheduler.
TEST(TextsThatAllAreToldAreShort) {
  Plan plan = Strict::Make(true, NonFinite::kIgnore);
  plan.continues = true;
  Cluster f(1, plan);
  const NodeId lost = f.workers[0];
  const std::string name = Cluster::Name(lost);
  f.Deliver(f.servers[0], f.scheduler, Control(Kind::kDead, f.servers[0], {name, "a" + std::string(60'000, '\xc3')}));
  f.Drive();
  for (const NodeId id : {f.scheduler, f.servers[1], f.workers[3]}) {
    const auto gone = f.Events(id, Event::Kind::kGone);
    CHECK_EQ(gone.size(), 1u);
    if (!gone.empty()) CHECK(gone[0].reason.size() > 1000 && gone[0].reason.size() <= 1024);
  }
  CHECK_EQ(f.Count(Event::Kind::kPeerError), 0u);
  std::size_t errors = 0;
  const auto joins = [&](const std::string& address) {
    f.Deliver(lost, f.scheduler, Control(Kind::kJoin, lost, {name, "1", address}));
    const auto all = f.Events(f.scheduler, Event::Kind::kPeerError);
    return all.size() > errors++ ? all.back().reason : "";
  };
  CHECK_EQ(joins(std::string(70'000, '1')), "a join that is too long");  // also of a member that is lost
  CHECK_EQ(joins(std::string(2'000, '1')), "a join whose address is too long");
}

// The cut is between two characters, as reasons are text.
TEST(ReasonsAreCutBetweenCharacters) {
  for (const std::size_t before : {0u, 1u, 2u}) {
    std::string reason(before, 'a');
    while (reason.size() < 5000) reason += "\u20ac";  // three bytes
    Shorten(reason);
    CHECK(reason.size() <= kMostText && reason.size() > kMostText - 3);
    CHECK_EQ((reason.size() - before) % 3, 0u);
  }
}

// The answer to a join is long. A process joins once.
TEST(AProcessJoinsOnce) {
  Plan plan = Strict::Make(true, NonFinite::kIgnore);
  plan.continues = true;
  for (const bool ready : {false, true}) {
    Cluster f(1, plan);
    const NodeId worker = f.workers[0];
    Message join = Control(Kind::kJoin, worker, {Cluster::Name(worker), "1", "10.0.0.1:9"});
    join.header.round = 2;
    f.Do(f.scheduler, [worker](Node& node, Time now) { node.HandleLinkDown(worker, "killed", now); });
    f.Deliver(worker, f.scheduler, join);
    f.Drive();
    if (ready) f.Deliver(worker, f.scheduler, Control(Kind::kReady, worker));
    CHECK_EQ(f.Count(Event::Kind::kPeerError), 0u);
    for (int i = 0; i < 10; ++i) f.Deliver(worker, f.scheduler, join);
    const auto errors = f.Events(f.scheduler, Event::Kind::kPeerError);
    CHECK_EQ(errors.size(), 10u);
    if (!errors.empty()) CHECK_EQ(errors[0].reason, "joined twice");
    f.Drive();
    CHECK_EQ(f.traffic().at({f.scheduler, worker, Kind::kRoster}).messages, 1u);
  }
}

}  // namespace
}  // namespace geomx
