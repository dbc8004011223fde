// Servers that update and encode on a device have the same bits as on the host, with every optimizer,
// codecs on the WAN, and all kinds of rounds.
#include "core/natives.h"
#include "tests/cluster.h"
#include "tests/devices.h"

namespace geomx {
namespace {

using check::Between;
using check::Cluster;
using check::Random;

// Returns a random optimizer with random options.
std::string AnyOptimizer(Random& random) {
  const std::vector<std::string> names = Optimizer::Names();
  const std::string name = names[Between(random, 0, names.size() - 1)];
  std::string text = name + "\nlearning_rate 0.1\nwd 0.01\nrescale_grad 0.25";
  const auto maybe = [&](const char* of, const char* line) {
    if (name == of && Between(random, 0, 1) == 1) text += line;
  };
  maybe("sgd", "\nmomentum 0.9");
  maybe("nag", "\nmomentum 0.9");
  maybe("rmsprop", "\ncentered 1");
  maybe("dcasgd", "\nmomentum 0.9\nvariance 1");
  maybe("dcasgd", "\nsources 2");
  maybe("delayed_nag", "\nmomentum 0.9\ndelay 3");
  return text;
}

CodecChain::Factories SomeCodecs(Random& random) {
  CodecChain::Factories codecs;
  const auto maybe = [&](const char* name, const Options& options) {
    if (Between(random, 0, 1) == 1) {
      codecs.push_back(NativeCodecs::Instance().Create(name, options));
    }
  };
  maybe("bisparse", {{"ratio", 0.2},
                     {"momentum", 0.5},
                     {"masking", 1},
                     {"clip", 0},
                     {"warmup_rounds", 0},
                     {"flush", 0},
                     {"exact", 1}});
  maybe("twobit", {{"threshold", 0}});
  maybe("fp16", {});
  return codecs;
}

TEST(ServersOnADeviceHaveTheBitsOfThoseOnTheHost) {
  check::ForSeeds(20, [](std::uint64_t seed) {
    for (const check::OpenDevice& open : check::Devices()) {
      Random random(seed);
      check::Plan plan;
      plan.frame_bytes = 256;
      plan.wan_push.codecs = SomeCodecs(random);
      plan.wan_pull.codecs = {NativeCodecs::Instance().Create("fp16", {})};
      plan.rounds.together = Between(random, 0, 2) > 0;
      plan.rounds.update_at_party = plan.rounds.together && Between(random, 0, 1) == 1;
      check::Plan with = plan;
      const std::uint64_t least = Between(random, 0, 100);
      with.device = [=] { return std::make_shared<kernels::Device>(open, least, 1 << 20); };
      Cluster host(seed, plan), device(seed, with);
      const auto elements = static_cast<std::uint32_t>(Between(random, 1, 300));
      const auto shards = host.RandomShards(elements, 4);
      const auto start = host.RandomValues(elements);
      std::string optimizer = AnyOptimizer(random);
      for (Cluster* cluster : {&host, &device}) {
        cluster->Declare(0, elements, shards);
        cluster->Init(0, start);
        cluster->Command("optimizer\n" + optimizer);
        cluster->RequestAll(0);
        cluster->Drive();
      }
      for (int round = 0; round < 5; ++round) {
        if (round == 3) optimizer = AnyOptimizer(random);  // replaces the optimizer and its state
        for (const NodeId id : host.workers) {
          const auto value = host.RandomValues(elements);
          for (Cluster* cluster : {&host, &device}) {
            if (round == 3 && id == host.workers.front()) cluster->Command("optimizer\n" + optimizer);
            cluster->Push(id, 0, value);
          }
          // Asynchronous parties must push in the same order in both clusters.
          if (plan.rounds.together) continue;
          host.Drive();
          device.Drive();
        }
        host.Drive();
        device.Drive();
        for (const NodeId id : host.workers) CHECK_EQ(device.Value(id, 0), host.Value(id, 0));
      }
    }
  });
}

Message Push(NodeId source, Key key, Round round, std::uint32_t elements) {
  Message message = check::Transfer(Kind::kPush, source, round, elements);
  message.header.key = key;
  return message;
}

// While the device works on the large key 0, the server answers key 1. Messages about key 0 are handled
// after that, in order.
TEST(AServerHandlesOtherKeysWhileItsDeviceWorks) {
  for (const check::OpenDevice& open : check::Devices()) {
    NodeConfig config;
    config.id = 1;
    config.name = "global";
    config.role = Role::kGlobalServer;
    config.open = true;
    config.quorum = 1;
    config.children = {2};
    config.peers = {{2, "party", Role::kServer}, {0, "scheduler", Role::kScheduler}};
    config.scheduler = 0;
    config.device = std::make_shared<kernels::Device>(open, 10, 1 << 20);
    Node node(config);
    node.Instruct("optimizer\nsgd\nlearning_rate 1", 0);
    for (const Key key : {0u, 1u}) {
      const std::uint32_t elements = key == 0 ? 16 : 4;
      node.Initialise({.key = key, .elements = elements}, Buffer(elements, 5.0f), 0);
    }
    node.HandleMessage(2, Push(2, 0, 1, 16), 0);
    CHECK(!node.HasMessage(2, Lane::kReliable));
    CHECK_EQ(node.GlobalValue(0, 0)->front(), 5.0f);
    const DeviceWork::Ends ends = node.TakeDeviceWork();
    CHECK_EQ(ends.size(), 1u);
    Message request{.header = ShardHeader(Kind::kPullRequest, {.key = 0, .elements = 16})};
    request.header.source = 2;
    node.HandleMessage(2, request, 0);
    node.Instruct("optimizer\nsgd\nlearning_rate 2", 0);
    node.HandleMessage(2, Push(2, 0, 2, 16), 0);
    CHECK(!node.HasMessage(2, Lane::kReliable));
    node.HandleMessage(2, Push(2, 1, 1, 4), 0);
    const std::optional<Message> small = node.PollTransmit(2, Lane::kReliable);
    CHECK(small && small->header.key == 1 && small->header.round == 1);
    CHECK(!node.HasMessage(2, Lane::kReliable));

    ends.front()->Wait();
    node.Resume(0);
    std::vector<std::pair<Round, bool>> answers;
    while (const auto message = node.PollTransmit(2, Lane::kReliable)) {
      CHECK_EQ(message->header.key, 0u);
      answers.emplace_back(message->header.round, (message->header.flags & kPlain) != 0);
    }
    CHECK_EQ(answers.size(), 2u);  // for the round and for the request
    CHECK((answers == std::vector<std::pair<Round, bool>>{{1, false}, {1, true}}));
    CHECK_EQ(node.GlobalValue(0, 0)->front(), 4.0f);
    const DeviceWork::Ends more = node.TakeDeviceWork();  // for the push that arrived meanwhile
    CHECK_EQ(more.size(), 1u);
    more.front()->Wait();
    node.Resume(0);
    CHECK_EQ(node.GlobalValue(0, 0)->front(), 2.0f);
    CHECK(node.PollTransmit(2, Lane::kReliable).has_value());
    CHECK(node.TakeDeviceWork().empty());
    while (const auto event = node.PollEvent()) CHECK(event->kind != Event::Kind::kPeerError);
  }
}

TEST(StateMovesToTheDeviceThatUsesIt) {
  for (const check::OpenDevice& open : check::Devices()) {
    kernels::Device device(open, 0, 1 << 20);
    kernels::Resident state;
    CHECK(state.empty());
    float* here = state.At(kernels::Host(), 3);
    CHECK_EQ(std::vector<float>(here, here + 3), std::vector<float>(3));
    here[1] = 2;
    CHECK(state.At(kernels::Host(), 3) == here);
    const kernels::DeviceContext context = device.context();
    float* there = state.At(context, 3);
    const float more[] = {1, 1, 1};
    const auto brought = device.Upload(more, sizeof more);
    const float* const terms[] = {reinterpret_cast<const float*>(brought.get())};
    context.queue.Add(there, terms, 1, 3);
    here = state.At(kernels::Host(), 5);  // waits for the copy; new elements are zero
    CHECK_EQ(std::vector<float>(here, here + 5), (std::vector<float>{1, 3, 1, 0, 0}));
    kernels::Resident taken = std::exchange(state, {});
    CHECK(state.empty());
    CHECK(taken.At(kernels::Host(), 5) == here);
  }
}

}  // namespace
}  // namespace geomx
