// A network that leaves its messages to a model of the driver's: it notes what happens, decides
// nothing, and reads as that model says. The model here is the network's own.
#include <algorithm>
#include <stdexcept>
#include <utility>
#include <vector>

#include "net/flows.h"
#include "tests/check.h"
#include "tests/seeds.h"

using namespace geomx;
using namespace geomx::net;
using check::Between;
using check::Chance;

namespace {

using Kind = ModelCall::Kind;

ConnectionOptions DrawOptions(check::Random& random, std::uint32_t edges) {
  ConnectionOptions options;
  const auto first = static_cast<EdgeId>(Between(random, 0, edges - 1));
  options.path = {first};
  if (const EdgeId second = (first + 1) % edges; Chance(random, 0.5)) options.path.push_back(second);
  options.reverse = {static_cast<EdgeId>(Between(random, 0, edges - 1))};
  options.reverse_share = Chance(random, 0.5) ? 0.017 : 0.0;
  options.weight = static_cast<double>(Between(random, 1, 3));
  options.priority_class = static_cast<int>(Between(random, 0, 1));
  options.efficiency = Chance(random, 0.5) ? 1.0 : 0.9;
  return options;
}

// A fluid network and a delegated one that get the same calls. The delegated one is told the rates and
// completions that the fluid one computes.
class Twins {
 public:
  explicit Twins(check::Random& random) : random_(random) {
    delegated_.Delegate();
    for (std::uint32_t edge = 0; edge < kEdges; ++edge) {
      const double rate = 1e5 * static_cast<double>(Between(random_, 1, 20));
      const Time delay = static_cast<Time>(Between(random_, 0, 20)) * kMillisecond;
      fluid_.AddEdge(rate, delay);
      delegated_.AddEdge(rate, delay);
    }
    for (std::uint32_t id = 0; id < kConnections; ++id) {
      const ConnectionOptions options = DrawOptions(random_, kEdges);
      fluid_.AddConnection(options);
      delegated_.AddConnection(options);
    }
  }

  void Step() {
    std::vector<ConnectionId> completed;
    const Time drawn = now_ + static_cast<Time>(Between(random_, 1, 60)) * kMillisecond;
    const Time next = fluid_.NextEvent();
    now_ = std::min(next, drawn);
    if (now_ == next) {
      fluid_.Advance(now_, &completed);
      for (const ConnectionId id : completed) delegated_.Leave(id, now_);
    }
    for (const ConnectionId id : completed) {
      if (Chance(random_, 0.5)) Start(id);  // at the instant at which its last message has left
    }
    if (now_ == drawn) Disturb();
    Compare();
  }

 private:
  static constexpr std::uint32_t kEdges = 3, kConnections = 4;
  static constexpr double kRounding = 0.01;  // bytes: messages end at whole nanoseconds

  void Start(ConnectionId id) {
    const auto bytes = static_cast<double>(Between(random_, 0, 100'000));
    Both([&](FlowNetwork& network) { network.Start(id, bytes, now_); });
    expected_.push_back({Kind::kStart, id, bytes});
  }

  void Disturb() {
    const auto id = static_cast<ConnectionId>(Between(random_, 0, kConnections - 1));
    const auto edge = static_cast<EdgeId>(Between(random_, 0, kEdges - 1));
    const bool idle = fluid_.Idle(id);
    switch (Between(random_, 0, 6)) {
      case 0: {
        const double rate = 1e5 * static_cast<double>(Between(random_, 0, 20));
        Both([&](FlowNetwork& network) { network.SetCapacity(edge, rate, now_); });
        return expected_.push_back({Kind::kEdge, edge});
      }
      case 1: {
        const ConnectionOptions options = DrawOptions(random_, kEdges);
        Both([&](FlowNetwork& network) { network.Change(id, options, now_); });
        return expected_.push_back({Kind::kChanged, id});
      }
      case 2: {
        if (!idle) expected_.push_back({Kind::kCancelled, id});
        return Both([&](FlowNetwork& network) { network.Abort(id, now_); });
      }
      case 3: {
        if (!idle) return;
        const ConnectionOptions options = DrawOptions(random_, kEdges);
        Both([&](FlowNetwork& network) { network.Renew(id, options, now_); });
        expected_.push_back({Kind::kNew, id});
        return expected_.push_back({Kind::kChanged, id});
      }
      default:
        if (idle) Start(id);
    }
  }

  template <class Apply>
  void Both(Apply apply) {
    apply(fluid_);
    apply(delegated_);
  }

  // At the end of an instant.
  void Compare() {
    fluid_.NextEvent();
    CHECK_EQ(delegated_.NextEvent(), kNever);
    CHECK_EQ(delegated_.HasCalls(), !expected_.empty());
    const std::vector<ModelCall> calls = delegated_.TakeCalls();
    CHECK_EQ(calls.size(), expected_.size());
    for (std::size_t i = 0; i < std::min(calls.size(), expected_.size()); ++i) {
      CHECK(calls[i].kind == expected_[i].kind);
      CHECK_EQ(calls[i].number, expected_[i].number);
      CHECK_EQ(calls[i].bytes, expected_[i].bytes);
    }
    expected_.clear();
    for (ConnectionId id = 0; id < kConnections; ++id) {
      CHECK_EQ(delegated_.Idle(id), fluid_.Idle(id));
      CHECK_EQ(delegated_.Delay(id), fluid_.Delay(id));
      CHECK_NEAR(delegated_.Left(id, now_), fluid_.Left(id, now_), kRounding);
      delegated_.SetRate(id, fluid_.Rate(id), now_);
      CHECK_EQ(delegated_.Rate(id), fluid_.Rate(id));
      const Time later = now_ + kMillisecond;
      CHECK_NEAR(delegated_.Left(id, later), fluid_.Left(id, later), kRounding);
    }
    for (EdgeId edge = 0; edge < kEdges; ++edge) {
      CHECK_NEAR(delegated_.Load(edge), fluid_.Load(edge), 1e-3);
      CHECK_EQ(delegated_.Capacity(edge), fluid_.Capacity(edge));
    }
    CHECK(delegated_.EdgesBusy(now_) == fluid_.EdgesBusy(now_));
  }

  check::Random& random_;
  FlowNetwork fluid_, delegated_;
  std::vector<ModelCall> expected_;
  Time now_ = 0;
};

}  // namespace

TEST(delegated_networks_read_as_the_model_of_the_driver_says) {
  check::ForSeeds(60, [](std::uint64_t seed) {
    check::Random random(seed);
    Twins twins(random);
    for (int step = 0; step < 100; ++step) twins.Step();
  });
}

TEST(delegated_networks_refuse_what_did_not_happen) {
  FlowNetwork network;
  network.Delegate();
  ConnectionOptions options;
  options.path = {network.AddEdge(1e6, 0)};
  const ConnectionId id = network.AddConnection(options);
  const auto refuses = [](auto call) {
    try {
      call();
    } catch (const std::logic_error&) {
      return true;
    }
    return false;
  };
  CHECK(refuses([&] { network.Leave(id, 0); }));
  network.Start(id, 100.0, 0);
  CHECK(refuses([&] { network.Start(id, 100.0, 0); }));
  network.Leave(id, kSecond);
  CHECK(refuses([&] { network.Leave(id, kSecond); }));
  CHECK(!network.Idle(id));  // in this instant
  network.SetRate(id, 1e6, kSecond);  // of a message that has left: without effect
  network.NextEvent();
  CHECK(network.Idle(id));
  CHECK_EQ(network.Rate(id), 0.0);
}
