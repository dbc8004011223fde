// One message of the protocol and its form on the wire.
//
// Every message starts with the same fixed header, little-endian, then `payload_bytes` of payload.
// docs/protocol.md describes each kind. ParseHeader rejects headers that are inconsistent in
// themselves; the Node refuses those that contradict its state.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "core/payload.h"
#include "core/types.h"

namespace geomx {

inline constexpr std::uint32_t kMagic = 0x31584d47;  // "GMX1" in memory order
inline constexpr std::uint8_t kWireVersion = 6;
inline constexpr std::size_t kHeaderBytes = 80;
inline constexpr std::uint32_t kMaxPayloadBytes = 64u << 20;
inline constexpr std::uint32_t kMaxRecordsBytes = kMaxPayloadBytes + (1u << 20);  // of a message, and of others before
inline constexpr std::uint8_t kMaxChannel = 63;
inline constexpr int kOffsetBits = 42, kStepsBits = 22;  // together a 64-bit number
inline constexpr std::uint32_t kMaxSteps = (1u << kStepsBits) - 1;  // larger numbers are sent as this one

enum class Kind : std::uint8_t {
  // Membership and control: channel 0, never cut.
  kHello,      // first on a new connection, and its answer (core/link.h); payload: see io/sessions.h
  kJoin,       // node -> scheduler: payload = name, version, address
  kRoster,     // scheduler -> node: all members have joined; payload = the experiment
  kReady,      // node -> scheduler: connected to all peers
  kStart,      // scheduler -> node: all members are ready
  kBarrier,    // worker -> scheduler: waiting at barrier `round`; where rounds close early, also worker ->
               // local server -> global servers; 0: at none
  kRelease,    // scheduler -> worker: barrier `round` is complete
  kHeartbeat,  // on every connection, both ways
  kBye,        // member -> scheduler and parents: finished, leaving in good order
  kStop,       // scheduler -> node: all members have finished
  kDead,       // node -> scheduler -> all: a member was lost; payload = its name and the reason
  kCommand,    // worker -> local server -> global servers (-> local servers): an instruction
  kReport,     // member -> coordinator: payload = numbers, `key` = which coordinator
  kReply,      // coordinator -> member
  // Data: a transfer of one shard, cut into slices.
  kInit,         // worker -> ... -> global server: initial value
  kPullRequest,  // worker -> local server -> global server: asks for the current value
  kPush,         // towards the global server
  kValue,        // the answer, back down
  kClosing,      // any -> any: this process closes its connections and opens no new ones
  kMembers,      // scheduler -> all: a member is lost or back; between servers: a party's workers, and from which round
  kChallenge,    // on a new connection: payload = the called end's nonce
  kProof,        // payload = proof that the calling end knows the token (io/proof.h)
  kRecords,    // global server -> its standby: records of its journal (replicator.h)
  kReplicated, // standby -> its global server: it has applied the records up to batch `offset`
  kIteration,  // worker -> scheduler: it begins local step `round`; scheduler -> all: a first worker does
};
inline constexpr std::uint8_t kKinds = static_cast<std::uint8_t>(Kind::kIteration) + 1;

// True for the kinds that carry slices of a shard.
inline bool IsTransfer(Kind kind) {
  return kind == Kind::kInit || kind == Kind::kPush || kind == Kind::kValue;
}

enum Flags : std::uint8_t {
  kLast = 1,     // the sender will not push this key again; of a value: no contributor will
  kPlain = 2,    // not encoded: initial values travel at full precision
  kAbsent = 4,   // zeros of a worker without a contribution; of a sum: of all its workers
  kTold = 8,     // made after the optimizer was set: no server may use it before it knows of that
};

struct Header {
  Kind kind = Kind::kHello;
  std::uint8_t channel = 0;
  std::uint8_t flags = 0;
  NodeId source = 0;
  Key key = 0;
  std::uint32_t shard = 0;
  Round round = 0;
  std::uint32_t merge_count = 0;  // workers that this value includes
  std::int32_t priority = 0;
  std::uint32_t shard_elements = 0;
  std::uint32_t total_rows = 0;  // rows of the shard's encoded form; dense float32 has one per element
  std::uint32_t first_row = 0;   // this slice: rows [first_row, first_row + rows)
  std::uint32_t rows = 0;
  std::uint32_t slice = 0;       // this slice's number, of `slices`
  std::uint32_t slices = 0;
  std::uint32_t reliable = 0;    // how many of the slices travel on channel 0
  std::uint32_t server = 0;      // index of the global server that holds the shard
  // Of pushes: local steps that the workers in this value have made for it, all of them together. Of
  // what is about initial values: digest of the tensor's name.
  std::uint32_t steps = 0;
  std::uint64_t offset = 0;      // the shard's first element within its tensor; below 2^kOffsetBits
  float loss = std::numeric_limits<float>::quiet_NaN();  // the worker's last training loss
  std::uint32_t payload_bytes = 0;

