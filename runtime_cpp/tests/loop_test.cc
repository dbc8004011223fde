// The live driver over loopback: its parts, and clusters of loops in this process. Times are bounded
// from below only, so that tests do not depend on the speed of the machine.
#include "io/loop.h"

#include <arpa/inet.h>
#include <fcntl.h>

#include <atomic>
#include <chrono>
#include <future>
#include <random>
#include <thread>

#include "core/natives.h"
#include "io/keyed_hash.h"
#include "tests/check.h"
#include "tests/devices.h"
#include "tests/loops.h"

namespace geomx::io {
namespace {

// Slices single rows, of which odd ones are best effort.
class Alternating final : public Slicer {
 public:
  Alternating(const std::map<std::string, double>&, const ShardInfo&) {}
  void Cut(const SliceContext& context, std::vector<Slice>& slices) override {
    slices.clear();
    const auto rows = static_cast<std::uint32_t>(context.encoded.rows);
    for (std::uint32_t row = 0; row < rows; row += 8) {
      slices.push_back({.first_row = row,
                        .rows = std::min(8u, rows - row),
                        .channel = static_cast<std::uint8_t>(row / 8 % 2)});
    }
  }
};

class AlternatingFactory final : public SlicerFactory {
 public:
  std::unique_ptr<Slicer> Make(const ShardInfo& shard) const override {
    return std::make_unique<Alternating>(std::map<std::string, double>{}, shard);
  }
};

int ConnectTo(const std::string& address, int type) {
  const Address target = Resolve(address);
  const int fd = socket(target.storage.ss_family, type | SOCK_CLOEXEC, 0);
  connect(fd, target.get(), target.length);
  return fd;
}

}  // namespace

TEST(loop_keyed_hash_is_siphash) {
  std::vector<std::byte> bytes(15);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i);
  const KeyedHash::Secret secret{0x0706050403020100u, 0x0f0e0d0c0b0a0908u};
  CHECK_EQ(KeyedHash(secret).Add(bytes).Finish(), 0xa129ca6149be45e5u);  // the paper's example
  const Bytes all(bytes);
  CHECK_EQ(KeyedHash(secret).Add(all.first(3)).Add(all.subspan(3)).Finish(), 0xa129ca6149be45e5u);
  CHECK(SameSecret("abc", "abc") && !SameSecret("abc", "abd") && !SameSecret("abc", "ab"));
}

TEST(loop_frames_are_read_in_any_pieces) {
  FrameLink writer;
  std::vector<std::byte> payload(1000);
  for (std::size_t i = 0; i < payload.size(); ++i) payload[i] = static_cast<std::byte>(i * 31);
  for (const std::size_t size : {0u, 1u, 1000u, 17u}) {
    Message message;
    message.header.kind = Kind::kJoin;
    message.header.round = static_cast<Round>(size);
    message.payload = Payload::Copy(Bytes(payload).first(size));
    message.header.payload_bytes = static_cast<std::uint32_t>(size);
    writer.Push(std::move(message), 0, 0);
  }
  int ends[2];
  CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  int done = 0;
  while (!writer.empty()) {
    CHECK(writer.Write(ends[0], nullptr, 100, [&](const Message&, Time) { ++done; }) > 0);
  }
  CHECK_EQ(done, 4);
  CHECK_EQ(writer.pending_bytes(), std::size_t{0});
  FrameReader reader(1000);
  std::vector<Round> seen;
  for (std::size_t step = 1; seen.size() < 4; step = step % 50 + 7) {
    const auto room = reader.Room();
    const auto got = read(ends[1], room.data(), std::min(room.size(), step));
    CHECK(got > 0);
    if (got <= 0) break;
    if (reader.Filled(static_cast<std::size_t>(got)) != FrameReader::Outcome::kFrame) continue;
    const Frame frame = reader.Take();
    std::vector<std::byte> scratch;
    const Bytes bytes = frame.message.payload.Contiguous(scratch);
    CHECK(std::equal(bytes.begin(), bytes.end(), payload.begin()));
    CHECK_EQ(bytes.size(), std::size_t{frame.message.header.round});
    seen.push_back(frame.message.header.round);
  }
  CHECK(seen == (std::vector<Round>{0, 1, 1000, 17}));
  close(ends[0]);
  close(ends[1]);
}

