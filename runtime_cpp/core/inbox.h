// Reassembly: the slices of one shard from one peer, in one direction, become a dense value.
//
// Rounds arrive one after another. A round is complete when all its reliable slices have arrived
// and either the best-effort ones have too or the receiver stops waiting for them (Close). Missing
// slices count as zero. The slices of a complete round must cover every row exactly once. A slice
// that arrives after its round was closed is added once to the next round of the flow, whose number
// may be larger by more than one; older slices and duplicates are refused. Where rounds in between
// may have used other flows (`scattered`), it is added to the round with the next number or to
// none. Late slices are added to pushes only, whose values are summed, not to values that replace
// others. Encodings of a linear chain stay encoded: they are vectors to be added like any other. So
// do values that a device will decode (`keep`), if all slices of a round are reliable.
//
// A simulation has hundreds of thousands of inboxes and is bound by memory latency: the state of a
// round with few slices and no values is small and contiguous.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/archive.h"
#include "core/buffer.h"
#include "core/codec.h"
#include "core/digest.h"
#include "core/message.h"

namespace geomx {

// The set of a round's slices, or of a tensor's shards, that have arrived. Up to 64 need no
// allocation.
class SliceSet {
 public:
  explicit SliceSet(std::uint32_t slices = 0) {
    if (slices > 64) many_ = std::make_unique<std::uint64_t[]>((slices + 63) / 64);
  }
  bool Has(std::uint32_t slice) const { return (Word(slice) >> (slice % 64) & 1) != 0; }
  void Add(std::uint32_t slice) {
    (many_ ? many_[slice / 64] : few_) |= std::uint64_t{1} << (slice % 64);
  }
  // `slices`: as constructed.
  void Exchange(Archive& archive, std::uint32_t slices) {
    archive(few_);
    if (slices > 64) archive.Words(many_, (std::size_t{slices} + 63) / 64);
  }

 private:
  std::uint64_t Word(std::uint32_t slice) const { return many_ ? many_[slice / 64] : few_; }

  std::uint64_t few_ = 0;
  std::unique_ptr<std::uint64_t[]> many_;
};

// Rows of a value, in the memory of the message that has brought them.
struct BorrowedRows {
  std::uint32_t first_row;
  Payload payload;
};
using Borrowed = std::vector<BorrowedRows>;

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
    std::uint32_t missing = 0;  // slices that had not arrived when their round closed
  };

  struct Handling {
    bool keep = false;    // a value stays encoded
    bool again = false;   // a value may arrive a second time, as it was requested again
    bool borrow = false;  // a value whose rows are not encoded stays in the memory of its messages
    bool scattered = false;  // not all rounds of the shard use this flow
  };
  Outcome Accept(const Header& header, const Payload& payload, const CodecChain& chain,
                 std::string& error, Handling handling);
  Outcome Accept(const Header& header, const Payload& payload, const CodecChain& chain,
                 std::string& error) {
    return Accept(header, payload, chain, error, Handling());
  }

  // The place in the round's value for the rows of a message that has begun to arrive: `Accept` finds
  // a payload that lies there, and does not copy it. Null if there is none: the codecs are not empty,
  // rows may be missing or are here already, or the flow is new. The message need not arrive at all.
  std::shared_ptr<std::byte> Room(const Header& header);

  // Drops what has arrived. The sender goes on and may use a number again: best-effort slices that it had sent
  // before may still come, and are refused until the next round begins with a reliable one.
  void BeginAnew() {
    *this = {};
    anew_ = true;
  }

  // Closes the current round as it is and returns its value (empty if phantom or borrowed).
  // REQUIRES: the last outcome for this round was kReliable or kComplete.
  Buffer Close();

  // The header of the current round's first slice, without the fields that identify the flow
  // (source, key, shard) or the slice.
  Header current() const;
  bool open() const { return open_; }
  bool begun() const { return begun_; }  // a first slice has arrived
  bool kept() const { return kept_; }  // the current round's value is encoded, as by CodecChain::Keep
  bool borrowed() const { return borrowed_; }  // the rows of the round that was closed: TakeBorrowed
  Borrowed TakeBorrowed() { return rest_ ? std::exchange(rest_->borrowed, {}) : Borrowed(); }
  Stats stats() const { return rest_ ? rest_->stats : Stats{}; }
  void Describe(Digest& digest, Digest::Level level) const;
  void Exchange(Archive& archive);

 private:
  const char* Begin(const Header& header, const CodecChain& chain, Handling handling);
  const char* Store(const Header& header, const Payload& payload, const CodecChain& chain,
                    bool overwrite);

  // The fields of `current`.
  struct Opening {
    Kind kind = Kind::kHello;
    std::uint8_t flags = 0;
    Round round = 0;
    std::uint32_t merge_count = 0;
    std::int32_t priority = 0;
    std::uint32_t shard_elements = 0;
    std::uint32_t total_rows = 0;
    std::uint32_t slices = 0;
    std::uint32_t reliable = 0;
    std::uint32_t server = 0;
    float loss = 0;
    std::uint64_t offset : kOffsetBits = 0;
    std::uint64_t steps : kStepsBits = 0;
  };
  // State that only rounds with values, or with missing slices, need.
  struct Rest {
    SliceSet seen_before;  // of the round before, while the current one is open
    Round round_before = 0;
    std::uint32_t slices_before = 0;
    // Of the current round; after Close, late slices for the next one, or what arrives early (Room).
    // Shared with payloads that are being received into it.
    std::shared_ptr<Buffer> value;
    Borrowed borrowed;
    const std::byte* room = nullptr;  // the last place in it that Room returned and Accept has not found
    Stats stats;
  };
  Rest& rest() {
    if (!rest_) rest_ = std::make_unique<Rest>();
    return *rest_;
  }
  Buffer& value() {
    if (!rest().value) rest_->value = std::make_shared<Buffer>();
    return *rest_->value;
  }

  Opening opening_;
  bool begun_ : 1 = false;         // a first slice has arrived
  bool open_ : 1 = false;
  bool overwrite_ : 1 = false;     // every row arrives exactly once: no zeroing needed
  bool kept_ : 1 = false;
  bool borrowed_ : 1 = false;
  bool phantom_ : 1 = false;
  bool anew_ : 1 = false;
  bool has_late_ : 1 = false;
  bool holes_before_ : 1 = false;  // slices of the round before were missing when it was closed
  std::uint32_t received_ = 0;
  std::uint32_t reliable_received_ = 0;
  std::uint64_t covered_ = 0;  // by the slices of the current round; see Cover
  SliceSet seen_;  // of the current round, also after it was closed
  std::unique_ptr<Rest> rest_;
};

}  // namespace geomx