  Turn turn() const { return {round, (flags & kLast) != 0}; }
  // About a value before any push: the value itself, or a request for it.
  bool initial() const {
    return kind == Kind::kInit || kind == Kind::kPullRequest || (kind == Kind::kValue && (flags & kPlain) != 0);
  }
  ShardInfo shard_info() const {
    return {key, shard, offset, shard_elements, server, priority, initial() ? steps : 0};
  }
};

// A number for the name of a tensor, by which members that mean different tensors by one key notice
// it. Never 0, and small enough for `Header::steps`: of so many different names, one has another's.
std::uint32_t NameDigest(std::string_view name);

// Returns true for training traffic, which byte counts are of. Everything else is control:
// membership, instructions, and initial values.
inline bool IsData(const Header& header) {
  return IsTransfer(header.kind) && (header.flags & kPlain) == 0;
}

// Bytes of payload beyond which no correct node sends a message of this kind.
inline std::uint32_t LongestPayload(Kind kind) {
  switch (kind) {
    case Kind::kInit:
    case Kind::kPush:
    case Kind::kValue:
    case Kind::kRoster: return kMaxPayloadBytes;
    case Kind::kRecords: return kMaxRecordsBytes;
    case Kind::kReport:
    case Kind::kReply: return 16u << 20;
    case Kind::kCommand: return 1u << 20;
    default: return 64u << 10;
  }
}

// The direction of a transfer.
inline Direction DirectionOf(const Header& header) {
  return header.kind == Kind::kValue ? Direction::kPull : Direction::kPush;
}

// Training traffic on its way in one direction.
struct Traffic {
  std::uint64_t bytes = 0, messages = 0;

  void Add(std::uint64_t more_bytes, std::uint64_t more_messages = 1) {
    bytes += more_bytes;
    messages += more_messages;
  }
};

// A moment in microseconds modulo 2^32, about 72 minutes; never 0.
inline std::uint32_t Micros(Time now) {
  return std::max<std::uint32_t>(1, static_cast<std::uint32_t>(now / kMicrosecond));
}

struct Message {
  Header header;
  Payload payload;
  std::uint32_t frames = 1;  // in a simulation: messages on the wire that this one stands for
  // A slice of a value, at its first sender: when it was queued, as by Micros; 0: unknown. Not sent.
  std::uint32_t queued_us = 0;

  std::size_t wire_bytes() const { return std::size_t{frames} * kHeaderBytes + payload.size(); }
};

using WireHeader = std::array<std::byte, kHeaderBytes>;

WireHeader SerializeHeader(const Header& header);

// Returns nothing and sets `error` if a correct peer cannot have sent these bytes as a header.
std::optional<Header> ParseHeader(std::span<const std::byte, kHeaderBytes> bytes,
                                  std::string& error);

// The header of a message about a shard.
inline Header ShardHeader(Kind kind, const ShardInfo& shard) {
  Header header;
  header.kind = kind;
  header.key = shard.key;
  header.shard = shard.index;
  header.offset = shard.offset;
  header.shard_elements = shard.elements;
  header.server = shard.server;
  header.priority = shard.priority;
  if (header.initial()) header.steps = shard.name;
  return header;
}

// The header of a shard's initial value.
inline Header InitialHeader(const ShardInfo& shard) {
  Header header = ShardHeader(Kind::kInit, shard);
  header.flags = kPlain;
  header.merge_count = 1;
  header.priority = INT32_MAX;
  return header;
}

// A message with strings for a payload, of the highest priority.
Message ControlMessage(Kind kind, std::initializer_list<std::string_view> strings = {},
                       Round round = 0);
// A report to, or a reply of, the coordinator `number`.
Message NumbersMessage(Kind kind, std::uint32_t number, std::span<const double> values,
                       std::int32_t priority);

// The payload of a control message: strings, each behind its 32-bit length.
std::vector<std::byte> PackStrings(std::initializer_list<std::string_view> strings);
// Returns nothing unless the bytes hold exactly `count` strings and no more.
std::optional<std::vector<std::string>> UnpackStrings(Bytes bytes, std::size_t count);

// The payload of a report: float64 numbers.
std::vector<std::byte> PackNumbers(std::span<const double> numbers);
std::optional<std::vector<double>> UnpackNumbers(Bytes bytes);

// Returns true if `text` may be part of a line: it is not empty and has no control characters,
// which end or separate.
bool IsLine(std::string_view text);

const char* KindName(Kind kind);

}  // namespace geomx
