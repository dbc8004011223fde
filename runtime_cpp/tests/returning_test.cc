// Values and rounds of members that have come back (NodeConfig::continues): bugs that drawn faults found
// (docs/faults.md), message by message.
#include <algorithm>

#include "tests/cluster.h"

namespace geomx {
namespace {

using check::Between;
using check::Cluster;
using check::Plan;
using check::Random;
using check::Transfer;

// One node by itself, to which the test says what its peers would say.
struct Alone {
  explicit Alone(const NodeConfig& config) : node(config) { node.AssumeStarted(); }

  void Hear(NodeId from, Message message) {
    message.header.source = from;
    node.HandleMessage(from, message, 1);
    while (const auto event = node.PollEvent()) {
      if (event->kind == Event::Kind::kPeerError) errors.push_back(event->reason);
    }
  }
  // What it says of these kinds, in order.
  std::vector<Header> Says(NodeId to, Kind kind) {
    std::vector<Header> said;
    while (const auto message = node.PollTransmit(to, Lane::kReliable)) {
      if (message->header.kind == kind) said.push_back(message->header);
    }
    return said;
  }

  Node node;
  std::vector<std::string> errors;
};

Plan Lasting(std::vector<std::uint32_t> parties, std::uint32_t global_servers) {
  Plan plan;
  plan.continues = true;
  plan.parties = std::move(parties);
  plan.global_servers = global_servers;
  return plan;
}

Message Ask(std::uint32_t shard, std::uint32_t elements, std::uint32_t mark) {
  Message message = ControlMessage(Kind::kPullRequest);
  message.header.shard = shard;
  message.header.server = shard;
  message.header.shard_elements = elements;
  message.header.merge_count = mark;
  return message;
}

// A party recognises by the mark of its request that an answer is not older than its return.
TEST(requests_before_the_initial_value_are_answered_with_their_mark) {
  const Cluster cluster(1, Lasting({1, 1}, 1));
  Alone global(cluster.node(cluster.globals.front()).config());
  const NodeId first = cluster.servers[0], second = cluster.servers[1];
  global.Hear(second, Ask(0, 10, UINT32_MAX - 1));
  CHECK(global.Says(second, Kind::kValue).empty());
  global.Hear(first, Transfer(Kind::kInit, first, 0, 10));
  const auto values = global.Says(second, Kind::kValue);
  CHECK_EQ(values.size(), 1u);
  if (!values.empty()) CHECK_EQ(values.front().merge_count, UINT32_MAX - 1);
  CHECK(global.errors.empty());
}

// Global servers may be at different rounds when a party comes back; its worker continues after the latest.
TEST(after_a_return_all_shards_continue_after_the_latest_round) {
  check::ForSeeds(40, [](std::uint64_t seed) {
    Random random(seed);
    const Cluster cluster(1, Lasting({1}, 2));
    const NodeId worker = cluster.workers.front(), scheduler = cluster.scheduler;
    Alone server(cluster.node(cluster.servers.front()).config());
    std::uint32_t epoch = 0;
    for (const bool back : {false, true}) {
      server.Hear(scheduler, Pack({.epoch = ++epoch, .who = worker, .back = back, .incarnation = 1u + back,
                                   .name = "worker"}));
    }
    Round latest = 0;
    for (std::uint32_t shard = 0; shard < 2; ++shard) server.Hear(worker, Ask(shard, 10, 0));
    for (std::uint32_t shard = 0; shard < 2; ++shard) {
      const NodeId global = cluster.globals[shard];
      const auto asked = server.Says(global, Kind::kPullRequest);
      CHECK_EQ(asked.size(), 1u);
      if (asked.empty()) return;
      Message value = Transfer(Kind::kValue, global, static_cast<Round>(Between(random, 0, 5)), 10);
      value.header.shard = value.header.server = shard;
      value.header.flags = kPlain;
      value.header.merge_count = asked.front().merge_count;
      latest = std::max(latest, value.header.round);
      server.Hear(global, std::move(value));
    }
    CHECK_EQ(server.Says(worker, Kind::kValue).size(), 2u);
    for (std::uint32_t shard = 0; shard < 2; ++shard) {
      Message push = Transfer(Kind::kPush, worker, latest + 1, 10);
      push.header.shard = push.header.server = shard;
      server.Hear(worker, std::move(push));
      CHECK_EQ(server.Says(cluster.globals[shard], Kind::kPush).size(), 1u);
    }
    CHECK(server.errors.empty());
  });
}

}  // namespace
}  // namespace geomx