TEST(loop_reader_refuses_invalid_bytes) {
  std::random_device device;
  const std::uint32_t seed = device();
  std::mt19937 random(seed);
  for (int i = 0; i < 2000; ++i) {
    FrameReader reader(4096);
    const auto room = reader.Room();
    for (std::byte& byte : room) byte = static_cast<std::byte>(random());
    if (i % 2 == 0) std::memcpy(room.data(), "GMXT\0\0\0\0\0\0\0\0\0\0\0\0GMX1\3", 21);
    const auto outcome = reader.Filled(room.size());
    const bool refused = outcome == FrameReader::Outcome::kError && !reader.error().empty();
    const bool plausible = i % 2 == 0 && outcome != FrameReader::Outcome::kError &&
                           reader.Room().size() <= 4096;
    if (!refused && !plausible) std::cerr << "seed " << seed << " case " << i << "\n";
    CHECK(refused || plausible);
  }
}

// What is sent is counted: the join, `ready`, and the acknowledgement of what the scheduler answers.
TEST(loop_counts_joins_and_acknowledgements) {
  Cluster cluster;
  for (NodeConfig& config : cluster.configs) config.heartbeat_interval = 100 * kSecond;
  cluster.Start();
  Loop& worker = cluster.worker(0);
  const std::string name = Cluster::Name(Cluster::kWorkers), version = std::to_string(kWireVersion);
  const std::uint64_t join = kHeaderBytes + PackStrings({name, version, worker.address()}).size();
  const auto counted = [&] { return worker.GetReport().links.at("scheduler").control_bytes; };
  for (int tries = 0; counted() < join + 2 * kHeaderBytes && tries < 5000; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  CHECK(counted() >= join + 2 * kHeaderBytes);
  CHECK_EQ((counted() - join) % kHeaderBytes, 0u);
  cluster.Stop();
}

TEST(loop_cluster_sums_and_stops) {
  Cluster cluster;
  cluster.Start();
  cluster.Declare(0, 5, {{.elements = 5}});
  // Two shards, each larger than a frame.
  cluster.Declare(1, 200'000, {{.elements = 120'000}, {.offset = 120'000, .elements = 80'000}});
  for (int round = 1; round <= 5; ++round) {
    const float scale = static_cast<float>(round);
    CheckSums(cluster.PushAll(0, 5, scale), scale);
    CheckSums(cluster.PushAll(1, 200'000, scale), scale);
  }
  const auto value = cluster.loops[Cluster::kGlobal]->GlobalValue(1, 1);
  CHECK(value.has_value() && value->size() == 80'000);
  CHECK(!cluster.loops[Cluster::kGlobal]->GlobalValue(9, 0).has_value());
  bool refused = false;
  try {
    const std::vector<float> wrong(6);
    cluster.worker(0).Push(0, wrong, nullptr);
  } catch (const std::invalid_argument&) {
    refused = true;
  }
  CHECK(refused);
  cluster.Stop();
  const Report report = cluster.worker(0).GetReport();
  const LinkCounts& up = report.links.at("server0");
  const Traffic& push = up.data[static_cast<int>(Direction::kPush)];
  CHECK_EQ(push.bytes, 5u * (5 * 4 + 200'000 * 4 + push.messages / 5 * kHeaderBytes));
  CHECK(push.messages >= 5 * 5);
  CHECK(up.busy > 0);
  CHECK_EQ(report.node.rounds, std::uint64_t{10});
  CHECK(!cluster.loops[Cluster::kServers]->Spans().empty());
}

TEST(loop_optimizer_barrier_and_callbacks) {
  Cluster cluster;
  cluster.Start();
  cluster.Declare(3, 4, {{.elements = 4}});
  const std::vector<float> initial = {1, 2, 3, 4};
  cluster.worker(0).Init(3, initial, nullptr);
  cluster.worker(0).Command("optimizer\nsgd\nlearning_rate 0.1\n");
  for (NodeId i = 0; i < 4; ++i) {
    cluster.worker(i).Request(3);
    CHECK(cluster.worker(i).Wait(3, 0, kPatience).has_value());
  }
  std::vector<Round> barriers;
  for (NodeId i = 0; i < 4; ++i) {
    if (i == 3) CHECK(!cluster.worker(0).WaitBarrier(1, 0.05));
    barriers.push_back(cluster.worker(i).StartBarrier());
  }
  for (NodeId i = 0; i < 4; ++i) CHECK(cluster.worker(i).WaitBarrier(barriers[i], kPatience));
  std::atomic<int> calls = 0;
  std::vector<float> seen;
  cluster.worker(1).WhenReady(3, 1, [&](std::span<const float> value) {
    seen.assign(value.begin(), value.end());
    ++calls;
  });
  std::atomic<bool> failed = false;
  cluster.worker(2).WhenReady(3, 99, [&](std::span<const float> value) { failed = value.empty(); });
  const std::vector<float> result = cluster.PushAll(3, 4, 1.0f);  // a sum of 10 * (1 2 3 4)
  for (std::size_t j = 0; j < 4; ++j) CHECK_NEAR(result[j], 0.0, 1e-6);
  cluster.Stop();
  CHECK_EQ(calls.load(), 1);
  CHECK(seen == result);
  CHECK(failed.load());
}

// A task that throws ends the loop. Tasks posted in the same batch still run: their callers get an answer.
TEST(loop_errors_end_all_that_waits) {
  struct Seen {
    std::promise<bool> called_back;
    std::promise<void> asked;
  };
  const auto seen = std::make_shared<Seen>();  // which outlives a thread that hangs
  auto called_back = seen->called_back.get_future();
  auto asked = seen->asked.get_future();
  Cluster cluster;
  cluster.Start();
  cluster.Declare(0, 1, {{.elements = 1}});
  Loop& worker = cluster.worker(0);
  worker.WhenReady(0, 1, [&worker, seen](std::span<const float>) {  // all of this is one batch
    worker.WhenReady(0, 1, [](std::span<const float>) { throw std::runtime_error("an error of a callback"); });
    worker.WhenReady(0, 99, [seen](std::span<const float> value) { seen->called_back.set_value(value.empty()); });
    std::promise<void> begins;
    auto begun = begins.get_future();
    std::thread([&worker, &begins, seen] {
      begins.set_value();
      try {
        worker.Absent(0);
      } catch (const std::exception&) {
      }
      seen->asked.set_value();
    }).detach();
    begun.wait();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  });
  const auto one = std::make_shared<std::vector<float>>(1, 1.0f);
  for (NodeId i = 0; i < 4; ++i) cluster.worker(i).Push(0, *one, one);
  const auto patience = std::chrono::duration<double>(kPatience);
  CHECK(called_back.wait_for(patience) == std::future_status::ready && called_back.get());
  CHECK(asked.wait_for(patience) == std::future_status::ready);
  const auto failure = worker.failure();
  CHECK(failure && failure->reason == "internal error: an error of a callback");
}

// A coordinator's reply to its own node passes no link.
TEST(loop_coordinators_may_be_wrong_about_their_own_node) {
  struct Replies final : Coordinator {
    std::vector<Reply> OnReport(NodeId, std::span<const double>, Time) override { return {{Cluster::kServers, {1}}}; }
  };
  Cluster cluster;
  cluster.configs[Cluster::kServers].coordinators[3] = std::make_shared<Replies>();
  cluster.Start();
  cluster.worker(0).SendReport(Cluster::kServers, 3, {1}, 0);
  const Loop& server = *cluster.loops[Cluster::kServers];
  for (int i = 0; i < 100 && !server.failure(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  CHECK(server.failure() && server.failure()->reason.starts_with("a reply of coordinator 3 to server0, which has asked"));
}

// No member may answer so much that memory ends: neither one coordinator, nor very many.
TEST(loop_unread_replies_are_bounded) {
  RunStatus status;
  std::uint32_t of_one = 0, of_all = 0;
  while (of_one < 5000 && status.AddReply(0, {1.0})) ++of_one;
  CHECK_EQ(of_one, 1024u);
  while (of_all < (1u << 20) && status.AddReply(1 + of_all, {1.0})) ++of_all;
  CHECK(of_all > 1024 && of_all < (1u << 15));
  CHECK(!status.AddReply(0, {1.0}));
  CHECK(status.WaitReply(7, 0).has_value());
  CHECK(status.AddReply(7, {1.0}));
  CHECK(!status.AddReply(8, {1.0}));
  status.ForgetReplies();
  const std::vector<double> longest((16u << 20) / sizeof(double) - 1024);
  CHECK(status.AddReply(0, longest) && status.AddReply(1, longest) && !status.AddReply(2, longest));
}

// What is told about members is there at once, also while the loop's thread is busy.
TEST(loop_members_need_no_thread) {
  Cluster cluster;
  for (NodeConfig& config : cluster.configs) config.continues = true;
  cluster.Start();
  cluster.Declare(0, 1, {{.elements = 1}});
  Loop& server = *cluster.loops[Cluster::kServers];
  std::vector<MemberNotice> told;
  const auto listen = [&](Event::Kind kind) {
    for (int tries = 0; tries < 3000; ++tries) {
      for (MemberNotice& notice : server.TakeMembers()) told.push_back(std::move(notice));
      if (!told.empty() && told.back().event.kind == kind) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  };
  cluster.loops[Cluster::kWorkers + 1]->Close();
  listen(Event::Kind::kGone);
  const auto one = std::make_shared<std::vector<float>>(1, 1.0f);
  for (const NodeId i : {0u, 2u, 3u}) cluster.worker(i).Push(0, *one, one);
  listen(Event::Kind::kPartial);
  CHECK_EQ(told.size(), 2u);
  for (const MemberNotice& notice : told) CHECK(notice.names == std::vector<std::string>{"worker1"});
  CHECK(server.InCharge());
}

// The step of a script ends when it has its value, also where that stays on a device.
TEST(loop_values_on_a_device_end_the_wait) {
  Cluster cluster;
  LinkPlan plan;
  plan.codecs = {NativeCodecs::Instance().Create("fp16", {})};
  cluster.configs[Cluster::kServers].links[{Cluster::kWorkers, Direction::kPull}] = plan;
  cluster.configs[Cluster::kWorkers].links[{Cluster::kServers, Direction::kPull}] = plan;
  cluster.Start();
  const Time started = Nanoseconds(*cluster.worker(0).WaitStarted(kPatience));
  constexpr std::uint32_t kElements = 1000;
  cluster.Declare(0, kElements, {{.elements = kElements}});
  const auto open = check::Devices().back();
  DeviceStaging stage(open, 1 << 20);
  const auto queue = open();
  std::byte* const memory = queue->Take(kElements * sizeof(float));
  const DeviceTensor tensor{.address = reinterpret_cast<std::uintptr_t>(memory), .elements = kElements};
  const auto ones = std::make_shared<std::vector<float>>(kElements, 1.0f);
  Loop& worker = cluster.worker(0);
  worker.steps().Start();
  std::vector<Time> arrived;
  for (int round = 1; round <= 4; ++round) {  // from the second on the device decodes
    for (NodeId i = 0; i < 4; ++i) {
      cluster.worker(i).Push(0, *ones, ones);
      if (i == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    CHECK(worker.Wait(0, static_cast<Round>(round), kPatience).has_value());
    arrived.push_back(Now() - started);
    worker.Fill(0, stage, tensor, {});
  }
  worker.steps().Leave();
  const auto steps = worker.steps().Take();
  CHECK_EQ(steps.size(), arrived.size());
  for (std::size_t i = 0; i < steps.size(); ++i) CHECK(steps[i].end >= arrived[i] - 10 * kMillisecond);
  queue->Give(memory);
  cluster.Stop();
}

TEST(loop_may_be_destroyed_on_its_own_thread) {
  Cluster cluster;
  cluster.Start();
  cluster.Declare(0, 1, {{.elements = 1}});
  // A callback holds the last reference to its loop, and drops it after its call.
  std::shared_ptr<Loop> loop = std::move(cluster.loops[Cluster::kWorkers]);
  const auto one = std::make_shared<std::vector<float>>(1, 1.0f);
  loop->Push(0, *one, one);
  Loop& worker = *loop;
  worker.WhenReady(0, 1, [loop = std::move(loop)](std::span<const float>) {});
  for (NodeId i = 1; i < 4; ++i) cluster.worker(i).Push(0, *one, one);
  bool named = false;
  try {
    cluster.worker(3).WaitStopped(kPatience);
  } catch (const NodeLost& lost) {
    named = lost.failure().name == "worker0";
  }
  CHECK(named);
}

TEST(loop_pushes_wait_for_their_time) {
  Cluster cluster;
  cluster.Start();
  cluster.Declare(0, 1, {{.elements = 1}});
  const auto one = std::make_shared<std::vector<float>>(1, 1.0f);
  for (NodeId i = 0; i < 4; ++i) {
    cluster.worker(i).Push(0, *one, one, {.not_before_s = 0.3});
    cluster.worker(i).Push(0, *one, one);  // must not overtake the earlier push
  }
  for (NodeId i = 0; i < 4; ++i) {
    const auto first = cluster.worker(i).Wait(0, 1, kPatience);
    const auto second = cluster.worker(i).Wait(0, 2, kPatience);
    CHECK(first && second && *first >= 0.299 && *second >= *first);
  }
  cluster.Stop();
}

TEST(loop_lost_member_ends_all_waits) {
  for (const NodeId victim : {Cluster::kWorkers + 1, Cluster::kServers, Cluster::kGlobal,
                              Cluster::kScheduler}) {
    Cluster cluster;
    cluster.Start();
    cluster.Declare(0, 1, {{.elements = 1}});
    std::atomic<int> named = 0;
    std::vector<std::thread> waiting;
    for (NodeId id = 0; id < Cluster::kNodes; ++id) {
      if (id == victim) continue;
      waiting.emplace_back([&, id] {
        try {
          cluster.loops[id]->WaitStopped(kPatience);
        } catch (const NodeLost& lost) {
          if (lost.failure().name == Cluster::Name(victim)) ++named;
        }
      });
    }
    cluster.loops[victim]->Close();
    for (std::thread& thread : waiting) thread.join();
    CHECK_EQ(named.load(), static_cast<int>(Cluster::kNodes) - 1);
    const auto begin = Now();
    cluster.loops.clear();
    CHECK(Now() - begin < 10 * kSecond);
  }
}

TEST(loop_random_bytes_change_nothing) {
  Cluster cluster;
  cluster.Start();
  cluster.Declare(0, 1000, {{.elements = 1000}});
  std::random_device device;
  const std::uint32_t seed = device();
  std::atomic<bool> done = false;
  std::thread attacker([&] {
    std::mt19937 random(seed);
    std::vector<char> bytes(400);
    const std::string address = cluster.loops[Cluster::kServers]->address();
    const int datagrams = ConnectTo(address, SOCK_DGRAM);
    for (int i = 0; i < 2000 && !done; ++i) {
      for (char& byte : bytes) byte = static_cast<char>(random());
      if (i % 3 == 0) std::memcpy(bytes.data(), "GMXT\0\0\0\0\0\0\0\0\0\0\0\0GMX1\3\0", 22);
      const std::size_t size = random() % bytes.size();
      (void)!send(datagrams, bytes.data(), size, MSG_NOSIGNAL);
      const int connection = ConnectTo(address, SOCK_STREAM);
      (void)!send(connection, bytes.data(), size, MSG_NOSIGNAL);
      close(connection);
    }
    close(datagrams);
  });
  for (int round = 1; round <= 50; ++round) {
    CheckSums(cluster.PushAll(0, 1000, static_cast<float>(round)), static_cast<float>(round));
  }
  attacker.join();
  CheckSums(cluster.PushAll(0, 1000, 51.0f), 51.0f);
  cluster.Stop();
  const Report report = cluster.loops[Cluster::kServers]->GetReport();
  CHECK(report.refused_callers > 0);
  CHECK(report.datagrams.refused > 0);
  CHECK_EQ(report.datagrams.received, std::uint64_t{0});
  if (check::Failures() > 0) std::cerr << "seed " << seed << "\n";
}

TEST(loop_unidentified_connections_are_limited_and_closed) {
  Loop loop(kOwnHost, 0, kToken);
  std::vector<int> silent;
  for (int i = 0; i < 79; ++i) silent.push_back(ConnectTo(loop.address(), SOCK_STREAM));
  const Time last = Now();
  silent.push_back(ConnectTo(loop.address(), SOCK_STREAM));
  // Returns the reason that a caller receives before its connection is closed.
  const auto dismissal = [](int fd) {
    std::string told;
    char bytes[512];
    for (ssize_t got; (got = recv(fd, bytes, sizeof bytes, 0)) > 0;) told.append(bytes, got);
    return told;
  };
  // The oldest is closed first.
  CHECK(dismissal(silent.front()).find("no hello") != std::string::npos);
  CHECK(dismissal(silent.back()).find("no hello") != std::string::npos);  // after eight seconds without a hello
  CHECK(Now() - last >= 8 * kSecond);
  for (const int fd : silent) close(fd);
  CHECK_EQ(loop.GetReport().refused_callers, std::uint64_t{80});
}

TEST(loop_shaped_link_has_its_bandwidth_and_delay) {
  // 1 MB over 100 Mbit/s and 20 ms between party 0's server and the global server, both ways.
  std::map<NodeId, Shape> shapes;
  const auto slow = [&](NodeId from, NodeId to) {
    Shape& shape = shapes[from];
    shape.edges = {{.schedule = 12.5e6, .delay = 20 * kMillisecond},
                   {.schedule = 12.5e6, .delay = 20 * kMillisecond}};
    Shape::Path path;
    path.path = {0};
    path.reverse = {1};
    path.rtt = 40 * kMillisecond;
    shape.paths[to] = path;
    shape.seed = 1;
  };
  slow(Cluster::kServers, Cluster::kGlobal);
  slow(Cluster::kGlobal, Cluster::kServers);
  Cluster cluster;
  cluster.Start(shapes);
  cluster.Declare(0, 250'000, {{.elements = 250'000}});
  const Time begin = Now();
  CheckSums(cluster.PushAll(0, 250'000, 1.0f), 1.0f);
  const double first = Seconds(Now() - begin);
  const double floor = 2 * (0.08 / net::kPayloadShare + 0.02);
  CHECK(first >= floor);
  CHECK(first < floor + 10.0);
  cluster.Stop();
  const Report report = cluster.loops[Cluster::kServers]->GetReport();
  CHECK(Seconds(report.links.at("global").busy) >= 0.08);
  std::cerr << "  1 MB there and back: " << first << " s, at least " << floor << "\n";
}

TEST(loop_best_effort_slices_are_datagrams) {
  Cluster cluster;
  LinkPlan plan;
  plan.slicers = {std::make_shared<AlternatingFactory>()};
  plan.grace = 2 * kSecond;
  for (const NodeId server : {Cluster::kServers, Cluster::kServers + 1}) {
    cluster.configs[server].links[{Cluster::kGlobal, Direction::kPush}] = plan;
    cluster.configs[Cluster::kGlobal].links[{server, Direction::kPush}] = plan;
  }
  // One party's link is emulated and loses almost every datagram; the other's is not.
  Shape shape;
  shape.edges = {{.schedule = 12.5e9, .delay = kMillisecond}};
  Shape::Path path;
  path.path = {0};
  path.loss = 0.9999;
  path.congestion = net::Congestion::kReno;
  shape.paths[Cluster::kGlobal] = path;
  cluster.Start({{Cluster::kServers + 1, shape}});
  cluster.Declare(0, 64, {{.elements = 64}});
  const std::vector<float> result = cluster.PushAll(0, 64, 1.0f);
  for (std::size_t j = 0; j < 64; ++j) {
    const float scale = static_cast<float>(1 + j % 7);
    const bool reliable = j / 8 % 2 == 0;
    CHECK(result[j] == 10.0f * scale || (!reliable && result[j] == 3.0f * scale));
  }
  cluster.Stop();
  const Report sender = cluster.loops[Cluster::kServers]->GetReport();
  CHECK_EQ(sender.datagrams.sent, std::uint64_t{4});
  CHECK_EQ(cluster.loops[Cluster::kGlobal]->GetReport().datagrams.received, std::uint64_t{4});
  CHECK_EQ(cluster.loops[Cluster::kServers + 1]->GetReport().lost_messages, std::uint64_t{4});
}

// Datagrams that a cut loses take none of the room for those that wait.
TEST(loop_cuts_lose_datagrams_for_good) {
  Cluster cluster;
  for (NodeConfig& config : cluster.configs) config.failure_timeout = 600 * kSecond;  // the cut may be long
  cluster.Start();
  Loop& global = *cluster.loops[Cluster::kGlobal];
  const Address target = Resolve(global.address());
  Datagrams sender(Bind("127.0.0.1", 0).datagrams, kToken, false);
  Message message;
  Header& header = message.header;
  header.kind = Kind::kValue;  // which the node drops, as it comes from a child
  header.channel = 1;
  header.source = Cluster::kServers;
  header.merge_count = header.slices = 1;
  header.shard_elements = header.total_rows = header.rows = 16'000;
  message.payload = Payload::Copy(std::vector<std::byte>(64'000));
  header.payload_bytes = 64'000;
  const auto arrives = [&] {
    const auto handled = [&] {
      const Report report = global.GetReport();
      return report.datagrams.received + report.datagrams.refused;
    };
    const std::uint64_t before = handled();
    constexpr int kAtOnce = 2;  // a socket's buffer may be small
    for (int i = 0; i < kAtOnce; ++i) sender.Send(Cluster::kGlobal, target, message, 0);
    for (int tries = 0; handled() < before + kAtOnce && tries < 5000; ++tries) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  };
  global.Cut(Cluster::kServers);
  while (global.GetReport().lost_messages * message.wire_bytes() < Datagrams::Bounds().of_one + (16u << 20)) {
    const std::uint64_t before = global.GetReport().lost_messages;
    arrives();
    if (global.GetReport().lost_messages == before) {
      check::Report(__FILE__, __LINE__, "datagrams are not lost");
      break;
    }
  }
  global.Heal(Cluster::kServers);
  const std::uint64_t refused = global.GetReport().node.refused_slices;
  const Time end = Now() + 20 * kSecond;  // traffic passes again a while after the cut
  while (global.GetReport().node.refused_slices == refused && Now() < end) arrives();
  CHECK(global.GetReport().node.refused_slices > refused);  // by the node, which has them all
  CHECK_EQ(global.GetReport().datagrams.refused, 0u);
  cluster.Stop();
}

TEST(loop_join_errors_name_the_address) {
  Loop loop("127.0.0.1", 0, kToken);
  std::string address;
  {
    const Loop gone("127.0.0.1", 0, kToken);
    address = gone.address();
  }
  loop.StartJoin(address, "worker0", 4, 0.3);
  std::string error;
  try {
    loop.WaitJoined(kPatience);
  } catch (const std::runtime_error& caught) {
    error = caught.what();
  }
  CHECK_EQ(error.find("no connection to " + address), std::string("cannot join the run: ").size());
  CHECK(error.find("refused") != std::string::npos);
  if (check::Failures() > 0) std::cerr << "the error was: " << error << "\n";
  // A caller with another token learns only that the connection was closed.
  Cluster cluster;
  Loop scheduler("127.0.0.1", 0, "another token");
  scheduler.Run(cluster.configs[Cluster::kScheduler], {}, std::nullopt);
  Loop stranger("127.0.0.1", 0, kToken);
  stranger.StartJoin(scheduler.address(), "worker0", 4, kPatience);
  error.clear();
  try {
    stranger.WaitJoined(kPatience);
  } catch (const std::runtime_error& caught) {
    error = caught.what();
  }
  CHECK(error.find("token") != std::string::npos);
}

}  // namespace geomx::io
