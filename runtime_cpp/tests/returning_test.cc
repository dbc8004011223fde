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
  // What it says to a peer, in order; with a kind, only of that.
  std::vector<Header> Says(NodeId to, std::optional<Kind> kind = {}) {
    std::vector<Header> said;
    while (const auto message = node.PollTransmit(to, Lane::kReliable)) {
      if (!kind || message->header.kind == *kind) said.push_back(message->header);
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

// With several global servers, a party that comes back takes part from the same round of all. It asks for
// values when that is settled.
TEST(a_returning_party_requests_values_when_all_global_servers_have_named_a_round) {
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
    for (const NodeId global : cluster.globals) CHECK_EQ(server.Says(global, Kind::kMembers).size(), 1u);
    for (std::uint32_t shard = 0; shard < 2; ++shard) server.Hear(worker, Ask(shard, 10, 0));
    Round first = 0;
    for (std::size_t i = 0; i < 2; ++i) {
      const auto says = server.Says(cluster.globals[i]);
      CHECK_EQ(says.size(), 1u);
      if (says.empty() || says.front().kind != Kind::kMembers) return check::Report(__FILE__, __LINE__, "nothing said");
      CHECK_EQ(says.front().merge_count, 1u);
      Message answer = ControlMessage(Kind::kMembers, {}, static_cast<Round>(Between(random, 1, 5)));
      first = std::max(first, answer.header.round);
      answer.header.key = says.front().key;
      server.Hear(cluster.globals[i], std::move(answer));
    }
    for (std::uint32_t shard = 0; shard < 2; ++shard) {
      const NodeId global = cluster.globals[shard];
      const auto says = server.Says(global);
      CHECK_EQ(says.size(), 2u);
      if (says.size() != 2) return;
      CHECK(says[0].kind == Kind::kMembers && says[0].round == first);
      CHECK(says[1].kind == Kind::kPullRequest && says[1].shard == shard);
      Message value = Transfer(Kind::kValue, global, first - 1, 10);
      value.header.shard = value.header.server = shard;
      value.header.flags = kPlain;
      value.header.merge_count = says[1].merge_count;
      server.Hear(global, std::move(value));
    }
    CHECK_EQ(server.Says(worker, Kind::kValue).size(), 2u);
    CHECK(server.errors.empty());
  });
}

// Meanwhile no round waits for it that it will not take part in.
TEST(rounds_before_that_of_a_returning_party_do_not_wait_for_it) {
  const Cluster cluster(1, Lasting({1, 1}, 2));
  Alone global(cluster.node(cluster.globals.front()).config());
  const NodeId there = cluster.servers[0], returns = cluster.servers[1];
  const auto answers = [&](Round round) {
    global.Hear(there, Transfer(Kind::kPush, there, round, 10));
    return global.Says(there, Kind::kValue).size();
  };
  const auto says = [&](std::uint32_t workers, Round round) {
    Message message = ControlMessage(Kind::kMembers, {}, round);
    message.header.merge_count = workers;
    message.header.key = 7;
    global.Hear(returns, std::move(message));
  };
  global.Hear(there, Transfer(Kind::kInit, cluster.workers.front(), 0, 10));
  says(0, 0);
  CHECK_EQ(answers(1), 1u);
  says(1, 0);
  const auto named = global.Says(returns, Kind::kMembers);
  CHECK_EQ(named.size(), 1u);
  if (named.empty()) return;
  CHECK(named.front().round == 2 && named.front().key == 7);
  CHECK_EQ(answers(2), 0u);
  says(1, 4);  // another global server is further
  CHECK_EQ(global.Says(there, Kind::kValue).size(), 1u);
  CHECK_EQ(answers(3), 1u);
  CHECK_EQ(answers(4), 0u);
  CHECK(global.errors.empty());
  says(1, 1u << 30);
  CHECK_EQ(global.errors.size(), 1u);
}

// The last round of a party has no deadline. If the worker whose push made it the last one is lost and comes
// back, it pushes again, so that the round is one like others.
TEST(a_round_has_a_deadline_again_when_the_worker_that_ended_it_returns) {
  Plan plan = Lasting({3}, 1);
  plan.party_rounds = [](std::uint32_t) { return std::make_shared<QuorumRounds>(2, kSecond); };
  const Cluster cluster(1, plan);
  const NodeId global = cluster.globals.front();
  Alone server(cluster.node(cluster.servers.front()).config());
  for (const NodeId worker : cluster.workers) server.Hear(worker, Ask(0, 10, 0));
  Message value = Transfer(Kind::kValue, global, 0, 10);
  value.header.flags = kPlain;
  server.Hear(global, std::move(value));
  for (std::size_t i = 0; i < 2; ++i) {
    Message push = Transfer(Kind::kPush, cluster.workers[i], 1, 10);
    if (i == 0) push.header.flags = kLast;
    server.Hear(cluster.workers[i], std::move(push));
  }
  server.node.HandleTimeout(100 * kSecond);
  CHECK(server.Says(global, Kind::kPush).empty());
  std::uint32_t epoch = 0;
  for (const bool back : {false, true}) {
    server.Hear(cluster.scheduler, Pack({.epoch = ++epoch, .who = cluster.workers[0], .back = back,
                                         .incarnation = 1u + back, .name = "worker"}));
  }
  CHECK(server.Says(global, Kind::kPush).empty());
  server.node.HandleTimeout(2 * kSecond);
  CHECK_EQ(server.Says(global, Kind::kPush).size(), 1u);
  CHECK(server.errors.empty());
}

}  // namespace
}  // namespace geomx
