// Calls of a process that joins: the scheduler counts processes, not calls, in whatever order they arrive.
#include <list>

#include "tests/loops.h"
#include "tests/stranger.h"

namespace geomx::io {
namespace {

// Says hello as a process that does not know its incarnation. Returns the answer's greeting, or
// nothing after a refusal. The connection is kept in `open`.
std::optional<Greeting> SayHello(const std::string& address, std::uint32_t attempt, std::uint32_t mark,
                                 std::list<Stranger>& open) {
  Stranger& caller = open.emplace_back(address);
  caller.KnowToken(kToken);
  Header hello;
  hello.source = Cluster::kWorkers;
  PutGreeting({.attempt = attempt, .first = mark}, hello);
  if (!caller.Greet(hello) || caller.Prove().first != Kind::kHello) return std::nullopt;
  return caller.greeting;
}

}  // namespace

TEST(joining_calls_of_one_process_count_once) {
  Cluster cluster;
  Loop scheduler("127.0.0.1", 0, kToken);
  scheduler.Run(cluster.configs[Cluster::kScheduler], {}, std::nullopt);
  std::list<Stranger> open;
  const auto hello = [&](std::uint32_t attempt, std::uint32_t mark) {
    return SayHello(scheduler.address(), attempt, mark, open);
  };
  const auto later = hello(2, 77);
  CHECK(later && later->incarnation == 1);
  CHECK(!hello(1, 77));  // its first call arrives last
  const auto again = hello(3, 77);
  CHECK(again && again->incarnation == 1);
  const auto another = hello(1, 78);
  CHECK(another && another->incarnation == 2);
}

}  // namespace geomx::io
