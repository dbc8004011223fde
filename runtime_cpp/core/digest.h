// A fingerprint of the state that future behaviour depends on.
//
// A deterministic simulation that returns to an earlier state repeats itself from there, so the
// repetition need not be simulated. Two states are equal if all times have the same distance from
// now and all rounds the same distance from each other. Numbers that no decision depends on
// (statistics) are left out. A part that cannot describe its state calls `Unknown`; the digest then
// equals no other.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <optional>

#include "core/message.h"
#include "core/types.h"

namespace geomx {

class Digest {
 public:
  // Rounds advance together between workers and their local server, and between local and global
  // servers, but not always one with the other.
  enum class Level : std::uint8_t { kParty, kGlobal };

  explicit Digest(Time now) : now_(now) {}

  void Add(std::uint64_t word) {
    for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
      std::uint64_t& x = lanes_[lane];
      x = (x ^ word) * kFactors[lane];
      x ^= x >> 29;
    }
  }
  void Add(double number) { Add(std::bit_cast<std::uint64_t>(number)); }
  void Moment(Time time) { Add(time == kNever ? UINT64_MAX : static_cast<std::uint64_t>(time - now_)); }
  void Count(Level level, Round round) {
    auto& base = bases_[static_cast<std::size_t>(level)];
    if (!base) base = round;
    Add(std::uint64_t{round - *base});
  }
  void Add(const Message& message, Level level) {
    const Header& header = message.header;
    Add(std::uint64_t{static_cast<std::uint8_t>(header.kind)} << 16 |
        std::uint64_t{header.channel} << 8 | header.flags);
    Count(level, header.round);
    const std::uint32_t words[] = {
        header.source,   header.key,  header.shard, header.merge_count, header.shard_elements,
        header.server,   header.slice, header.slices, header.reliable,
        header.first_row, header.rows, header.total_rows, static_cast<std::uint32_t>(header.priority),
        std::bit_cast<std::uint32_t>(header.loss)};
    for (const std::uint32_t word : words) Add(std::uint64_t{word});
    Add(header.offset);
    Add(std::uint64_t{message.payload.size()});
    if (!message.payload.phantom()) Unknown();
  }
  void Unknown() { known_ = false; }

  Time now() const { return now_; }
  bool known() const { return known_; }
  const std::array<std::uint64_t, 2>& lanes() const { return lanes_; }
  // The first round of the level that was added. All rounds of a level advance by the same number.
  Round base(Level level) const { return bases_[static_cast<std::size_t>(level)].value_or(0); }

 private:
  static constexpr std::uint64_t kFactors[] = {0x9e3779b97f4a7c15u, 0xd1342543de82ef95u};

  Time now_;
  bool known_ = true;
  std::array<std::uint64_t, 2> lanes_ = {0x632be59bd9b4e019u, 0x243f6a8885a308d3u};
  std::array<std::optional<Round>, 2> bases_;
};

}  // namespace geomx
