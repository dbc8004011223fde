// Live links whose connections break: no message is lost or counted twice, and the breaks are logged.
#include <dirent.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <list>
#include <random>
#include <thread>

#include "tests/loops.h"
#include "tests/seeds.h"
#include "tests/stranger.h"

namespace geomx::io {
namespace {

using namespace std::chrono_literals;

// Returns the connected TCP sockets of this process: both ends of all connections of a test.
std::vector<int> Connected() {
  std::vector<int> found;
  DIR* const folder = opendir("/proc/self/fd");
  while (const dirent* entry = readdir(folder)) {
    const int fd = std::atoi(entry->d_name);
    int type = 0;
    socklen_t length = sizeof type;
    sockaddr_storage peer{};
    socklen_t peer_length = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) != 0 || type != SOCK_STREAM) continue;
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_length) != 0) continue;
    if (peer.ss_family == AF_INET || peer.ss_family == AF_INET6) found.push_back(fd);
  }
  closedir(folder);
  return found;
}

// Closes a connection regularly, or by a reset, which loses the data in flight.
void Break(int fd, bool reset) {
  sockaddr none{};
  none.sa_family = AF_UNSPEC;
  if (reset) {
    connect(fd, &none, sizeof none);
  } else {
    shutdown(fd, SHUT_RDWR);
  }
}

// Breaks random connections until its destruction, `pause` apart at first, then ever more slowly: a
// machine that takes long over a greeting would otherwise never end one before its connection breaks.
class Breaker {
 public:
  explicit Breaker(std::uint32_t seed, std::chrono::duration<double> pause)
      : thread_([this, seed, pause] {
          std::mt19937 random(seed);
          for (auto wait = pause; !done_; wait *= 1.01) {
            std::this_thread::sleep_for(wait);
            const std::vector<int> all = Connected();
            if (all.empty()) continue;
            Break(all[random() % all.size()], random() % 2 == 0);
            ++count_;
          }
        }) {}
  ~Breaker() {
    done_ = true;
    thread_.join();
  }
  int count() const { return count_; }

 private:
  std::atomic<bool> done_ = false;
  std::atomic<int> count_ = 0;
  std::thread thread_;
};

}  // namespace

// What waits for its time of arrival is bounded for all connections of a link together: a hostile member can
// call again and again.
TEST(reconnect_connections_share_the_bound_of_held_messages) {
  Cluster cluster;
  Loop scheduler("127.0.0.1", 0, kToken);
  scheduler.Run(cluster.configs[Cluster::kScheduler], {}, std::nullopt);
  Message held = ControlMessage(Kind::kReport);
  held.header.source = Cluster::kWorkers;
  held.payload = Payload::Copy(std::vector<std::byte>(1 << 20));
  held.header.payload_bytes = 1 << 20;
  std::list<Stranger> open;
  for (std::uint32_t attempt = 1; attempt <= 4; ++attempt) {
    Stranger& caller = open.emplace_back(scheduler.address());
    caller.KnowToken(kToken);
    Header hello;
    hello.source = Cluster::kWorkers;
    PutGreeting({.attempt = attempt, .first = 77}, hello);
    CHECK(caller.Greet(hello));
    CHECK(caller.Prove().first == Kind::kHello);
    FrameLink link;
    for (int i = 0; i < 48; ++i) link.Push(held, Now() + 500 * kSecond, 0);
    for (int idle = 0; !link.empty() && idle < 200;) {
      const long taken = link.Write(caller.fd(), nullptr, 1 << 20, [](const Message&, Time) {});
      if (taken < 0) return check::Report(__FILE__, __LINE__, "the connection has ended");
      idle = taken > 0 ? 0 : idle + 1;
      if (taken == 0) std::this_thread::sleep_for(1ms);
    }
  }
  const std::uint64_t most = scheduler.GetReport().held_bytes_max;
  CHECK(most > std::uint64_t{60} << 20);
  CHECK(most < std::uint64_t{68} << 20);
}

