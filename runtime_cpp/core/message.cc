#include "core/message.h"

#include <algorithm>
#include <bit>

#include "core/crc32c.h"

namespace geomx {
namespace {

static_assert(std::endian::native == std::endian::little, "the wire is little-endian");

template <class T>
void Put(WireHeader& out, std::size_t at, T value) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::memcpy(out.data() + at, &value, sizeof value);
}

template <class T>
T Get(std::span<const std::byte, kHeaderBytes> in, std::size_t at) {
  T value;
  std::memcpy(&value, in.data() + at, sizeof value);
  return value;
}

// Byte offsets of the fields; see docs/protocol.md.
enum Field : std::size_t {
  kAtMagic = 0,
  kAtVersion = 4,
  kAtKind = 5,
  kAtChannel = 6,
  kAtFlags = 7,
  kAtSource = 8,
  kAtKey = 12,
  kAtShard = 16,
  kAtRound = 20,
  kAtMergeCount = 24,
  kAtPriority = 28,
  kAtShardElements = 32,
  kAtTotalRows = 36,
  kAtFirstRow = 40,
  kAtRows = 44,
  kAtSlice = 48,
  kAtSlices = 52,
  kAtReliable = 56,
  kAtServer = 60,
  kAtOffset = 64,
  kAtLoss = 68,
  kAtPayloadBytes = 72,
  kAtOffsetAbove = 76,  // its low bits; above them are the steps
};

constexpr int kAboveBits = kOffsetBits - 32;

const char* Inconsistency(const Header& header) {
  const bool records = header.kind == Kind::kRecords;  // each message to a server is a part of one to its standby
  if (header.payload_bytes > (records ? kMaxRecordsBytes : kMaxPayloadBytes)) return "payload too large";
  if (header.channel > kMaxChannel) return "no such channel";
  const bool transfer = IsTransfer(header.kind);
  if (!transfer && header.channel != 0) return "control message off channel 0";
  if (header.shard_elements == 0 && (transfer || header.kind == Kind::kPullRequest)) {
    return "empty shard";
  }
  if (!transfer) return nullptr;
  if (header.slices == 0 || header.slice >= header.slices) return "slice number out of range";
  if (header.reliable > header.slices) return "more reliable slices than slices";
  if (std::uint64_t{header.first_row} + header.rows > header.total_rows) return "rows out of range";
  if (header.merge_count == 0) return "a value that stands for nobody";
  return nullptr;
}

}  // namespace

std::uint32_t NameDigest(std::string_view name) {
  return std::max(1u, Crc32c(std::as_bytes(std::span(name))) & kMaxSteps);
}

WireHeader SerializeHeader(const Header& header) {
  WireHeader out{};
  Put(out, kAtMagic, kMagic);
  Put(out, kAtVersion, kWireVersion);
  Put(out, kAtKind, static_cast<std::uint8_t>(header.kind));
  Put(out, kAtChannel, header.channel);
  Put(out, kAtFlags, header.flags);
  Put(out, kAtSource, header.source);
  Put(out, kAtKey, header.key);
  Put(out, kAtShard, header.shard);
  Put(out, kAtRound, header.round);
  Put(out, kAtMergeCount, header.merge_count);
  Put(out, kAtPriority, header.priority);
  Put(out, kAtShardElements, header.shard_elements);
  Put(out, kAtTotalRows, header.total_rows);
  Put(out, kAtFirstRow, header.first_row);
  Put(out, kAtRows, header.rows);
  Put(out, kAtSlice, header.slice);
  Put(out, kAtSlices, header.slices);
  Put(out, kAtReliable, header.reliable);
  Put(out, kAtServer, header.server);
  Put(out, kAtOffset, static_cast<std::uint32_t>(header.offset));
  const std::uint32_t steps = std::min(header.steps, kMaxSteps);
  Put(out, kAtOffsetAbove, static_cast<std::uint32_t>(header.offset >> 32) | steps << kAboveBits);
  Put(out, kAtLoss, header.loss);
  Put(out, kAtPayloadBytes, header.payload_bytes);
  return out;
}

