// The simulator's containers compared with references, and a worker's loop in virtual time.
#include <map>
#include <string>

#include "core/flat_map.h"
#include "fabric/agenda.h"
#include "fabric/fabric.h"
#include "fabric/span.h"
#include "tests/seeds.h"

namespace geomx {
namespace {

using check::Between;

template <class Error, class Action>
bool Throws(const Action& action) {
  try {
    action();
  } catch (const Error&) {
    return true;
  }
  return false;
}

TEST(FirstAndLastSpansAreKept) {
  for (const std::size_t most : {0u, 1u, 2u, 7u, 10u}) {
    for (const std::size_t count : {0u, 1u, 6u, 10u, 11u, 40u}) {
      SpanLog log(most);
      for (std::size_t i = 0; i < count; ++i) log.Add({.start = static_cast<Time>(i)});
      const std::size_t early = std::min(count, most - most / 2);
      const std::size_t late = std::min(count - early, most / 2);
      const auto kept = log.Kept();
      CHECK_EQ(kept.size(), early + late);
      CHECK_EQ(log.dropped(), count - early - late);
      CHECK_EQ(log.seen(), count);
      for (std::size_t i = 0; i < kept.size(); ++i) {
        CHECK_EQ(kept[i].start, static_cast<Time>(i < early ? i : count - late + (i - early)));
      }
    }
  }
}

TEST(SpansAfterASkipAreShifted) {
  SpanLog log(10);
  log.Add({.start = 1, .end = 2});
  log.Skip(100, 7);
  log.Add({.start = 3, .end = 4});
  CHECK_EQ(log.Kept().back().start, 103);
  CHECK_EQ(log.Kept().back().end, 104);
  CHECK_EQ(log.dropped(), 7u);
}

struct Weak {  // many collisions, of positions and of tags
  std::uint64_t operator()(std::uint32_t key) const { return key % 5 * 0x100000001u; }
};

TEST(FlatMapIsAMap) {
  check::ForSeeds(20, [](std::uint64_t seed) {
    check::Random random(seed);
    FlatMap<std::uint32_t, std::uint64_t, Weak> map;
    std::map<std::uint32_t, std::uint64_t> model;
    std::map<std::uint32_t, const std::uint64_t*> places;
    for (int i = 0; i < 200; ++i) {
      const auto key = static_cast<std::uint32_t>(Between(random, 0, 60));
      const auto [value, fresh] = map.TryEmplace(key);
      CHECK_EQ(fresh, !model.contains(key));
      CHECK(fresh || value == places[key]);
      places[key] = value;
      model[key] = *value = Between(random, 0, 1000);
      const auto other = static_cast<std::uint32_t>(Between(random, 0, 60));
      const std::uint64_t* found = map.Find(other);
      CHECK_EQ(found != nullptr, model.contains(other));
      if (found != nullptr) CHECK_EQ(*found, model[other]);
    }
    CHECK_EQ(map.size(), model.size());
    for (const auto& [key, value] : map) CHECK_EQ(value, model.at(key));
  });
}

TEST(AnAgendaIsOrderedByTimeAndThenByInsertion) {
  check::ForSeeds(200, [](std::uint64_t seed) {
    check::Random random(seed);
    Agenda<int> agenda;
    std::multimap<Time, int> model;  // keeps the order of insertion
    Time now = 0;
    for (int i = 0; i < 300; ++i) {
      const auto reach = Time{1} << Between(random, 0, 40);
      if (Between(random, 0, 2) > 0) {
        const Time time = now + static_cast<Time>(Between(random, 0, 3)) * reach;
        agenda.Add(time, i);
        model.emplace(time, i);
      }
      if (Between(random, 0, 2) > 0 && !model.empty()) {
        now = model.begin()->first;
        CHECK_EQ(agenda.next(), now);
        CHECK_EQ(agenda.Take(), model.begin()->second);
        model.erase(model.begin());
      } else if (!model.empty()) {  // time may advance in between
        now += (model.begin()->first - now) / 2;
      }
      CHECK_EQ(agenda.next(), model.empty() ? kNever : model.begin()->first);
    }
    auto expected = model.begin();
    for (const auto& [time, item] : agenda.Coming()) {
      CHECK_EQ(time, expected->first);
      CHECK_EQ(item, (expected++)->second);
    }
    CHECK(expected == model.end());
  });
}

TEST(AnAgendaRefusesTimesInThePast) {
  Agenda<int> agenda;
  agenda.Add(5, 1);
  agenda.Add(7, 2);
  CHECK_EQ(agenda.Take(), 1);
  CHECK(Throws<std::logic_error>([&] { agenda.Add(4, 3); }));
  agenda.Add(5, 4);
  CHECK_EQ(agenda.Take(), 4);
  CHECK_EQ(agenda.Take(), 2);
  CHECK_EQ(agenda.next(), kNever);
}

// One worker, its server and a global server, on a network without delays and limits.
struct Trio {
  Fabric fabric{0, 100};

