#include "core/inbox.h"

#include <algorithm>

namespace geomx {

const char* Inbox::Begin(const Header& header, const CodecChain& chain, bool keep) {
  std::uint64_t most_rows = header.shard_elements;
  bool in_place = true;  // rows lie where they belong
  if (!chain.Dense()) {
    const Parts layout = chain.Layout(header.shard_elements, header.round);
    most_rows = layout.rows;
    in_place = layout.Find("indices") == nullptr;
  }
  if (header.total_rows > most_rows) return "more rows than the codec makes";
  if (header.slices > std::uint64_t{header.total_rows} + 1) return "more slices than rows";
  if (header.reliable < header.slices && !chain.SurvivesHoles()) {
    return "best-effort slices of a codec that cannot lose any";
  }
  if (has_late_ && header.round != header_.round + 1) {  // not the next round: too late for this one
    value_ = {};
    has_late_ = false;
  }
  seen_before_ = std::move(seen_);
  round_before_ = header_.round;
  slices_before_ = header_.slices;
  header_ = header;
  begun_ = open_ = true;
  received_ = reliable_received_ = 0;
  seen_ = SliceSet(header.slices);
  overwrite_ = !has_late_ && header.reliable == header.slices && in_place;
  kept_ = keep && header.reliable == header.slices && header.total_rows == most_rows;
  return nullptr;
}

const char* Inbox::Store(const Header& header, const Payload& payload, const CodecChain& chain,
                         Buffer& target, bool overwrite) {
  phantom_ = payload.phantom();
  if (phantom_) {
    return chain.CheckSlice(header.shard_elements, header.first_row, header.rows,
                            header.total_rows, payload.size(), header.round);
  }
  std::vector<std::byte> scratch;
  if (chain.Linear() || kept_) {
    return chain.Keep(payload.Contiguous(scratch), header.shard_elements, header.first_row,
                      header.rows, header.total_rows, target, header.round);
  }
  if (target.size() != header.shard_elements) target.assign(header.shard_elements, 0.0f);
  return chain.DecodeInto(payload.Contiguous(scratch), header.shard_elements, header.first_row,
                          header.rows, header.total_rows, overwrite, target.data(), header.round);
}

Inbox::Outcome Inbox::Accept(const Header& header, const Payload& payload,
                             const CodecChain& chain, std::string& error, bool keep) {
  const auto fail = [&](const char* reason) {
    error = reason;
    return Outcome::kError;
  };
  const bool first = !begun_;
  if (!first && header.shard_elements != header_.shard_elements) {
    return fail("the shard changed its size");
  }
  if (first || header.round > header_.round) {
    if (open_) return fail("a new round before the last one was complete");
    if (const char* reason = Begin(header, chain, keep)) return fail(reason);
  }
  const bool push = header.kind == Kind::kPush;
  if (header.round < header_.round) {
    // One round late while this round is still open: it still counts, here.
    if (!push || !open_ || header.round != round_before_ || header.slices != slices_before_ ||
        header.channel == 0 || seen_before_.Has(header.slice)) {
      ++stats_.refused;
      return Outcome::kRefused;
    }
    overwrite_ = false;  // what follows must not wipe this out
    if (const char* reason = Store(header, payload, chain, value_, false)) return fail(reason);
    seen_before_.Add(header.slice);
    ++stats_.late;
    return Outcome::kLate;
  }
  if (header.slices != header_.slices || header.total_rows != header_.total_rows ||
      header.reliable != header_.reliable) {
    return fail("slices of one round disagree");
  }
  if (seen_.Has(header.slice)) {
    ++stats_.refused;
    return Outcome::kRefused;
  }
  if (!open_) {  // closed without this slice: keep it for the next round
    if (!push || header.channel == 0) {
      ++stats_.refused;
      return Outcome::kRefused;
    }
    if (const char* reason = Store(header, payload, chain, value_, false)) return fail(reason);
    seen_.Add(header.slice);
    has_late_ = true;
    ++stats_.late;
    return Outcome::kLate;
  }
  if (const char* reason = Store(header, payload, chain, value_, overwrite_)) return fail(reason);
  seen_.Add(header.slice);
  ++received_;
  if (header.channel == 0) ++reliable_received_;
  if (received_ == header_.slices) return Outcome::kComplete;
  return reliable_received_ >= header_.reliable ? Outcome::kReliable : Outcome::kPartial;
}

void Inbox::Describe(Digest& digest, Digest::Level level) const {
  if (!begun_) return;  // nor will it, if this node is the sender
  digest.Add(std::uint64_t{open_} << 2 | std::uint64_t{overwrite_} << 1 | std::uint64_t{has_late_});
  digest.Count(level, header_.round);
  digest.Count(level, round_before_);
  digest.Add(std::uint64_t{header_.slices} << 32 | slices_before_);
  digest.Add(std::uint64_t{header_.total_rows} << 32 | header_.reliable);
  digest.Add(std::uint64_t{header_.merge_count} << 32 | header_.flags);
  digest.Add(std::uint64_t{received_} << 32 | reliable_received_);
  for (std::uint32_t slice = 0; slice < header_.slices; ++slice) {
    digest.Add(std::uint64_t{seen_.Has(slice)});
  }
  for (std::uint32_t slice = 0; slice < slices_before_; ++slice) {
    digest.Add(std::uint64_t{seen_before_.Has(slice)});
  }
  if (!phantom_) digest.Unknown();
}

Buffer Inbox::Close() {
  stats_.missing += header_.slices - received_;
  open_ = false;
  has_late_ = false;
  Buffer value = std::move(value_);
  value_ = {};
  // Nothing of a round may have come (every slice was best effort and lost): it is then all zero.
  if (value.empty() && !phantom_) value.assign(header_.shard_elements, 0.0f);
  return value;
}

}  // namespace geomx
