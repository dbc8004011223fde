// Values and rounds of members that have come back (NodeConfig::continues): bugs that drawn faults found
// (docs/faults.md), message by message.
#include <algorithm>

#include "tests/alone.h"

namespace geomx {
namespace {

using check::Alone;
using check::Ask;
using check::Between;
using check::Cluster;
using check::Control;
using check::Lasting;
using check::Members;
using check::Plan;
using check::Random;
using check::Transfer;

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
    const NodeId worker = cluster.workers.front();
    Alone server(cluster.node(cluster.servers.front()).config());
    server.Lose(worker);
    server.Return(worker);
    for (const NodeId global : cluster.globals) CHECK_EQ(server.Says(global, Kind::kMembers).size(), 1u);
    for (std::uint32_t shard = 0; shard < 2; ++shard) {
      Message ask = Ask(shard, 10, 0);
      ask.header.server = shard;
      server.Hear(worker, std::move(ask));
    }
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
  server.Lose(cluster.workers[0]);
  server.Return(cluster.workers[0]);
  CHECK(server.Says(global, Kind::kPush).empty());
  server.node.HandleTimeout(2 * kSecond);
  CHECK_EQ(server.Says(global, Kind::kPush).size(), 1u);
  CHECK(server.errors.empty());
}

// A tensor that others push less often, or never, has not completed as many rounds when a worker or a party returns.
TEST(a_returning_member_is_given_tensors_that_are_pushed_less_often) {
  for (const bool party : {false, true}) {
    for (const Round seldom : {0u, 1u}) {
      for (const Round often : {1u, 2u, 5u}) {
        if (seldom >= often) continue;
        const Cluster cluster(1, Lasting(party ? std::vector{1u, 1u} : std::vector{2u}, 1));
        const NodeId above = cluster.globals.front();
        const std::vector<NodeId>& children = party ? cluster.servers : cluster.workers;
        Alone server(cluster.node(party ? above : cluster.servers.front()).config());
        const auto of = [](Key key, Message message) {
          message.header.key = key;
          return message;
        };
        const auto push = [&](NodeId from, Key key, Round round) {
          server.Hear(from, of(key, Transfer(Kind::kPush, from, round, 10)));
        };
        const auto answer = [&](Key key, Round round, std::uint8_t flags = 0) {
          if (party) return;
          Message value = of(key, Transfer(Kind::kValue, above, round, 10));
          value.header.flags = flags;
          value.header.merge_count = 2;
          server.Hear(above, std::move(value));
        };
        const auto given = [&](NodeId child) { return server.Says(child, Kind::kValue); };
        for (const Key key : {0u, 1u}) {
          if (party) server.Hear(children[0], of(key, Transfer(Kind::kInit, children[0], 0, 10)));
          for (const NodeId child : children) server.Hear(child, of(key, Ask(0, 10, 0)));
          answer(key, 0, kPlain);
        }
        for (Round round = 1; round < often; ++round) {
          for (const Key key : {0u, 1u}) {
            if (key == 1 && round > seldom) continue;
            for (const NodeId child : children) push(child, key, round);
            answer(key, round);
          }
        }
        server.Lose(children[1]);
        push(children[0], 0, often);
        server.Return(children[1]);
        for (const Key key : {0u, 1u}) server.Hear(children[1], of(key, Ask(0, 10, 0)));
        answer(0, often);
        given(children[0]);
        push(children[0], 0, often + 1);  // with which the other member is to take part
        const auto values = given(children[1]);
        CHECK_EQ(values.size(), 2u);
        for (const Header& value : values) CHECK_EQ(value.round, value.key == 0 ? often : seldom);
        push(children[1], 0, often + 1);
        answer(0, often + 1);
        push(children[0], 1, seldom + 1);
        CHECK_EQ(given(children[0]).size(), 1u);  // the round of the other tensor waits for both
        push(children[1], 1, seldom + 1);
        answer(1, seldom + 1);
        CHECK_EQ(given(children[0]).size(), 1u);
        CHECK(server.errors.empty());
      }
    }
  }
}

// What was made after the optimizer was set may arrive before that instruction. The round is pushed again when the
// party's worker, or its server's process, comes back before that.
TEST(what_a_returning_party_had_pushed_before_the_instruction_does_not_count) {
  enum class Lost { kNothing, kWorker, kServer };
  const auto train = [](Lost lost) {
    const Cluster cluster(1, Lasting({1, 1}, 1));
    Alone global(cluster.node(cluster.globals.front()).config());
    const NodeId there = cluster.servers[0], returns = cluster.servers[1];
    const auto push = [&](NodeId from, float value) {
      Message message = Transfer(Kind::kPush, from, 1, 10, value);
      message.header.flags = kTold;
      global.Hear(from, std::move(message));
    };
    global.Hear(there, Transfer(Kind::kInit, there, 0, 10));
    if (lost != Lost::kNothing) push(returns, 5);
    if (lost == Lost::kWorker) {
      global.Hear(returns, Members(0));
      global.Hear(returns, Members(1));
    } else if (lost == Lost::kServer) {
      global.Lose(returns);
      global.Return(returns);
    }
    global.Hear(returns, Ask(0, 10, UINT32_MAX - 1));
    push(returns, 3);
    global.Hear(there, Control(Kind::kCommand, there, {"optimizer\nsgd\nlearning_rate 0.5"}));
    push(there, 1);
    CHECK(global.errors.empty());
    CHECK_EQ(global.Says(there, Kind::kValue).size(), 1u);
    return global.node.GlobalValue(0, 0)->front();
  };
  for (const Lost lost : {Lost::kWorker, Lost::kServer}) CHECK_EQ(train(lost), train(Lost::kNothing));
}

// ---- rounds of each party's own ----

// A tensor of two shards, where parties have rounds of their own.
struct TwoShards {
  static Plan Make(std::vector<std::uint32_t> parties, std::uint32_t bound = UINT32_MAX) {
    Plan plan = Lasting(std::move(parties), 1);
    plan.rounds.together = false;
    plan.rounds.staleness_bound = bound;
    return plan;
  }
  static Message Of(std::uint32_t shard, Message message) {
    message.header.shard = shard;
    return message;
  }
  static Message Push(NodeId from, std::uint32_t shard, Round round) {
    return Of(shard, Transfer(Kind::kPush, from, round, 10));
  }
};

// The server of a party of one worker.
struct PartyOfOne : TwoShards {
  void Ask() {
    for (const std::uint32_t shard : {0u, 1u}) server.Hear(worker, check::Ask(shard, 10, 0));
  }
  // The global server gives the value of a shard, after `round`, to the last request for it.
  void Give(std::uint32_t shard, Round round) {
    for (const Header& each : server.Says(global, Kind::kPullRequest)) mark = each.merge_count;
    Message value = Of(shard, Transfer(Kind::kValue, global, round, 10));
    value.header.flags = kPlain;
    value.header.merge_count = mark;
    server.Hear(global, std::move(value));
  }
  // The rounds of the values that the worker is given.
  std::vector<Round> Given() {
    std::vector<Round> rounds;
    for (const Header& each : server.Says(worker, Kind::kValue)) rounds.push_back(each.round);
    return rounds;
  }
  // The worker pushes both shards. Returns the rounds that the party pushes.
  std::vector<Round> PushBoth(Round round) {
    for (const std::uint32_t shard : {0u, 1u}) server.Hear(worker, Push(worker, shard, round));
    std::vector<Round> rounds;
    for (const Header& each : server.Says(global, Kind::kPush)) rounds.push_back(each.round);
    return rounds;
  }
  void Return() {
    server.Lose(worker);
    server.Return(worker);
  }

