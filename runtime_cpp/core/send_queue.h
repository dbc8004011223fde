// The messages that one node has queued for one peer.
//
// The next message is chosen when the driver can send one: on the reliable channel the largest
// priority first, equal priorities in the order of submission; on the best-effort channels the
// lowest channel first. Choosing this late is what makes priorities effective.
#pragma once

#include <cstddef>
#include <optional>
#include <unordered_map>
#include <vector>

#include "core/archive.h"
#include "core/digest.h"
#include "core/message.h"

namespace geomx {

enum class Lane : std::uint8_t { kReliable, kBestEffort };

class SendQueue {
 public:
  void Push(Message&& message);

  // Moves the next message of a lane to `message`. Returns false if there is none.
  bool Pop(Lane lane, Message& message);

  bool Empty(Lane lane) const { return heap(lane).empty(); }
  // Returns true if a heartbeat is next; heartbeats leave before all other messages.
  bool HasHeartbeat() const { return !reliable_.empty() && reliable_.front().rank == 0; }
  // Whether no message waits but a heartbeat.
  bool Quiet() const { return reliable_.size() + best_effort_.size() == (HasHeartbeat() ? 1 : 0); }
  std::size_t queued_bytes() const { return queued_bytes_; }

  void Describe(Digest& digest, Digest::Level level) const;
  void Exchange(Archive& archive);

  // Drops best-effort slices of a shard older than `round`, which the receiver would refuse.
  // Returns how many. Looks at the queue only if there are any.
  std::size_t DropStale(Key key, std::uint32_t shard, Round round);
  bool HasStale(Key key, std::uint32_t shard, Round round) const;

 private:
  struct Entry {
    std::uint64_t rank;  // of channel and priority, 0 of heartbeats; the least leaves first
    std::uint32_t sequence;  // modulo 2^32: fewer messages than that wait at a time
    std::uint32_t place;     // in `messages_`

    bool operator<(const Entry& other) const {  // leaves later
      if (rank != other.rank) return rank > other.rank;
      return static_cast<std::int32_t>(sequence - other.sequence) > 0;
    }
  };

  // Best-effort messages of one round of a shard.
  struct Waiting {
    Round round;
    std::uint32_t messages;
  };

  // The message of a place that is free from now on.
  Message& Take(std::uint32_t place);
  static std::uint64_t ShardOf(const Header& header) { return std::uint64_t{header.key} << 32 | header.shard; }
  void CountIn(const Header& header);
  void CountOut(const Header& header);

  std::vector<Entry>& heap(Lane lane) { return lane == Lane::kReliable ? reliable_ : best_effort_; }
  const std::vector<Entry>& heap(Lane lane) const {
    return lane == Lane::kReliable ? reliable_ : best_effort_;
  }

  std::vector<Entry> reliable_, best_effort_;  // heaps
  std::vector<Message> messages_;
  std::vector<std::uint32_t> free_;  // places in `messages_`
  std::unordered_map<std::uint64_t, std::vector<Waiting>> waiting_;  // by shard; few rounds of one wait
  std::uint32_t sequence_ = UINT32_MAX - 99;  // wraps early, so that tests meet it
  std::size_t queued_bytes_ = 0;
};

}  // namespace geomx
