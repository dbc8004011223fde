// Reassembly: the slices of one shard from one peer, in one direction, become a dense value.
//
// Rounds arrive one after another. A round is complete when all its reliable slices are in and
// either the best-effort ones are too or the receiver gives up waiting for them (Close). Missing
// slices count as zero. A slice that arrives after its round was closed is kept for the next round
// and added there once, or dropped if that round does not come this way; older ones are refused, and so is everything that arrives twice. Late adding
// is for pushes, whose values are summed; it is off for values that replace.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/codec.h"
#include "core/message.h"

namespace geomx {

using Buffer = std::vector<float>;

class Inbox {
 public:
  enum class Outcome {
    kPartial,    // taken; the round is not complete
    kReliable,   // taken; only best-effort slices are missing
    kComplete,   // taken; nothing is missing
    kLate,       // taken for the next round
    kRefused,    // duplicate or stale: dropped
    kError,      // not what a correct peer would send; see `error`
  };

  struct Stats {
    std::uint64_t late = 0;
    std::uint64_t refused = 0;
    std::uint64_t missing = 0;  // slices that were not there when their round closed
  };

  Outcome Accept(const Header& header, const Payload& payload, const CodecChain& chain,
                 std::string& error);

  // Declare the current round complete as it is and take its value (empty if phantom).
  // REQUIRES: the last outcome for this round was kReliable or kComplete.
  Buffer Close();

  // The header of the current round's first slice: merge count, flags, loss.
  const Header& current() const { return header_; }
  bool open() const { return open_; }
  const Stats& stats() const { return stats_; }

 private:
  const char* Begin(const Header& header, const CodecChain& chain);
  const char* Store(const Header& header, const Payload& payload, const CodecChain& chain,
                    Buffer& target, bool overwrite);

  Header header_;
  bool open_ = false;
  bool overwrite_ = false;   // every row arrives exactly once: no need for zeros
  bool phantom_ = false;
  std::uint32_t received_ = 0;
  std::uint32_t reliable_received_ = 0;
  std::vector<bool> seen_;        // of the current round, also after it was closed
  std::vector<bool> seen_before_; // of the round before, while the current one is open
  Round round_before_ = 0;
  std::uint32_t slices_before_ = 0;
  Buffer value_;   // of the current round; after Close, late slices for the next one
  bool has_late_ = false;
  std::vector<std::byte> scratch_;
  Stats stats_;
};

}  // namespace geomx