  const Cluster cluster{1, Make({1, 1})};
  const NodeId worker = cluster.workers.front(), global = cluster.globals.front();
  std::uint32_t mark = 0;
  Alone server{cluster.node(cluster.servers.front()).config()};
};

using Rounds = std::vector<Round>;

// The other party's push of one shard was applied between the two requests, or had not arrived.
TEST(a_party_that_begins_late_continues_at_the_same_round_of_all_shards_of_a_tensor) {
  for (const std::uint32_t first : {0u, 1u}) {
    PartyOfOne party;
    party.Ask();
    party.Give(first, 50);
    party.Give(1 - first, 49);
    CHECK((party.Given() == Rounds{50, 50}));
    CHECK((party.PushBoth(51) == (first == 0 ? Rounds{51, 50} : Rounds{50, 51})));
    CHECK(party.server.errors.empty());
  }
}

// The others had pushed one tensor twice before the party requested it. A worker that comes back takes part from the
// same round of all tensors on, so it could wait for a value of one for ever, and a round of the other for it.
TEST(a_party_that_begins_late_continues_at_the_same_round_of_all_tensors) {
  PartyOfOne party;
  for (const Round round : {0u, 2u}) {
    const auto of = [key = Key{round / 2}](Message message) {
      message.header.key = key;
      return message;
    };
    party.server.Hear(party.worker, of(check::Ask(0, 10, 0)));
    Message value = of(Transfer(Kind::kValue, party.global, round, 10));
    value.header.flags = kPlain;
    value.header.merge_count = party.server.Says(party.global, Kind::kPullRequest).front().merge_count;
    party.server.Hear(party.global, std::move(value));
  }
  CHECK((party.Given() == Rounds{0, 0}));
  CHECK(party.server.errors.empty());
}

// The party had lost its worker between its pushes of two shards; the push of one was never applied.
TEST(a_party_that_returns_continues_at_the_same_round_of_all_shards_of_a_tensor) {
  PartyOfOne party;
  party.Ask();
  for (const std::uint32_t shard : {0u, 1u}) party.Give(shard, 0);
  CHECK((party.Given() == Rounds{0, 0}));
  party.server.Hear(party.worker, TwoShards::Push(party.worker, 0, 1));
  party.Return();
  party.Ask();
  for (const std::uint32_t shard : {0u, 1u}) party.Give(shard, 0);
  CHECK((party.Given() == Rounds{1, 1}));
  party.server.Says(party.global);
  CHECK((party.PushBoth(2) == Rounds{1, 1}));
  CHECK(party.server.errors.empty());
}

// A push that waited at the global server because it was too far ahead is lost with its party's workers.
TEST(a_push_that_was_held_back_does_not_count_after_a_return) {
  const Cluster cluster(1, TwoShards::Make({1, 1}, 0));
  Alone global(cluster.node(cluster.globals.front()).config());
  const NodeId fast = cluster.servers[0], slow = cluster.servers[1];
  global.Hear(fast, Transfer(Kind::kInit, cluster.workers.front(), 0, 10));
  for (const Round round : {1u, 2u}) global.Hear(fast, TwoShards::Push(fast, 0, round));
  CHECK_EQ(global.Says(fast, Kind::kValue).size(), 1u);
  global.Hear(fast, Members(0));
  global.Hear(fast, Members(1));
  global.Hear(fast, Ask(0, 10, UINT32_MAX - 1));
  const auto given = global.Says(fast, Kind::kValue);
  CHECK_EQ(given.size(), 1u);
  if (!given.empty()) CHECK_EQ(given.front().round, 1u);
  global.Hear(fast, TwoShards::Push(fast, 0, 2));
  global.Hear(slow, TwoShards::Push(slow, 0, 1));
  CHECK_EQ(global.Says(fast, Kind::kValue).size(), 1u);
  CHECK(global.errors.empty());
}

// Until a party that has come back is given the value of a shard, its round there is an old one.
TEST(the_staleness_bound_leaves_out_a_returning_party_until_it_has_the_value) {
  const Cluster cluster(1, TwoShards::Make({1, 1, 1}, 1));
  Alone global(cluster.node(cluster.globals.front()).config());
  const NodeId there = cluster.servers[0], one = cluster.servers[1], other = cluster.servers[2];
  for (const std::uint32_t shard : {0u, 1u}) {
    global.Hear(there, TwoShards::Of(shard, Transfer(Kind::kInit, cluster.workers.front(), 0, 10)));
  }
  for (const NodeId away : {one, other}) global.Hear(away, Members(0));
  const auto pushes = [&](std::uint32_t shard, Round round) {
    global.Hear(there, TwoShards::Push(there, shard, round));
    return global.Says(there, Kind::kValue).size();
  };
  for (Round round = 1; round <= 9; ++round) {
    for (const std::uint32_t shard : {0u, 1u}) CHECK_EQ(pushes(shard, round), 1u);
  }
  const auto given = [&](NodeId party, std::uint32_t shard) {
    global.Hear(party, Ask(shard, 10, UINT32_MAX - 1));
    const auto values = global.Says(party, Kind::kValue);
    return values.size() == 1 ? values.front().round : 0;
  };
  for (const NodeId back : {one, other}) global.Hear(back, Members(1));
  CHECK_EQ(given(one, 0), 9u);
  CHECK_EQ(pushes(1, 10), 1u);
  CHECK_EQ(given(other, 1), 10u);
  CHECK_EQ(given(one, 1), 10u);
  CHECK_EQ(pushes(1, 11), 1u);
  CHECK_EQ(pushes(1, 12), 1u);
  CHECK_EQ(pushes(1, 13), 0u);  // three ahead, two of which have not been pushed
  CHECK(global.errors.empty());
}

// ---- best-effort slices ----

// One of two slices of a push; the second is sent on a best-effort channel.
Message Slice(NodeId from, Round round, std::uint32_t slice, float value = 1) {
  Message message = Transfer(Kind::kPush, from, round, 8, value);
  Header& header = message.header;
  header.total_rows = 16;
  header.shard_elements = 16;
  header.slice = slice;
  header.slices = 2;
  header.reliable = 1;
  header.first_row = 8 * slice;
  header.channel = static_cast<std::uint8_t>(slice);
  return message;
}

// The process of a party's server stays when its workers are lost, and so do messages that are under way.
TEST(a_party_that_returns_may_have_slices_of_its_last_push_under_way) {
  for (const bool quorum : {false, true}) {
    Plan plan = Lasting({1, 1}, 1);
    if (quorum) plan.quorum = 2;
    const Cluster cluster(1, plan);
    Alone global(cluster.node(cluster.globals.front()).config());
    const NodeId there = cluster.servers[0], returns = cluster.servers[1];
    global.Hear(there, Transfer(Kind::kInit, cluster.workers.front(), 0, 16));
    global.Hear(returns, Slice(returns, 1, 0));
    global.Hear(there, Transfer(Kind::kPush, there, 1, 16));
    for (const NodeId party : {there, returns}) CHECK_EQ(global.Says(party, Kind::kValue).size(), 1u);
    global.Hear(returns, Members(0));
    global.Hear(there, Transfer(Kind::kPush, there, 2, 16));
    CHECK_EQ(global.Says(there, Kind::kValue).size(), 1u);
    global.Hear(returns, Members(1));
    global.Hear(returns, Slice(returns, 1, 1));
    global.Hear(returns, Ask(0, 16, UINT32_MAX - 1));
    CHECK_EQ(global.Says(returns, Kind::kValue).size(), 1u);
    global.Hear(returns, Slice(returns, 3, 0));
    global.Hear(there, Transfer(Kind::kPush, there, 3, 16));
    CHECK_EQ(global.Says(returns, Kind::kValue).size(), 1u);
    CHECK(global.errors.empty());
  }
}

// A push of which only best-effort slices are missing counts when its party has lost its workers, and is not waited
// for any more.
TEST(a_push_that_waits_for_slices_counts_when_its_party_is_lost) {
  Plan plan = Lasting({1, 1}, 1);
  plan.wan_push.grace = kSecond;
  const Cluster cluster(1, plan);
  Alone global(cluster.node(cluster.globals.front()).config());
  const NodeId there = cluster.servers[0], lost = cluster.servers[1];
  global.Hear(there, Transfer(Kind::kInit, cluster.workers.front(), 0, 16));
  global.Hear(lost, Slice(lost, 1, 0, 2));
  global.Hear(lost, Members(0));
  global.Hear(there, Transfer(Kind::kPush, there, 1, 16));
  CHECK_EQ(global.Says(there, Kind::kValue).size(), 1u);
  const Buffer* const sum = global.node.GlobalValue(0, 0);
  CHECK(sum != nullptr && sum->front() == 3.0f && sum->back() == 1.0f);
  global.Hear(lost, Members(1));
  global.Pass(10 * kSecond);
  global.Hear(lost, Ask(0, 16, UINT32_MAX - 1));
  CHECK_EQ(global.Says(lost, Kind::kValue).size(), 1u);
  global.Hear(lost, Slice(lost, 2, 0));
  global.Hear(there, Transfer(Kind::kPush, there, 2, 16), 10 * kSecond);
  CHECK(global.Says(lost, Kind::kValue).empty());
  global.Pass(20 * kSecond);
  CHECK_EQ(global.Says(lost, Kind::kValue).size(), 1u);
  CHECK(global.errors.empty());
}

}  // namespace
}  // namespace geomx
