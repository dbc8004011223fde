// The basic value types of the protocol: identities, time, roles.
#pragma once

#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace geomx {

// Nanoseconds since the driver's own epoch. The core never reads a clock: every call that depends
// on time takes `now`, virtual in simulation and monotonic in a live process.
using Time = std::int64_t;
inline constexpr Time kNever = INT64_MAX;
inline constexpr Time kSecond = 1'000'000'000;
inline constexpr Time kMicrosecond = 1'000;
inline constexpr Time kMillisecond = 1'000'000;

// Converts seconds; clamps to about thirty years, which count as never. Throws
// std::invalid_argument for NaN.
inline Time Nanoseconds(double seconds) {
  constexpr double kLongest = 1e9;
  if (!(std::fabs(seconds) < kLongest)) {
    if (std::isnan(seconds)) throw std::invalid_argument("a time must be a number, not NaN");
    return seconds > 0 ? Time{1'000'000'000} * kSecond : Time{-1'000'000'000} * kSecond;
  }
  return static_cast<Time>(std::llround(seconds * kSecond));
}

using NodeId = std::uint32_t;  // position in the roster
using Key = std::uint32_t;     // a tensor
using Round = std::uint32_t;   // 0 is the initial value; a key's first synchronisation is round 1

// A round, as far as the layout of an encoded value may depend on it.
struct Turn {
  Turn(Round number = 1, bool last = false) : round(number), last(last) {}
  Round round;
  bool last;  // no contributor will push this shard again
};

enum class Role : std::uint8_t { kWorker, kServer, kGlobalServer, kScheduler, kStandby };

enum class Direction : std::uint8_t { kPush, kPull };
inline constexpr int kDirections = 2;

// A piece of a tensor that is synchronised on its own: it has its own rounds and belongs to one
// global server. A tensor is one shard unless a plugin cuts it, or it is too large for the fields
// of a message.
inline constexpr std::uint32_t kMaxShardElements = 1u << 30;

struct ShardInfo {
  Key key = 0;
  std::uint32_t index = 0;     // position among the shards of its tensor
  std::uint64_t offset = 0;    // first element within the tensor
  std::uint32_t elements = 0;
  std::uint32_t server = 0;    // which global server holds it (index, not node id)
  std::int32_t priority = 0;   // larger leaves first, on every hop and in both directions
  std::uint32_t name = 0;      // of what the tensor is called (NameDigest); 0: unknown
};

}  // namespace geomx
