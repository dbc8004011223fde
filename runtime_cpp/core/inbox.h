// Reassembly: the slices of one shard from one peer, in one direction, become a dense value.
//
// Rounds arrive one after another. A round is complete when all its reliable slices are in and
// either the best-effort ones are too or the receiver gives up waiting for them (Close). Missing
// slices count as zero. A slice that arrives after its round was closed is kept for the next round
// and added there once, or dropped if that round does not come this way; older ones are refused, and so is everything that arrives twice. Late adding
// is for pushes, whose values are summed; it is off for values that replace. What a linear chain
// encoded stays encoded: it is a vector to be added like any other. So do values that are to be
// decoded elsewhere (`keep`), if all of a round's slices are reliable.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/codec.h"
#include "core/digest.h"
#include "core/message.h"

namespace geomx {

using Buffer = std::vector<float>;

// Which of a round's slices, or of a tensor's shards, have come. Most are few: up to 64 take no memory.
class SliceSet {
 public:
  explicit SliceSet(std::uint32_t slices = 0) {
    if (slices > 64) many_ = std::make_unique<std::uint64_t[]>((slices + 63) / 64);
  }
  bool Has(std::uint32_t slice) const { return (Word(slice) >> (slice % 64) & 1) != 0; }
  void Add(std::uint32_t slice) {
    (many_ ? many_[slice / 64] : few_) |= std::uint64_t{1} << (slice % 64);
  }

 private:
  std::uint64_t Word(std::uint32_t slice) const { return many_ ? many_[slice / 64] : few_; }

  std::uint64_t few_ = 0;
  std::unique_ptr<std::uint64_t[]> many_;
};

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
    std::uint32_t late = 0;
    std::uint32_t refused = 0;
    std::uint32_t missing = 0;  // slices that were not there when their round closed
  };

  Outcome Accept(const Header& header, const Payload& payload, const CodecChain& chain,
                 std::string& error, bool keep = false);

  // Declare the current round complete as it is and take its value (empty if phantom).
  // REQUIRES: the last outcome for this round was kReliable or kComplete.
  Buffer Close();

  // The header of the current round's first slice: merge count, flags, loss.
  const Header& current() const { return header_; }
  bool open() const { return open_; }
  bool kept() const { return kept_; }  // the current round's value is encoded, as by CodecChain::Keep
  const Stats& stats() const { return stats_; }
  void Describe(Digest& digest, Digest::Level level) const;

 private:
  const char* Begin(const Header& header, const CodecChain& chain, bool keep);
  const char* Store(const Header& header, const Payload& payload, const CodecChain& chain,
                    Buffer& target, bool overwrite);

  Header header_;
  bool begun_ = false;       // a first slice has come
  bool open_ = false;
  bool overwrite_ = false;   // every row arrives exactly once: no need for zeros
  bool kept_ = false;
  bool phantom_ = false;
  bool has_late_ = false;
  std::uint32_t received_ = 0;
  std::uint32_t reliable_received_ = 0;
  SliceSet seen_;         // of the current round, also after it was closed
  SliceSet seen_before_;  // of the round before, while the current one is open
  Round round_before_ = 0;
  std::uint32_t slices_before_ = 0;
  Buffer value_;   // of the current round; after Close, late slices for the next one
  Stats stats_;
};

}  // namespace geomx