std::optional<Header> ParseHeader(std::span<const std::byte, kHeaderBytes> bytes,
                                  std::string& error) {
  if (Get<std::uint32_t>(bytes, kAtMagic) != kMagic) {
    error = "not a geomx message";
    return std::nullopt;
  }
  const auto version = Get<std::uint8_t>(bytes, kAtVersion);
  if (version != kWireVersion) {
    error = "wire version " + std::to_string(version) + ", this node speaks " +
            std::to_string(kWireVersion);
    return std::nullopt;
  }
  const auto kind = Get<std::uint8_t>(bytes, kAtKind);
  if (kind >= kKinds) {
    error = "unknown message kind " + std::to_string(kind);
    return std::nullopt;
  }
  Header header;
  header.kind = static_cast<Kind>(kind);
  header.channel = Get<std::uint8_t>(bytes, kAtChannel);
  header.flags = Get<std::uint8_t>(bytes, kAtFlags);
  header.source = Get<NodeId>(bytes, kAtSource);
  header.key = Get<Key>(bytes, kAtKey);
  header.shard = Get<std::uint32_t>(bytes, kAtShard);
  header.round = Get<Round>(bytes, kAtRound);
  header.merge_count = Get<std::uint32_t>(bytes, kAtMergeCount);
  header.priority = Get<std::int32_t>(bytes, kAtPriority);
  header.shard_elements = Get<std::uint32_t>(bytes, kAtShardElements);
  header.total_rows = Get<std::uint32_t>(bytes, kAtTotalRows);
  header.first_row = Get<std::uint32_t>(bytes, kAtFirstRow);
  header.rows = Get<std::uint32_t>(bytes, kAtRows);
  header.slice = Get<std::uint32_t>(bytes, kAtSlice);
  header.slices = Get<std::uint32_t>(bytes, kAtSlices);
  header.reliable = Get<std::uint32_t>(bytes, kAtReliable);
  header.server = Get<std::uint32_t>(bytes, kAtServer);
  const auto above = Get<std::uint32_t>(bytes, kAtOffsetAbove);
  header.offset = Get<std::uint32_t>(bytes, kAtOffset) | std::uint64_t{above & ((1u << kAboveBits) - 1)} << 32;
  header.steps = above >> kAboveBits;
  header.loss = Get<float>(bytes, kAtLoss);
  header.payload_bytes = Get<std::uint32_t>(bytes, kAtPayloadBytes);
  if (const char* reason = Inconsistency(header)) {
    error = std::string(KindName(header.kind)) + ": " + reason;
    return std::nullopt;
  }
  return header;
}

Message ControlMessage(Kind kind, std::initializer_list<std::string_view> strings, Round round) {
  Message message;
  message.header.kind = kind;
  message.header.round = round;
  message.header.priority = INT32_MAX;
  if (strings.size() > 0) message.payload = Payload::Copy(PackStrings(strings));
  return message;
}

Message NumbersMessage(Kind kind, std::uint32_t number, std::span<const double> values,
                       std::int32_t priority) {
  Message message;
  message.header.kind = kind;
  message.header.key = number;
  message.header.priority = priority;
  message.payload = Payload::Copy(PackNumbers(values));
  return message;
}

std::vector<std::byte> PackStrings(std::initializer_list<std::string_view> strings) {
  std::vector<std::byte> out;
  for (std::string_view string : strings) {
    const auto length = static_cast<std::uint32_t>(string.size());
    const auto* prefix = reinterpret_cast<const std::byte*>(&length);
    const auto* text = reinterpret_cast<const std::byte*>(string.data());
    out.insert(out.end(), prefix, prefix + sizeof length);
    out.insert(out.end(), text, text + string.size());
  }
  return out;
}

std::optional<std::vector<std::string>> UnpackStrings(Bytes bytes, std::size_t count) {
  std::vector<std::string> out;
  while (out.size() < count) {
    std::uint32_t length = 0;
    if (bytes.size() < sizeof length) return std::nullopt;
    std::memcpy(&length, bytes.data(), sizeof length);
    bytes = bytes.subspan(sizeof length);
    if (bytes.size() < length) return std::nullopt;
    out.emplace_back(reinterpret_cast<const char*>(bytes.data()), length);
    bytes = bytes.subspan(length);
  }
  if (!bytes.empty()) return std::nullopt;
  return out;
}

std::vector<std::byte> PackNumbers(std::span<const double> numbers) {
  const auto bytes = std::as_bytes(numbers);
  return {bytes.begin(), bytes.end()};
}

std::optional<std::vector<double>> UnpackNumbers(Bytes bytes) {
  if (bytes.size() % sizeof(double) != 0) return std::nullopt;
  std::vector<double> numbers(bytes.size() / sizeof(double));
  if (!bytes.empty()) std::memcpy(numbers.data(), bytes.data(), bytes.size());
  return numbers;
}

bool IsLine(std::string_view text) {
  return !text.empty() && std::none_of(text.begin(), text.end(), [](unsigned char c) {
    return c < 0x20 || c == 0x7f;
  });
}

const char* KindName(Kind kind) {
  static constexpr const char* kNames[] = {
      "hello", "join",  "roster",  "ready", "start",        "barrier", "release", "heartbeat",
      "bye",   "stop",  "dead",    "command", "report", "reply", "init", "pull_request", "push",    "value",
      "closing", "members", "challenge", "proof", "records", "replicated", "iteration"};
  static_assert(std::size(kNames) == kKinds);
  return kNames[static_cast<std::uint8_t>(kind)];
}

}  // namespace geomx
