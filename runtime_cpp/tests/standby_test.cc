// Standbys of global servers (core/standby.h, core/replicator.h, core/gate.h).
#include "core/standby.h"

#include "tests/ignored_replay.h"
#include "tests/training.h"

namespace geomx {
namespace {

using check::Chance;
using check::Cluster;
using check::Plan;
using check::Train;

Plan AnyPlanWithStandbys(check::Random& random) {
  Plan plan = check::AnyPlan(random);
  plan.standbys = true;
  return plan;
}

// Trains while global servers are killed at random times, standbys take their places, and connections
// break.
std::vector<std::vector<float>> TrainWithStandbys(double kills, std::uint64_t seed, const Plan& plan,
                                                  std::uint64_t& takeovers) {
  return Train(
      seed, plan, false,
      [&](Cluster& cluster) {
        cluster.BreakConnections({.breaks = 0.02, .calls = 0.02});
        std::vector<std::pair<NodeId, NodeId>> pairs;
        for (std::size_t i = 0; i < cluster.globals.size(); ++i) {
          pairs.emplace_back(cluster.globals[i], cluster.standbys[i]);
        }
        cluster.StandBy(pairs, cluster.scheduler, kills, [](Node& node) { node.AssumeStarted(); });
      },
      [&](Cluster& cluster) { takeovers += cluster.takeovers(); });
}

// Whenever a standby takes over, values, barriers and the end equal those of an undisturbed run.
TEST(StandbysTakeOverAtAnyMoment) {
  std::uint64_t takeovers = 0;
  check::ForSeeds(100, [&](std::uint64_t seed) {
    check::Random random(seed);
    const Plan plan = AnyPlanWithStandbys(random);
    const double kills = Chance(random, 0.5) ? 0.001 : 0.01;
    CHECK(TrainWithStandbys(kills, seed, plan, takeovers) == Train(seed, plan, false));
  });
  CHECK(takeovers > check::Draws(100));
}

// ---- gates ----

Message Numbered() {
  Message message;
  message.header.kind = Kind::kValue;
  return message;
}

TEST(AGateHoldsMessagesAndReceiptsBackUntilTheirBatchIsSafe) {
  Link<Message> link;
  CHECK(link.arrivals.Take());
  link.gate.Close(link.arrivals.received());
  link.Add(Numbered(), true);
  CHECK(link.arrivals.Take());
  CHECK_EQ(link.ready(), 0u);
  CHECK_EQ(link.receipt(), 1u);
  link.gate.Mark(1, link.arrivals.received());
  link.Add(Numbered(), true);
  CHECK(!link.gate.Release(0));
  CHECK(link.gate.Release(1));
  CHECK_EQ(link.ready(), 1u);
  CHECK_EQ(link.receipt(), 2u);
  Message beat;
  beat.header.kind = Kind::kHeartbeat;
  link.Add(beat, false, true);  // passes what is held back
  CHECK_EQ(link.ready(), 2u);
  CHECK(link.outbox.At(1).header.kind == Kind::kHeartbeat);
  link.gate.Open();
  CHECK_EQ(link.ready(), 3u);
}

// The other end sends again what this one may not say that it has, and it counts once.
TEST(ALinkThatHoldsReceiptsBackDropsRepeats) {
  Link<Message> here, there;
  here.gate.Close(0);
  const auto send = [&] {
    there.Add(Numbered(), true);
    there.outbox.Leave();
    return here.arrivals.Take();
  };
  CHECK(send());
  here.gate.Mark(1, here.arrivals.received());
  CHECK(here.gate.Release(1));
  CHECK(send());
  CHECK(send());
  Greeting answer;
  CHECK(here.Answer(there.Call(), answer) == LinkOutcome::kCarried);
  CHECK_EQ(answer.received, 1u);
  CHECK(there.Answered(answer) == LinkOutcome::kCarried);
  CHECK_EQ(there.ready(), 2u);
  CHECK(!here.arrivals.Take());
  CHECK(!here.arrivals.Take());
  CHECK(here.arrivals.Take());
  CHECK_EQ(here.arrivals.received(), 4u);
}

// ---- records in messages ----

TEST(RecordsArriveAsTheyWereAdded) {
  check::Random random(1);
  Replicator replicator(1, 2);
  std::vector<std::pair<std::vector<std::byte>, Payload>> added;
  std::vector<std::uint64_t> batches;
  std::size_t at = 0;
  std::vector<std::byte> one, other;
  for (int i = 0; i < 500; ++i) {
    std::vector<std::byte> body(check::Between(random, 1, 2000), std::byte(i));
    const std::vector<std::byte> bytes(check::Between(random, 0, 3) == 0 ? 5000 : 0, std::byte(i + 1));
    const Payload payload = i % 7 == 0 ? Payload::Phantom(bytes.size()) : Payload::Copy(bytes);
    replicator.Add(body, payload);
    added.emplace_back(std::move(body), payload);
    if (Chance(random, 0.3)) replicator.Commit();
    while (const auto message = replicator.Poll()) {
      EachRecord(*message, [&](std::span<const std::byte> body, const Payload& payload) {
        CHECK(std::ranges::equal(body, added.at(at).first));
        CHECK_EQ(payload.size(), added.at(at).second.size());
        CHECK_EQ(payload.phantom(), added.at(at).second.phantom() && payload.size() > 0);
        CHECK(std::ranges::equal(payload.Contiguous(one), added.at(at).second.Contiguous(other)));
        ++at;
      });
      if (const auto batch = BatchEnded(*message)) batches.push_back(*batch);
    }
  }
  CHECK(at > 400);
  CHECK_EQ(batches.size(), replicator.committed());
  CHECK(std::ranges::is_sorted(batches));
  CHECK(!replicator.Confirm(replicator.committed() + 1));
  CHECK(replicator.Confirm(replicator.committed()));
}

// What a server can receive, its standby can, with the records before it.
TEST(RecordsOfTheLargestMessageArrive) {
  Replicator replicator(1, 2);
  const std::vector<std::byte> before(64 * 1024 - 9, std::byte{1}), body(kHeaderBytes + 13, std::byte{2});
  replicator.Add(before, {});
  replicator.Add(body, Payload::Phantom(kMaxPayloadBytes));
  const auto message = replicator.Poll();
  CHECK(message && message->payload.size() > kMaxPayloadBytes + before.size());
  if (!message) return;
  CHECK(message->header.payload_bytes <= LongestPayload(Kind::kRecords));
  std::string error;
  CHECK(ParseHeader(SerializeHeader(message->header), error).has_value());
  Header other = message->header;
  other.kind = Kind::kRoster;
  CHECK(!ParseHeader(SerializeHeader(other), error));
}

TEST(TruncatedMessagesOfRecordsAreRefused) {
  Replicator replicator(1, 2);
  const std::vector<std::byte> body(20, std::byte{3}), bytes(50, std::byte{4});
  replicator.Add(body, {});
  replicator.Add(body, Payload::Copy(bytes));
  replicator.Commit();
  Message message = *replicator.Poll();
  std::vector<std::byte> scratch;
  const Bytes whole = message.payload.Contiguous(scratch);
  for (std::size_t size = 1; size < whole.size(); ++size) {
    if (size == 28) continue;  // the first record alone
    message.payload = Payload::Copy(whole.first(size));
    bool refused = false;
    try {
      EachRecord(message, [](Bytes, const Payload&) {});
    } catch (const JournalError&) {
      refused = true;
    }
    CHECK(refused);
  }
}

// ---- clocks ----

struct StartedAt final : check::IgnoredReplay {
  void OnEvent(Event event, Time now) override {
    if (event.kind == Event::Kind::kStarted) at = now;
  }
  Time at = 0;
};

// The clocks of two machines differ. After it has taken over, a standby has heartbeats and looks for silence
// as the server would have, and knows when the run started.
TEST(AStandbyGoesByItsOwnClock) {
  constexpr Time kOnTheWay = kSecond / 20;
  for (const Time ahead : {-500 * kSecond, Time{0}, 1000 * kSecond}) {
    Plan plan;
    plan.standbys = true;
    plan.started = false;
    plan.heartbeat_interval = kSecond / 10;
    const check::Layout layout(plan);
    const NodeConfig config = layout.Config(layout.globals.front());
    RecordedNode primary(config);
    primary.ReplicateTo(*config.standby);
    Node copy(config);
    StartedAt handler;
    Standby standby(copy, handler);
    const auto arrive = [&](Time now) {
      primary.Commit();
      while (const auto message = primary.PollTransmit(*config.standby, Lane::kReliable)) {
        if (message->header.kind == Kind::kRecords) standby.Take(*message, now + ahead);
      }
    };
    const Time start = 1000 * kSecond;
    for (const NodeId server : layout.servers) primary.HandleLinkMade(server, start - 60 * kSecond);
    arrive(start - 20 * kSecond);  // there was no connection to the standby before
    primary.HandleMessage(layout.scheduler, check::Control(Kind::kStart, layout.scheduler), start);
    arrive(start + kOnTheWay);
    CHECK_EQ(handler.at, ahead == 0 ? start : start + kOnTheWay + ahead);
    Time now = start;
    for (; now < start + 100 * kSecond; now += plan.heartbeat_interval) {
      for (const Peer& peer : config.peers) primary.Hear(peer.id, now);
      primary.HandleTimeout(now);
      arrive(now + 2 * kOnTheWay);
    }
    CHECK_EQ(copy.QueuedBytes(layout.scheduler), kHeaderBytes);  // heartbeats that the server has sent
    now += kSecond;  // it takes over
    copy.ForgetStandby(now + ahead);
    CHECK(copy.PollTimeout() <= now + ahead);
    const auto suspects = [&] {
      return std::ranges::any_of(config.peers, [&](const Peer& peer) { return copy.Suspects(peer.id); });
    };
    for (const Time end = now + 3 * kSecond; now < end; now += plan.heartbeat_interval) copy.HandleTimeout(now + ahead);
    CHECK(!suspects());
    CHECK(copy.HasHeartbeat(layout.scheduler));
    for (const Time end = now + 3 * kSecond; now < end; now += plan.heartbeat_interval) copy.HandleTimeout(now + ahead);
    CHECK(suspects());
  }
}

// A confirmation may be under way when the run stops, from when on nothing is replicated.
TEST(AConfirmationThatArrivesAfterTheEndBreaksNoProtocol) {
  Plan plan;
  plan.standbys = true;
  const check::Layout layout(plan);
  const NodeConfig config = layout.Config(layout.globals.front());
  RecordedNode primary(config);
  primary.ReplicateTo(*config.standby);
  primary.StopReplicating();
  primary.HandleMessage(*config.standby, Confirmation(1), kSecond);
  primary.Release(*config.standby, Confirmation(2), kSecond);  // on an emulated network
  while (const auto event = primary.PollEvent()) CHECK(event->kind != Event::Kind::kPeerError);
}

// A clock that has drifted since does not delay heartbeats.
TEST(HeartbeatsAreDueWhenAStandbyTakesOver) {
  Plan plan;
  plan.standbys = true;
  plan.started = false;
  plan.heartbeat_interval = kSecond;
  const check::Layout layout(plan);
  Node node(layout.Config(layout.globals.front()));
  node.membership().BeatNow(5);
  CHECK_EQ(node.PollTimeout(), kNever);  // it has not started
  node.HandleMessage(layout.scheduler, check::Control(Kind::kStart, layout.scheduler), 100 * kSecond);
  node.membership().BeatNow(90 * kSecond);
  CHECK_EQ(node.PollTimeout(), 90 * kSecond);
}

}  // namespace
}  // namespace geomx
