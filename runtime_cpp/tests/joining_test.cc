// Calls of joining processes: the scheduler counts processes, not calls, whatever their order. A late
// process accepts calls of its peers once it knows which members are present.
#include <sys/socket.h>

#include <atomic>
#include <list>
#include <thread>

#include "core/member_change.h"
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

// A local server that joins late is told which members are back before it starts, and of absent members when
// they take part. What its workers say must come after that, because it would be discarded before.
TEST(joining_late_nodes_accept_peers_that_are_announced) {
  Cluster cluster;
  NodeConfig config = cluster.configs[Cluster::kServers];
  config.continues = true;
  config.absent = {Cluster::kWorkers};
  const Port port = Bind("127.0.0.1", 0, false);
  Loop late("127.0.0.1", 0, kToken);
  late.StartJoin(Format(port.address), config.name, config.id, kPatience);
  Fd fd;
  while (!fd) fd = Fd(accept(port.listener.get(), nullptr, nullptr));
  Stranger scheduler(std::move(fd));
  scheduler.KnowToken(kToken);
  if (!scheduler.Admit(2)) return check::Report(__FILE__, __LINE__, "it does not join");
  std::string roster;
  for (NodeId id = 1; id < Cluster::kNodes; ++id) roster += Cluster::Name(id) + "\t127.0.0.1:9\t1\n";
  Message answer = ControlMessage(Kind::kRoster, {"the experiment", roster}, 1);
  scheduler.Say(std::move(answer));
  const auto joined = late.WaitJoined(kPatience);
  CHECK(joined && joined->late);
  if (!joined) return;
  late.Run(config, joined->roster, std::nullopt);

  Header hello;
  hello.source = Cluster::kWorkers;
  PutGreeting({.incarnation = 1, .attempt = 1}, hello);
  Stranger worker(late.address());
  worker.KnowToken(kToken);
  CHECK(worker.Greet(hello));
  std::atomic<bool> answered = false;
  std::thread waits([&] {
    CHECK(worker.Prove().first == Kind::kHello);
    answered = true;
  });
  const auto call_as_outsiders = [&] {  // they are refused at once, so earlier calls were seen
    for (int i = 0; i < 3; ++i) {
      Stranger outsider(late.address());
      outsider.KnowToken(kToken);
      hello.source = 99;
      CHECK(outsider.Greet(hello));
      CHECK(outsider.Prove().first == Kind::kDead);
    }
  };
  call_as_outsiders();
  CHECK(!answered);
  scheduler.Say(ControlMessage(Kind::kStart, {"1"}));
  CHECK(late.WaitStarted(kPatience));
  call_as_outsiders();
  CHECK(!answered);
  scheduler.Say(Pack({.epoch = 1,
                      .who = Cluster::kWorkers,
                      .back = true,
                      .incarnation = 1,
                      .name = Cluster::Name(Cluster::kWorkers),
                      .address = "127.0.0.1:9"}));
  waits.join();
  CHECK(answered);
}

}  // namespace geomx::io
