#include "core/inbox.h"

#include <algorithm>
#include <utility>

namespace geomx {
namespace {

// A checksum of the rows [begin, end): the terms of adjacent slices cancel where they meet. The
// checksums of a round's slices therefore add up to that of the whole shard exactly if the slices
// cover every row once. (A bitmap of rows would show the same, at a cost per row.)
std::uint64_t Cover(std::uint64_t begin, std::uint64_t end) {
  const auto mixed = [](std::uint64_t row) {  // SplitMix64 (Steele, Lea, Flood 2014)
    row = (row + 1) * 0x9e3779b97f4a7c15u;
    row = (row ^ (row >> 30)) * 0xbf58476d1ce4e5b9u;
    row = (row ^ (row >> 27)) * 0x94d049bb133111ebu;
    return row ^ (row >> 31);
  };
  return mixed(end) - mixed(begin);
}

}  // namespace

const char* Inbox::Begin(const Header& header, const CodecChain& chain, Handling handling) {
  std::uint64_t most_rows = header.shard_elements;
  bool in_place = true;  // rows lie where they belong
  if (!chain.Dense()) {
    const Parts layout = chain.Layout(header.shard_elements, header.turn());
    most_rows = layout.rows;
    in_place = layout.Find("indices") == nullptr;
  }
  if (header.total_rows > most_rows) return "more rows than the codec makes";
  if (header.slices > std::uint64_t{header.total_rows} + 1) return "more slices than rows";
  if (header.reliable < header.slices && !chain.SurvivesHoles()) {
    return "best-effort slices of a codec that cannot lose any";
  }
  const bool next = !handling.scattered || header.round == opening_.round + 1;
  if (has_late_ && !next) {
    rest().value = nullptr;
    has_late_ = false;
  }
  holes_before_ = begun_ && next && received_ < opening_.slices;
  if (holes_before_) {
    rest().seen_before = std::move(seen_);
    rest().round_before = opening_.round;
    rest().slices_before = opening_.slices;
  }
  opening_ = {.kind = header.kind,
              .flags = header.flags,
              .round = header.round,
              .merge_count = header.merge_count,
              .priority = header.priority,
              .shard_elements = header.shard_elements,
              .total_rows = header.total_rows,
              .slices = header.slices,
              .reliable = header.reliable,
              .server = header.server,
              .loss = header.loss,
              .offset = header.offset,
              .steps = std::min(header.steps, kMaxSteps)};
  begun_ = open_ = true;
  anew_ = false;
  received_ = reliable_received_ = 0;
  covered_ = 0;
  seen_ = SliceSet(header.slices);
  overwrite_ = !has_late_ && header.reliable == header.slices && in_place;
  const bool whole = overwrite_ && header.total_rows == header.shard_elements;
  if (!has_late_ && !whole && rest_) rest_->value = nullptr;  // what began to arrive never did
  borrowed_ = handling.borrow && whole && chain.Dense();
  if (rest_) rest_->borrowed.clear();
  kept_ = handling.keep && header.reliable == header.slices && header.total_rows == most_rows;
  return nullptr;
}

Header Inbox::current() const {
  Header header;
  header.kind = opening_.kind;
  header.flags = opening_.flags;
  header.round = opening_.round;
  header.merge_count = opening_.merge_count;
  header.priority = opening_.priority;
  header.shard_elements = opening_.shard_elements;
  header.total_rows = opening_.total_rows;
  header.slices = opening_.slices;
  header.reliable = opening_.reliable;
  header.server = opening_.server;
  header.offset = opening_.offset;
  header.steps = static_cast<std::uint32_t>(opening_.steps);
  header.loss = opening_.loss;
  return header;
}

const char* Inbox::Store(const Header& header, const Payload& payload, const CodecChain& chain,
                         bool overwrite) {
  phantom_ = payload.phantom();
  if (phantom_) {
    return chain.CheckSlice(header.shard_elements, header.first_row, header.rows,
                            header.total_rows, payload.size(), header.turn());
  }
  if (borrowed_) {
    rest().borrowed.push_back({header.first_row, payload});
    return chain.CheckSlice(header.shard_elements, header.first_row, header.rows, header.total_rows,
                            payload.size(), header.turn());
  }
  Buffer& target = value();
  std::vector<std::byte> scratch;
  if (chain.Linear() || kept_) {
    return chain.Keep(payload.Contiguous(scratch), header.shard_elements, header.first_row,
                      header.rows, header.total_rows, target, header.turn());
  }
  if (target.size() != header.shard_elements) {
    // Rows that all arrive, and that nothing is added to, need not be cleared.
    const bool covered = overwrite && !holes_before_ && chain.Dense() &&
                         header.total_rows == header.shard_elements;
    target.clear();
    if (!covered) target.assign(header.shard_elements, 0.0f);
    target.resize(header.shard_elements);
  }
  const auto pieces = payload.pieces();
  if (overwrite && pieces.size() == 1 && chain.Dense() &&
      pieces[0].data() == reinterpret_cast<const std::byte*>(target.data() + header.first_row)) {
    rest_->room = nullptr;
    return chain.CheckSlice(header.shard_elements, header.first_row, header.rows, header.total_rows,
                            payload.size(), header.turn());
  }
  return chain.DecodeInto(payload.Contiguous(scratch), header.shard_elements, header.first_row,
                          header.rows, header.total_rows, overwrite, target.data(), header.turn());
}

std::shared_ptr<std::byte> Inbox::Room(const Header& header) {
  const bool whole = header.total_rows == header.shard_elements && header.reliable == header.slices &&
                     header.channel == 0 && header.payload_bytes == std::uint64_t{header.rows} * sizeof(float);
  if (!begun_ || phantom_ || !whole || header.shard_elements != opening_.shard_elements) return nullptr;
  if (open_) {
    const bool same = header.round == opening_.round && header.slices == opening_.slices;
    if (!same || !overwrite_ || kept_ || seen_.Has(header.slice)) return nullptr;
  } else if (header.round != opening_.round + 1 || has_late_ || received_ < opening_.slices) {
    return nullptr;
  }
  Buffer& target = value();
  if (target.size() != header.shard_elements) {
    target.clear();
    target.resize(header.shard_elements);
  }
  auto* const place = reinterpret_cast<std::byte*>(target.data() + header.first_row);
  rest_->room = place;
  return {rest_->value, place};
}

Inbox::Outcome Inbox::Accept(const Header& header, const Payload& payload,
                             const CodecChain& chain, std::string& error, Handling handling) {
  const auto fail = [&](const char* reason) {
    error = reason;
    return Outcome::kError;
  };
  if (anew_ && header.channel != 0) {
    ++rest().stats.refused;
    return Outcome::kRefused;
  }
  const bool first = !begun_;
  if (!first && header.shard_elements != opening_.shard_elements) {
    return fail("the shard changed its size");
  }
  if (first || header.round > opening_.round || (handling.again && !open_)) {
    if (open_) return fail("a new round before the last one was complete");
    if (header.channel != 0) {  // best effort: dropped without changing any state
      const char* reason =
          chain.CheckSlice(header.shard_elements, header.first_row, header.rows,
                           header.total_rows, payload.size(), header.turn());
      if (reason != nullptr) return fail(reason);
    }
    if (const char* reason = Begin(header, chain, handling)) return fail(reason);
  }
  const bool push = header.kind == Kind::kPush;
  if (header.round < opening_.round) {
    // Of the round before, and this round is still open: it is added here.
    if (!push || !open_ || !holes_before_ || header.round != rest_->round_before ||
        header.slices != rest_->slices_before || header.channel == 0 ||
        rest_->seen_before.Has(header.slice)) {
      ++rest().stats.refused;
      return Outcome::kRefused;
    }
    overwrite_ = false;  // later slices must add, not overwrite
    if (const char* reason = Store(header, payload, chain, false)) return fail(reason);
    rest_->seen_before.Add(header.slice);
    ++rest_->stats.late;
    return Outcome::kLate;
  }
  if (header.slices != opening_.slices || header.total_rows != opening_.total_rows ||
      header.reliable != opening_.reliable) {
    return fail("slices of one round disagree");
  }
  if (seen_.Has(header.slice)) {
    ++rest().stats.refused;
    return Outcome::kRefused;
  }
  if (!open_) {  // closed without this slice: keep it for the next round
    if (!push || header.channel == 0) {
      ++rest().stats.refused;
      return Outcome::kRefused;
    }
    if (const char* reason = Store(header, payload, chain, false)) return fail(reason);
    seen_.Add(header.slice);
    has_late_ = true;
    ++rest().stats.late;
    return Outcome::kLate;
  }
  if (header.slices == 1) {
    if (header.rows != header.total_rows) return fail("a slice of some rows that is all there is");
  } else {
    const std::uint64_t covered =
        covered_ + Cover(header.first_row, std::uint64_t{header.first_row} + header.rows);
    if (received_ + 1 == opening_.slices && covered != Cover(0, opening_.total_rows)) {
      return fail("slices that leave rows out or bring them twice");
    }
    covered_ = covered;
  }
  if (const char* reason = Store(header, payload, chain, overwrite_)) return fail(reason);
  seen_.Add(header.slice);
  ++received_;
  if (header.channel == 0) ++reliable_received_;
  if (received_ == opening_.slices) return Outcome::kComplete;
  return reliable_received_ >= opening_.reliable ? Outcome::kReliable : Outcome::kPartial;
}

void Inbox::Exchange(Archive& archive) {
  Opening& o = opening_;
  std::uint64_t place = std::uint64_t{o.steps} << kOffsetBits | o.offset;
  archive(o.kind, o.flags, o.round, o.merge_count, o.priority, o.shard_elements, o.total_rows, o.slices,
          o.reliable, o.server, place, o.loss, received_, reliable_received_, covered_);
  o.offset = place;
  o.steps = place >> kOffsetBits;
  bool begun = begun_, open = open_, overwrite = overwrite_, kept = kept_, phantom = phantom_,
       anew = anew_, late = has_late_, holes = holes_before_, more = rest_ != nullptr;
  if (borrowed_) Archive::CannotTell("a value in the memory of its messages");
  archive(begun, open, overwrite, kept, phantom, anew, late, holes, more);
  if (archive.loading()) {
    begun_ = begun;
    open_ = open;
    overwrite_ = overwrite;
    kept_ = kept;
    phantom_ = phantom;
    anew_ = anew;
    has_late_ = late;
    holes_before_ = holes;
    seen_ = SliceSet();
    rest_ = more ? std::make_unique<Rest>() : nullptr;
  }
  seen_.Exchange(archive, o.slices);
  if (!more) return;
  archive(rest_->round_before, rest_->slices_before, value(), rest_->stats.late, rest_->stats.refused,
          rest_->stats.missing);
  rest_->seen_before.Exchange(archive, holes_before_ ? rest_->slices_before : 0);
}

void Inbox::Describe(Digest& digest, Digest::Level level) const {
  if (anew_) digest.Unknown();
  if (!begun_) return;  // always so if this node is the sender
  digest.Add(std::uint64_t{open_} << 2 | std::uint64_t{overwrite_} << 1 | std::uint64_t{has_late_});
  digest.Count(level, opening_.round);
  digest.Add(std::uint64_t{opening_.slices} << 1 | std::uint64_t{holes_before_});
  digest.Add(std::uint64_t{opening_.total_rows} << 32 | opening_.reliable);
  digest.Add(std::uint64_t{opening_.merge_count} << 32 | opening_.flags);
  digest.Add(std::uint64_t{received_} << 32 | reliable_received_);
  for (std::uint32_t slice = 0; slice < opening_.slices; ++slice) {
    digest.Add(std::uint64_t{seen_.Has(slice)});
  }
  if (holes_before_) {
    digest.Count(level, rest_->round_before);
    digest.Add(std::uint64_t{rest_->slices_before});
    for (std::uint32_t slice = 0; slice < rest_->slices_before; ++slice) {
      digest.Add(std::uint64_t{rest_->seen_before.Has(slice)});
    }
  }
  if (!phantom_) digest.Unknown();
}

Buffer Inbox::Close() {
  if (received_ < opening_.slices) rest().stats.missing += opening_.slices - received_;
  open_ = false;
  has_late_ = false;
  Buffer value;
  if (rest_ && rest_->value) {
    // A peer that sends a slice twice may still be sending the first one, which stays in its place.
    const bool free = std::exchange(rest_->room, nullptr) == nullptr || rest_->value.use_count() == 1;
    value = free ? std::move(*rest_->value) : *rest_->value;
    if (rest_->value.use_count() > 1) rest_->value = nullptr;
  }
  // If no slice of a round has arrived (all were best effort and lost), its value is zero.
  if (value.empty() && !phantom_ && !borrowed_) value.assign(opening_.shard_elements, 0.0f);
  return value;
}

}  // namespace geomx
