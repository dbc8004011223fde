// Calls of a process that joins: the scheduler counts processes, not calls, in whatever order they arrive.
#include <sys/socket.h>
#include <unistd.h>

#include "tests/loops.h"

namespace geomx::io {
namespace {

// Says hello as a process that does not know its incarnation. Returns the answer's greeting, or
// nothing after a refusal.
std::optional<Greeting> SayHello(const std::string& address, std::uint32_t attempt, std::uint32_t mark,
                                 std::vector<int>& open) {
  const Address target = Resolve(address);
  const int fd = socket(target.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  open.push_back(fd);
  CHECK_EQ(connect(fd, target.get(), target.length), 0);
  Message hello;
  hello.header.kind = Kind::kHello;
  hello.header.source = Cluster::kWorkers;
  PutGreeting({.attempt = attempt, .first = mark}, hello.header);
  hello.payload = Payload::Copy(PackStrings({kToken}));
  CHECK(WriteAlone(fd, nullptr, std::move(hello)));
  FrameReader reader(4096);
  while (true) {
    const auto room = reader.Room();
    const ssize_t got = recv(fd, room.data(), room.size(), 0);
    if (got <= 0) return std::nullopt;
    if (reader.Filled(static_cast<std::size_t>(got)) != FrameReader::Outcome::kFrame) continue;
    const Header header = reader.Take().message.header;
    if (header.kind != Kind::kHello) return std::nullopt;
    return GreetingOf(header);
  }
}

}  // namespace

TEST(joining_calls_of_one_process_count_once) {
  Cluster cluster;
  Loop scheduler("127.0.0.1", 0, kToken);
  scheduler.Run(cluster.configs[Cluster::kScheduler], {}, std::nullopt);
  std::vector<int> open;
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
  for (const int fd : open) close(fd);
}

}  // namespace geomx::io
