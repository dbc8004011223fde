// Nodes that resume from their journals (core/recorded_node.h, core/replay.h).
//
// Runs long, so it is optimised.
#include "core/replay.h"
#include "tests/ignored_replay.h"

#include "tests/random_pairs.h"
#include "tests/training.h"

namespace geomx {
namespace {

using check::Chance;
using check::Cluster;
using check::Plan;
using check::Train;

// Trains while servers and the scheduler are killed at random times, which loses uncommitted records,
// connections break, and with probability `cut` per step a journal begins anew with a snapshot.
std::vector<std::vector<float>> TrainOver(double crashes, double cut, std::uint64_t seed, const Plan& plan,
                                          bool integers, std::uint64_t& crashed) {
  const auto begin = [](Node& node) { node.AssumeStarted(); };
  return Train(
      seed, plan, integers,
      [&](Cluster& cluster) {
        cluster.BreakConnections({.breaks = 0.02, .calls = 0.02});
        std::vector<NodeId> mortal = {cluster.scheduler};
        mortal.insert(mortal.end(), cluster.globals.begin(), cluster.globals.end());
        mortal.insert(mortal.end(), cluster.servers.begin(), cluster.servers.end());
        cluster.CrashNodes(mortal, crashes, begin);
        cluster.CutJournals(cut);
      },
      [&](Cluster& cluster) { crashed += cluster.crashes(); });
}

// With kills of any server or the scheduler at any time, values, barriers and the end equal those of an
// undisturbed run.
TEST(KilledNodesResumeFromTheirJournals) {
  std::uint64_t crashed = 0;
  check::ForSeeds(100, [&](std::uint64_t seed) {
    check::Random random(seed);
    const Plan plan = check::AnyPlan(random);
    const double crashes = Chance(random, 0.5) ? 0.002 : 0.02;
    const double cut = Chance(random, 0.5) ? 0.05 : 0;
    CHECK(TrainOver(crashes, cut, seed, plan, false, crashed) == Train(seed, plan, false));
  });
  CHECK(crashed > 300);
}

// Coordinators run on servers and on the scheduler, and store reports.
TEST(KilledNodesWithOverlaysResumeFromTheirJournals) {
  std::uint64_t crashed = 0;
  check::ForSeeds(30, [&](std::uint64_t seed) {
    Plan plan;
    plan.parties = {3, 1, 2};
    plan.frame_bytes = 128;
    plan.coordinator = [] { return std::make_shared<check::RandomPairs>(); };
    const double cut = seed % 2 == 0 ? 0.05 : 0;
    CHECK(TrainOver(0.01, cut, seed, plan, true, crashed) == Train(seed, plan, true));
  });
  CHECK(crashed > 100);
}

// ---- records ----

TEST(TruncatedRecordsAreRefused) {
  Cluster cluster(1, Plan{});
  check::IgnoredReplay ignored;
  check::Random random(1);
  const auto refused = [&](std::vector<std::byte> body) {
    Node node(cluster.node(cluster.globals.front()).config());
    Replay replay(node, ignored);
    try {
      replay.Apply(body, {});
    } catch (const JournalError&) {
      return true;
    }
    return false;
  };
  CHECK(refused({}));
  CHECK(refused({std::byte{200}}));
  CHECK(refused({std::byte(RecordKind::kIteration), std::byte{1}}));
  for (int kind = 3; kind <= static_cast<int>(RecordKind::kNote); ++kind) {
    if (kind == static_cast<int>(RecordKind::kReport) || kind == static_cast<int>(RecordKind::kState)) continue;
    CHECK(refused({std::byte(kind), std::byte{1}}));
    for (int i = 0; i < 50; ++i) {  // random records are applied or refused
      std::vector<std::byte> body(check::Between(random, 1, 120));
      for (std::byte& each : body) each = std::byte(check::Between(random, 0, 3));
      body[0] = std::byte(kind);
      (void)refused(body);
    }
  }
}

// What a master outside the job gives: a shard may be longer than a record, and its tensor has a name.
TEST(InitialValuesOfAnyLengthAreRecorded) {
  struct Repeated final : JournalOut {
    explicit Repeated(Node& node) : replay(node, ignored) {}
    void Add(std::span<const std::byte> body, const Payload& payload) override {
      CHECK(payload.size() <= kMaxPayloadBytes);
      replay.Apply(body, payload);
    }
    void Commit() override {}
    check::IgnoredReplay ignored;
    Replay replay;
  };
  const auto state = [](Node& node) {
    std::vector<std::byte> bytes;
    Archive archive([&](Bytes piece) { bytes.insert(bytes.end(), piece.begin(), piece.end()); });
    node.Exchange(archive);
    return bytes;
  };
  const Cluster cluster(1, Plan{});
  const NodeConfig& config = cluster.node(cluster.globals.front()).config();
  for (const std::uint32_t elements : {3u, kMaxPayloadBytes / std::uint32_t{sizeof(float)} + 1}) {
    Node again(config);
    Repeated records(again);
    RecordedNode node(config);
    node.RecordTo(&records);
    node.Initialise({.key = 3, .elements = elements, .name = 7}, Buffer(elements, 2.0f), 1);
    const Buffer* const value = again.GlobalValue(3, 0);
    CHECK(value != nullptr && *value == *node.GlobalValue(3, 0));
    if (elements < 10) CHECK(state(again) == state(node.node()));
  }
}

TEST(TheFirstRecordContainsTheInitialState) {
  struct Kept final : JournalOut {
    void Add(std::span<const std::byte> its_body, const Payload&) override {
      body.assign(its_body.begin(), its_body.end());
    }
    void Commit() override {}
    std::vector<std::byte> body;
  } kept;
  JournalBegin begin{.name = "hub/global_server0",
                     .address = "127.0.0.1:1234",
                     .experiment = std::string(100'000, 'x'),
                     .roster = {{"a", "b:1", 1}, {"c", "d:2", 7}},
                     .links = {{0, 1, 1}}};
  begin.Write(kept);
  const JournalBegin read = JournalBegin::Read(kept.body);
  CHECK_EQ(read.name, begin.name);
  CHECK_EQ(read.address, begin.address);
  CHECK(read.experiment == begin.experiment);
  CHECK_EQ(read.roster.size(), 2u);
  CHECK_EQ(read.roster[1].incarnation, 7u);
  CHECK_EQ(read.links[0].received, 1u);
  for (std::size_t size = 0; size < kept.body.size(); size += 1 + size / 8) {
    bool refused = false;
    try {
      JournalBegin::Read(std::span(kept.body).first(size));
    } catch (const JournalError&) {
      refused = true;
    }
    CHECK(refused);
  }
}

}  // namespace
}  // namespace geomx