  explicit Trio(std::size_t layers) {
    const Role roles[] = {Role::kScheduler, Role::kGlobalServer, Role::kServer, Role::kWorker};
    for (NodeId id = 0; id < 4; ++id) {
      NodeConfig config;
      config.id = id;
      config.name = std::to_string(id);
      config.role = roles[id];
      config.open = true;
      config.phantom = true;
      config.quorum = 1;
      if (id > 0) config.scheduler = 0;
      if (id > 1) config.parents = {id - 1};
      if (id == 1 || id == 2) config.children = {id + 1};
      for (NodeId peer = 0; peer < 4; ++peer) {
        if (peer != id) config.peers.push_back({peer, std::to_string(peer), roles[peer]});
      }
      fabric.AddNode(config, std::make_shared<const Costs>());
    }
    for (const auto& [a, b] : {std::pair<NodeId, NodeId>{3, 2}, {2, 1}}) {
      fabric.Connect(a, b, {});
      fabric.Connect(b, a, {});
    }
    std::vector<TrainingPlan::Tensor> tensors;
    for (Key key = 0; key < layers; ++key) {
      tensors.push_back({4, key, Worker::Cut(key, 4, {{.elements = 4}})});
    }
    Pace pace;
    pace.forward.assign(layers, 10);
    pace.backward.assign(layers, 20);
    fabric.Train(3, std::make_shared<TrainingPlan>(layers, std::move(tensors)),
                 std::make_shared<Pace>(std::move(pace)));
  }

  // Returns the time of the next notice, which must be of this kind.
  Time Next(Notice::Kind kind) {
    const Time now = fabric.Advance(kNever);
    const auto notices = fabric.TakeNotices();
    CHECK_EQ(notices.size(), 1u);
    CHECK(!notices.empty() && notices.front().kind == kind);
    return now;
  }
};

TEST(AStepTakesItsLayersTime) {
  Trio trio(3);
  Trainer& trainer = trio.fabric.trainer(3);
  trainer.Start(true, {}, 0);
  const Time ready = trio.Next(Notice::Kind::kReady);
  trainer.Forward(ready);
  CHECK_EQ(trio.Next(Notice::Kind::kForward), ready + 30);
  trainer.Backward({.push = false}, ready + 30);
  CHECK_EQ(trio.Next(Notice::Kind::kReady), ready + 90);
  trainer.Forward(ready + 90);
  CHECK(Throws<std::logic_error>([&] { trainer.Forward(ready + 90); }));
  CHECK_EQ(trio.Next(Notice::Kind::kForward), ready + 120);
  trainer.Backward({.push = true, .last = true}, ready + 120);
  CHECK(trio.Next(Notice::Kind::kReady) >= ready + 180);
  for (Key key = 0; key < 3; ++key) CHECK_EQ(trio.fabric.node(3).worker().ValueRound(key), 1u);
}

TEST(AStateRecursAfterRoundsAndNotWithin) {
  Trio trio(2);
  Trainer& trainer = trio.fabric.trainer(3);
  trainer.Start(true, {}, 0);
  Time now = trio.Next(Notice::Kind::kReady);
  CHECK(!trio.fabric.Recurs(now));
  for (int round = 0; round < 6; ++round) {
    trainer.Forward(now);
    now = trio.Next(Notice::Kind::kForward);
    if (round >= 4) CHECK(trio.fabric.Recurs(now) == false);
    trainer.Backward({.push = true}, now);
    now = trio.Next(Notice::Kind::kReady);
    const auto recurs = trio.fabric.Recurs(now);
    if (round >= 4) CHECK(recurs == true);
    if (round == 3) trio.fabric.Mark(now);
  }
  const std::uint64_t messages = trio.fabric.processed();
  trio.fabric.Mark(now);
  CHECK(trio.fabric.Recurs(now) == true);
  trio.fabric.Repeat(1000, now);  // a period without messages
  CHECK_EQ(trio.fabric.processed(), messages);
}

TEST(APlanWithoutALayerIsRefused) {
  CHECK(Throws<std::invalid_argument>(
      [] { TrainingPlan(1, {{4, 1, Worker::Cut(0, 4, {{.elements = 4}})}}); }));
}

}  // namespace
}  // namespace geomx
