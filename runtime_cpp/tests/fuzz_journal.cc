// Bytes that claim to be what an earlier process has written: the file of a journal, its records, the
// state of an optimizer. They are read, or refused with a sentence; nothing may crash, and no small
// input may cost much memory or time.
//
// With clang this is a libFuzzer target (-DGEOMX_FUZZ=ON). With GEOMX_FUZZ_MAIN it is a program that
// needs no fuzzer: `fuzz_journal_main SECONDS [SEED]` makes its own inputs, by mutating what is right.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "core/crc32c.h"
#include "core/optimizer.h"
#include "core/recorded_node.h"
#include "core/replay.h"
#include "core/state.h"
#include "core/worker.h"
#include "io/journal_file.h"
#include "tests/ignored_replay.h"

namespace {

using namespace geomx;

// ---- what is read ----

constexpr std::size_t kMagicBytes = 8, kHeadBytes = 16;
constexpr std::uint64_t kElements = 3;

// Every optimizer, with all of its state in use.
std::unique_ptr<Optimizer> MakeOptimizer(unsigned which) {
  const std::vector<std::string> names = Optimizer::Names();
  const std::string& name = names[which % names.size()];
  for (const char* option : {"\nmomentum 0.9", "\ncentered 1", ""}) {
    try {
      return Optimizer::Make(OptimizerSpec::Parse(name + option), 0);
    } catch (const std::invalid_argument&) {
      continue;  // it has no such option
    }
  }
  throw std::logic_error("no optimizer " + name);
}

// Checksums are made right where their number is in the file at all: what is behind them is to be read.
void Repair(std::vector<std::byte>& file) {
  const auto put = [&file](std::size_t at, std::uint32_t crc) { std::memcpy(&file[at], &crc, sizeof crc); };
  for (std::size_t at = kMagicBytes; at + kHeadBytes <= file.size();) {
    std::uint32_t sizes[2];
    std::memcpy(sizes, &file[at], sizeof sizes);
    const std::uint64_t length = std::uint64_t{sizes[0]} + sizes[1];
    const std::size_t body = at + kHeadBytes;
    if (length <= file.size() - body) put(at + 8, Crc32c(Bytes(file).subspan(body, length)));
    put(at + 12, Crc32c(Bytes(file).subspan(at, 12)));
    if (length > file.size() - body) return;
    at = body + length;
  }
}

void ReadFile(std::vector<std::byte> file, bool repaired) {
  if (repaired) Repair(file);
  const int memory = memfd_create("journal", 0);
  if (memory < 0 || write(memory, file.data(), file.size()) != static_cast<ssize_t>(file.size())) {
    throw std::runtime_error("no file for the journal");
  }
  try {
    io::JournalFile journal("/proc/self/fd/" + std::to_string(memory));
    journal.Read([](Bytes body, const Payload&) { (void)TimeOf(body); });
  } catch (const JournalError& error) {
    if (*error.what() == 0) throw std::logic_error("refused without a reason");
  }
  close(memory);
}

// A worker with its local server and its scheduler.
NodeConfig Config() {
  NodeConfig config;
  config.role = Role::kWorker;
  config.name = "worker";
  config.id = 2;
  config.scheduler = 0;
  config.parents = {1};
  config.frame_bytes = 64;
  config.max_shard_elements = 1 << 16;
  config.peers = {{0, "scheduler", Role::kScheduler}, {1, "server", Role::kServer}};
  return config;
}

// Records, each with the numbers of its bytes of body and payload before it.
void ReadRecords(Bytes bytes) {
  Node node(Config());
  node.AssumeStarted();
  check::IgnoredReplay ignored;
  Replay replay(node, ignored);
  try {
    while (bytes.size() > 2) {
      const auto next = [&bytes](std::size_t count) {
        const Bytes taken = bytes.first(std::min(count, bytes.size()));
        bytes = bytes.subspan(taken.size());
        return taken;
      };
      const Bytes sizes = next(2);
      const Bytes body = next(std::to_integer<std::size_t>(sizes[0]));
      replay.Apply(body, Payload::Copy(next(std::to_integer<std::size_t>(sizes[1]))));
    }
  } catch (const JournalError&) {
  }
}

// The state of a node, as a journal's snapshot.
void ReadSnapshot(Bytes saved) {
  Node node(Config());
  node.AssumeStarted();
  check::IgnoredReplay ignored;
  Replay replay(node, ignored);
  try {
    replay.Apply(RecordWriter(RecordKind::kState).Put(false).body(), Payload::Copy(saved));
    replay.Apply(RecordWriter(RecordKind::kSnapshot).Put(Time{1}).Put(std::uint32_t{0}).body(), {});
  } catch (const JournalError& error) {
    if (*error.what() == 0) throw std::logic_error("refused without a reason");
    return;
  }
  geomx::Digest digest(0);
  node.Describe(digest);
}

void ReadState(unsigned which, Bytes fields) {
  FieldWriter writer;
  writer.Append(fields);
  const std::vector<std::byte> sealed = SealState("optimizer", writer);
  for (const Bytes saved : {Bytes(sealed), fields}) {
    const auto optimizer = MakeOptimizer(which);
    try {
      optimizer->Load(saved, kElements);
    } catch (const StateError&) {
      continue;
    }
    std::vector<float> weight(kElements), gradient(kElements);
    optimizer->Update(weight, gradient);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const Bytes rest(reinterpret_cast<const std::byte*>(data + 1), size - 1);
  const unsigned variant = data[0] / 4;
  switch (data[0] % 4) {
    case 0: ReadState(variant, rest); break;
    case 1: variant % 2 == 0 ? ReadRecords(rest) : ReadSnapshot(rest); break;
    default: ReadFile({rest.begin(), rest.end()}, data[0] % 4 == 2); break;
  }
  return 0;
}

#ifdef GEOMX_FUZZ_MAIN
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <random>

namespace {

using Random = std::mt19937_64;

std::uint32_t Below(Random& random, std::uint64_t limit) { return static_cast<std::uint32_t>(random() % limit); }

std::vector<std::byte> State(Random& random, unsigned which) {
  const auto optimizer = MakeOptimizer(which);
  std::vector<float> weight(kElements), gradient(kElements);
  for (auto updates = Below(random, 3); updates > 0; --updates) {
    optimizer->Update(weight, gradient, {.source = Below(random, 3)});
  }
  const std::vector<std::byte> saved = optimizer->Save();
  constexpr std::size_t kFields = 24 + 4 + 9;  // behind the head and the kind, "optimizer"
  return {saved.begin() + kFields, saved.end()};
}

struct Pieces final : JournalOut {
  void Add(std::span<const std::byte> body, const Payload& payload) override {
    if (body[0] != std::byte(RecordKind::kState)) return;
    for (const Bytes& piece : payload.pieces()) bytes.insert(bytes.end(), piece.begin(), piece.end());
  }
  void Commit() override {}
  std::vector<std::byte> bytes;
};

std::vector<std::byte> Snapshot(Random& random) {
  RecordedNode node(Config());
  node.node().AssumeStarted();
  for (Key key = 0; key < 2; ++key) {
    node.Declare(key, 4, Worker::Cut(key, 4, {{.elements = 4}}));
    const auto value = std::make_shared<std::vector<float>>(4, 1.0f);
    if (Below(random, 2) == 0) node.Init(key, value->data(), value, 0);
    for (auto pushes = Below(random, 3); pushes > 0; --pushes) {
      node.Submit(key, {.value = value->data(), .owner = value}, 1);
    }
  }
  while (node.PollEvent()) continue;
  Pieces pieces;
  node.Snapshot(pieces, {.held = {}, .under_way = {}, .restarts = 0, .exchange = [](Archive&) {}}, 2);
  return pieces.bytes;
}

// A record that is right, or nearly: fields are small numbers, so that records meet each other.
std::pair<std::vector<std::byte>, std::vector<std::byte>> Record(Random& random) {
  const auto kind = static_cast<RecordKind>(Below(random, 30));
  RecordWriter record(kind);
  std::vector<std::byte> payload;
  switch (kind) {
    case RecordKind::kDeclare:
      record.Put(Key{Below(random, 2)}).Put(std::uint64_t{4}).Put(std::uint64_t{0});
      record.Put(std::uint32_t{4}).Put(std::uint32_t{0}).Put(std::int32_t{0});
      break;
    case RecordKind::kInit:
    case RecordKind::kSubmit:
    case RecordKind::kRequest:
      record.Put(Key{Below(random, 2)}).Put(Time{Below(random, 100)});
      if (kind == RecordKind::kSubmit) record.Put(0.5f).Put(false).Put(Below(random, 2) == 1);
      break;
    case RecordKind::kState:
      record.Put(Below(random, 4) == 0);
      payload.resize(Below(random, 4) == 0 ? Below(random, 40) : 16);
      break;
    case RecordKind::kNote: record.Text("note"); break;
    case RecordKind::kMessage:
    case RecordKind::kHold: {
      Header header;
      header.kind = static_cast<Kind>(Below(random, kKinds));
      header.source = Below(random, 2);
      header.key = Below(random, 2);
      header.round = Below(random, 3);
      header.shard_elements = header.total_rows = header.rows = 4;
      header.slices = 1;
      header.reliable = 1;
      payload.resize(16);
      header.payload_bytes = 16;
      record.Put(NodeId{header.source}).Put(Time{Below(random, 100)}).Put(SerializeHeader(header));
      break;
    }
    case RecordKind::kSends:
      record.Put(NodeId{Below(random, 3)}).Put(Lane::kReliable).Put(static_cast<Fate>(Below(random, 3)));
      record.Put(Below(random, 2) == 1).Put(std::uint32_t{1 + Below(random, 3)});
      break;
    default:
      for (auto words = Below(random, 6); words > 0; --words) record.Put(Below(random, 3));
  }
  std::vector<std::byte> body(record.body().begin(), record.body().end());
  if (Below(random, 10) == 0) body[Below(random, body.size())] ^= std::byte(random());
  return {body, payload};
}

std::vector<std::byte> Input(Random& random) {
  const auto target = Below(random, 256);
  std::vector<std::byte> input = {std::byte(target)};
  const auto append = [&input](Bytes bytes) { input.insert(input.end(), bytes.begin(), bytes.end()); };
  if (target % 4 == 0) append(State(random, target / 4));
  const bool snapshot = target % 4 == 1 && target / 4 % 2 == 1;
  if (snapshot) append(Snapshot(random));
  if (target % 4 > 1) append(std::as_bytes(std::span("GMXJRNL5", kMagicBytes)));
  for (auto records = Below(random, 12); target % 4 > 0 && !snapshot && records > 0; --records) {
    const auto [body, payload] = Record(random);
    FieldWriter sizes;
    if (target % 4 == 1) {
      sizes.Put(static_cast<std::uint8_t>(body.size())).Put(static_cast<std::uint8_t>(payload.size()));
    } else {
      sizes.Put(static_cast<std::uint32_t>(body.size())).Put(static_cast<std::uint32_t>(payload.size()));
      sizes.Put(std::uint64_t{0});
    }
    append(sizes.body());
    append(body);
    append(payload);
  }
  for (auto wrong = Below(random, 3); wrong > 0; --wrong) input[Below(random, input.size())] ^= std::byte(random());
  if (Below(random, 4) == 0) input.resize(1 + Below(random, input.size()));
  return input;
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 1;
  std::uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  const bool once = argc > 2;  // one named input, to look at it again
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  std::uint64_t inputs = 0;
  do {
    Random random(seed);
    const std::vector<std::byte> input = Input(random);
    // Should the process die in here, this is the last line that it wrote.
    if (std::getenv("GEOMX_FUZZ_VERBOSE") != nullptr) std::cerr << "seed " << seed << std::endl;
    LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
    ++seed;
    ++inputs;
  } while (!once && std::chrono::steady_clock::now() < end);
  std::cerr << inputs << " inputs\n";
  return 0;
}
#endif