TEST(reconnect_resets_do_not_change_sums) {
  std::random_device device;
  const std::uint32_t seed = device();
  Cluster cluster;
  for (NodeConfig& config : cluster.configs) config.redial = 50 * kMillisecond;
  cluster.Start();
  cluster.Declare(0, 1000, {{.elements = 1000}});
  cluster.Declare(1, 300'000, {{.elements = 200'000}, {.offset = 200'000, .elements = 100'000}});
  int broken = 0;
  {
    const Breaker breaker(seed, 3ms);
    const int rounds = static_cast<int>(check::Draws(60));
    for (int round = 1; round <= rounds || breaker.count() < 40; ++round) {
      const float scale = static_cast<float>(round % 50);
      CheckSums(cluster.PushAll(0, 1000, scale), scale);
      CheckSums(cluster.PushAll(1, 300'000, scale), scale);
    }
    for (NodeId i = 0; i < 4; ++i) CHECK(cluster.worker(i).StartBarrier() == 1);
    for (NodeId i = 0; i < 4; ++i) CHECK(cluster.worker(i).WaitBarrier(1, kPatience));
    broken = breaker.count();
  }
  cluster.Stop();
  CHECK(broken >= 40);
  if (check::Failures() > 0) std::cerr << "seed " << seed << "\n";
}

// Connections break while `bye` and `stop` are sent.
TEST(reconnect_a_run_ends_despite_resets) {
  std::random_device device;
  const std::uint32_t seed = device();
  for (int run = 0; run < 3; ++run) {
    Cluster cluster;
    // A node stays this long for the acknowledgement of its last message if that is lost.
    for (NodeConfig& config : cluster.configs) config.failure_timeout = 5 * kSecond;
    cluster.Start();
    cluster.Declare(0, 10, {{.elements = 10}});
    CheckSums(cluster.PushAll(0, 10, 1.0f), 1.0f);
    const Breaker breaker(seed + static_cast<std::uint32_t>(run), 1ms);
    cluster.Stop();
  }
  if (check::Failures() > 0) std::cerr << "seed " << seed << "\n";
}

// On emulated links, messages are in flight for a long time. Received ones that wait for their time of
// arrival outlive the connection, and the others are sent again.
TEST(reconnect_emulated_links_recover) {
  std::random_device device;
  const std::uint32_t seed = device();
  std::map<NodeId, Shape> shapes;
  for (const auto& [from, to] : {std::pair{Cluster::kServers, Cluster::kGlobal},
                                 std::pair{Cluster::kGlobal, Cluster::kServers}}) {
    Shape& shape = shapes[from];
    shape.edges = {{.schedule = 50e6, .delay = 10 * kMillisecond},
                   {.schedule = 50e6, .delay = 10 * kMillisecond}};
    Shape::Path path;
    path.path = {0};
    path.reverse = {1};
    path.rtt = 20 * kMillisecond;
    shape.paths[to] = path;
    shape.seed = 1;
  }
  Cluster cluster;
  cluster.Start(shapes);
  cluster.Declare(0, 100'000, {{.elements = 100'000}});
  {
    const Breaker breaker(seed, 10ms);
    for (int round = 1; round <= 10; ++round) {
      CheckSums(cluster.PushAll(0, 100'000, static_cast<float>(round)), static_cast<float>(round));
    }
  }
  cluster.Stop();
  if (check::Failures() > 0) std::cerr << "seed " << seed << "\n";
}

// A pushed array is released when the peer has received all of it.
TEST(reconnect_arrays_are_released) {
  Cluster cluster;
  cluster.Start();
  cluster.Declare(0, 100'000, {{.elements = 100'000}});
  std::vector<std::weak_ptr<const void>> kept;
  for (NodeId i = 0; i < 4; ++i) {
    const auto value = std::make_shared<std::vector<float>>(100'000, 1.0f);
    kept.push_back(value);
    cluster.worker(i).Push(0, *value, value);
  }
  for (NodeId i = 0; i < 4; ++i) CHECK(cluster.worker(i).Wait(0, 1, kPatience).has_value());
  const Time deadline = Now() + 10 * kSecond;
  for (const auto& value : kept) {
    while (!value.expired() && Now() < deadline) std::this_thread::sleep_for(1ms);
    CHECK(value.expired());
  }
  cluster.Stop();
}

}  // namespace geomx::io
