// Fuzzes the wire format: bytes are parsed as headers, and delivered as a stream of framed messages to a
// running node of each role. Nothing may crash, and no small input may use much memory or time.
//
// With clang this is a libFuzzer target (-DGEOMX_FUZZ=ON). With GEOMX_FUZZ_MAIN it is a program
// without a fuzzer: `fuzz_wire_main SECONDS [SEED]` mutates messages of correct peers, and stops at the
// first error of a sanitizer or uncaught exception.
#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "core/node.h"
#include "core/worker.h"

namespace {

using namespace geomx;

class Echo final : public Coordinator {
 public:
  std::vector<Reply> OnReport(NodeId from, std::span<const double> values, Time) override {
    return {{from, {values.begin(), values.end()}}};
  }
};

constexpr unsigned kRoles = static_cast<unsigned>(Role::kStandby) + 1;

// Ids: 0 scheduler, 1 and 2 global servers, 3 local server, 4 and 5 its workers, 6 another party's
// local server, 7 the standby of 1. The bytes come from a neighbour of the node under test.
// The lowest bits of `variant` select how rounds complete; from 16 up, there are overlays.
NodeConfig Config(Role role, unsigned variant) {
  NodeConfig config;
  config.role = role;
  config.rounds.together = variant % 3 != 0;
  config.rounds.staleness_bound = 1;
  config.rounds.update_at_party = variant % 3 == 1;
  config.rounds.workers_together = variant % 6 != 0;
  config.coordinators[0] = std::make_shared<Echo>();
  config.name = "node";
  config.scheduler = 0;
  config.heartbeat_interval = kSecond;
  config.frame_bytes = 64;
  // Bounds the allocations of a node by the sizes of the experiment.
  config.max_shard_elements = 1 << 16;
  config.open = variant % 2 == 1;
  const auto peer = [&](NodeId id, Role peer_role) {
    config.peers.push_back({id, "node" + std::to_string(id), peer_role});
  };
  switch (role) {
    case Role::kScheduler:
      config.id = 0;
      config.scheduler.reset();
      config.tree = {{1, 3}, {3, 4}, {3, 5}};
      peer(1, Role::kGlobalServer);
      peer(3, Role::kServer);
      peer(4, Role::kWorker);
      peer(5, Role::kWorker);
      break;
    case Role::kGlobalServer:
      config.id = 1;
      config.children = {3, 6};
      config.master = 3;
      config.quorum = 3;
      config.stands_for = {{3, 2}};
      peer(0, Role::kScheduler);
      peer(3, Role::kServer);
      peer(6, Role::kServer);
      config.links[{3, Direction::kPush}].grace = kSecond;
      break;
    case Role::kServer:
      config.id = 3;
      config.parents = {1, 2};
      config.children = {4, 5};
      config.master = 4;
      config.quorum = 2;
      peer(0, Role::kScheduler);
      peer(1, Role::kGlobalServer);
      peer(2, Role::kGlobalServer);
      peer(4, Role::kWorker);
      peer(5, Role::kWorker);
      config.links[{4, Direction::kPush}].grace = kSecond;
      break;
    case Role::kWorker:
      config.id = 4;
      config.parents = {3};
      peer(0, Role::kScheduler);
      peer(3, Role::kServer);
      break;
    case Role::kStandby:
      config.id = 7;
      config.parents = {1};
      peer(0, Role::kScheduler);
      peer(1, Role::kGlobalServer);
      break;
  }
  if (variant < 16) return config;
  // Coordinators that order each member to send what it has reported.
  if (role == Role::kServer || role == Role::kWorker) {
    config.groups.push_back({3, {4, 5}, 3, 0, true, true});
  }
  if (role == Role::kWorker) peer(5, Role::kWorker);
  if (role == Role::kServer || role == Role::kGlobalServer) {
    config.groups.push_back({1, {3, 6}, 0, 0, true, true});
  }
  if (role == Role::kServer) peer(6, Role::kServer);
  return config;
}

// Sends queued messages and reads events, as a driver does after every call.
void Drain(Node& node) {
  for (const Peer& peer : node.config().peers) {
    for (const Lane lane : {Lane::kReliable, Lane::kBestEffort}) {
      while (const auto message = node.PollTransmit(peer.id, lane)) {
        // Reads every outgoing byte, so that a sanitizer detects uninitialised ones.
        std::vector<std::byte> scratch;
        volatile int sum = 0;
        for (const std::byte byte : message->payload.Contiguous(scratch)) {
          sum = sum ^ std::to_integer<int>(byte);
        }
        std::string error;
        if (!ParseHeader(SerializeHeader(message->header), error)) {
          throw std::logic_error("the node sent a header that no node accepts: " + error);
        }
      }
    }
  }
  while (node.PollEvent()) {
  }
}

void FeedNode(Role role, unsigned variant, const std::uint8_t* data, std::size_t size) {
  Node node(Config(role, variant));
  node.membership().Start(0);
  static const std::vector<float> zeros(8);
  if (role == Role::kWorker) {
    node.worker().Declare(0, 8, {{.elements = 5}, {.offset = 5, .elements = 3}});
    node.worker().Submit(0, {zeros.data(), nullptr, 1.0f, false}, 0);
  }
  Time now = 0;
  while (size > kHeaderBytes) {
    const NodeId from = node.config().peers[*data % node.config().peers.size()].id;
    const bool truthful = *data < 192;  // otherwise, the source is that in the bytes
    now += std::int64_t{*data} << 20;
    ++data, --size;
    WireHeader bytes;
    std::memcpy(bytes.data(), data, kHeaderBytes);
    data += kHeaderBytes, size -= kHeaderBytes;
    std::string error;
    std::optional<Header> header = ParseHeader(bytes, error);
    if (header.has_value() == !error.empty()) throw std::logic_error("refused without a reason");
    if (!header) return;  // the driver closes the connection
    if (truthful) header->source = from;
    header->payload_bytes = static_cast<std::uint32_t>(
        std::min<std::size_t>(header->payload_bytes, size));
    Message message;
    message.header = *header;
    message.payload =
        Payload::Copy({reinterpret_cast<const std::byte*>(data), header->payload_bytes});
    data += header->payload_bytes, size -= header->payload_bytes;
    node.HandleMessage(from, message, now);
    Drain(node);
    if (node.PollTimeout() <= now) node.HandleTimeout(now);
    Drain(node);
  }
  node.HandleLinkDown(node.config().peers.back().id, "closed", now);
  node.HandleTimeout(now + 100 * kSecond);
  Drain(node);
  const NodeStats stats = node.stats();
  if (stats.dropped_slices > 1u << 30) throw std::logic_error("impossible statistics");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  (void)UnpackStrings(std::as_bytes(std::span(data, size)), 1 + data[0] % 4);
  FeedNode(static_cast<Role>(data[0] % kRoles), data[0] / kRoles, data + 1, size - 1);
  return 0;
}

#ifdef GEOMX_FUZZ_MAIN
#include <chrono>
#include <iostream>
#include <random>

namespace {

// Appends a valid or nearly valid message; fields are small numbers, so that messages interact.
void AppendMessage(std::mt19937_64& random, std::vector<std::uint8_t>& input) {
  const auto below = [&](std::uint64_t limit) {
    return static_cast<std::uint32_t>(random() % limit);
  };
  Header header;
  header.kind = static_cast<Kind>(below(3) == 0 ? below(kKinds) : static_cast<unsigned>(Kind::kValue) - below(4));
  header.flags = static_cast<std::uint8_t>(below(4));
  header.source = below(7);
  header.key = below(2);
  header.round = below(4);
  header.merge_count = 1 + below(2);
  header.priority = static_cast<std::int32_t>(below(3)) - 1;
  header.shard_elements = below(4) == 0 ? 1 + below(9) : 5;
  header.total_rows = header.shard_elements;
  header.slices = 1 + below(3);
  header.slice = below(header.slices);
  header.reliable = below(header.slices + 1);
  header.channel = static_cast<std::uint8_t>(IsTransfer(header.kind) ? below(3) : 0);
  header.first_row = header.slices == 1 ? 0 : below(header.total_rows);
  header.rows = header.slices == 1 ? header.total_rows
                                   : below(header.total_rows - header.first_row + 1);
  header.server = below(16) == 0 ? below(4) : below(2);
  header.loss = static_cast<float>(below(5));
  std::vector<std::byte> payload;
  if (IsTransfer(header.kind)) {
    payload.resize(std::size_t{header.rows} * 4);
  } else if (below(2) == 0) {
    payload = PackStrings({"optimizer\nsgd\nmomentum 0.9"});
  } else if (below(2) == 0) {
    const OverlayOrder order{static_cast<Direction>(below(2)), 1 + 2 * below(2), header.key,
                             below(2), header.round, 3 + below(4)};
    payload = PackNumbers(order.Pack());
    if (below(4) == 0) payload.resize(16);
  } else {
    payload = PackStrings({"node4", "lost"});
  }
  header.payload_bytes = static_cast<std::uint32_t>(payload.size());
  WireHeader bytes = SerializeHeader(header);
  if (below(8) == 0) bytes[8 + below(kHeaderBytes - 8)] = static_cast<std::byte>(random());
  input.push_back(static_cast<std::uint8_t>(random()));
  for (const std::byte byte : bytes) input.push_back(std::to_integer<std::uint8_t>(byte));
  for (const std::byte byte : payload) input.push_back(std::to_integer<std::uint8_t>(byte));
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 1;
  std::uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  const bool once = argc > 2;  // a given seed, to reproduce a failure
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  std::uint64_t inputs = 0;
  do {
    std::mt19937_64 random(seed);
    std::vector<std::uint8_t> input = {static_cast<std::uint8_t>(random())};
    for (std::uint64_t messages = 1 + random() % 12; messages > 0; --messages) {
      AppendMessage(random, input);
    }
    if (random() % 4 == 0) input.resize(random() % input.size() + 1);
    // If the process crashes, this is its last line.
    if (std::getenv("GEOMX_FUZZ_VERBOSE") != nullptr) std::cerr << "seed " << seed << std::endl;
    LLVMFuzzerTestOneInput(input.data(), input.size());
    ++seed;
    ++inputs;
  } while (!once && std::chrono::steady_clock::now() < end);
  std::cerr << inputs << " inputs\n";
  return 0;
}
#endif
