// Codecs that send a part of every chunk of a shard, and keep the rest for later (error feedback).
//
// A derived codec says how long a shard's chunks are and how many bytes it makes of one (`FormOf`),
// encodes all chunks (`EncodeChunks`) and decodes those of a slice (`DecodeChunks`). What is the same for
// all such codecs is here: a chunk is one item of a packed part, so that slices are cut between chunks;
// shards for which encoding saves nothing stay dense. What is kept is in core/residual_codec.h.
//
// The same codec may encode answers: sums that all receivers must get with equal bits, because their
// replicas of the weights would diverge otherwise. What an answer leaves out then belongs to the sum and
// not to a receiver (`shared`), and one encoding serves all receivers.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/natives.h"
#include "core/residual_codec.h"

namespace geomx {

// The chunks of a shard, all of them equally long; the last may have fewer elements.
struct ChunkForm {
  std::uint64_t span = 8;   // elements, a multiple of 8
  std::uint64_t bytes = 0;  // of a chunk's item

  std::uint64_t Chunks(std::uint64_t elements) const { return (elements + span - 1) / span; }
};

// Which share of every chunk is sent: `kept` of `longest` elements, and `times` as many in answers, which
// are sums of several pushes.
struct ChunkShare {
  std::uint64_t longest, kept, times;

  // Reads the options `kept` and `times`.
  ChunkShare(std::uint64_t most, const Options& options)
      : longest(most),
        kept(static_cast<std::uint64_t>(Require(options, "kept"))),
        times(static_cast<std::uint64_t>(Require(options, "times"))) {}

  bool Valid() const { return kept >= 1 && kept <= longest && times >= 1; }

  // The length of the fewest equal chunks that are not longer than `longest`, rounded up to a multiple of
  // 8, so that a short shard does not pay for a whole chunk.
  std::uint64_t SpanOf(std::uint64_t elements) const {
    const std::uint64_t chunks = std::max<std::uint64_t>(1, (elements + longest - 1) / longest);
    return std::max<std::uint64_t>(8, ((elements + chunks - 1) / chunks + 7) / 8 * 8);
  }
  // The number of elements that are sent of a chunk: `times` as many as of a push, which is at least 1, up to all.
  std::uint64_t KeptOf(std::uint64_t span) const {
    return std::min(span, std::max<std::uint64_t>(1, span * kept / longest) * times);
  }
};

class ChunkCodec : public ResidualCodec {
 public:
  // Reads the option `shared` (see above).
  ChunkCodec(const Options& options, const ShardInfo& shard)
      : ResidualCodec(options, shard), shared_(Require(options, "shared") != 0) {}

  void Layout(Parts& parts) const final {
    if (!IsDense(parts) || Flushes(parts)) return;
    const ChunkForm form = FormOf(parts.elements);
    if (form.Chunks(parts.elements) * form.bytes >= parts.elements * sizeof(float)) return;
    parts.parts.assign(1, {.name = kPart,
                           .bits = static_cast<std::uint32_t>(8 * form.bytes),
                           .span = form.span});
  }

  void Encode(Parts& parts) final {
    if (!IsDense(parts)) return;
    const float* added = DenseValues(parts);
    if (Flushes(parts)) return SendAll(parts, added);
    Layout(parts);
    Part* chunks = parts.Find(kPart);
    if (chunks == nullptr) return;
    std::byte* items = parts.Allocate(chunks->BytesFor(parts.rows));
    EncodeChunks(parts.elements, added, residual(parts.elements), items);
    chunks->data = items;
  }

  void Decode(Parts& parts) const final {
    if (parts.Find(kPart) == nullptr) return;
    auto* values = reinterpret_cast<float*>(parts.Allocate(parts.rows * sizeof(float)));
    DecodeStraight(parts, true, values);
    parts.parts.assign(1, {.name = "values", .data = reinterpret_cast<std::byte*>(values)});
  }

  bool DecodeStraight(const Parts& parts, bool overwrite, float* out) const final {
    const Part* chunks = parts.Find(kPart);
    if (chunks == nullptr) return false;
    DecodeChunks(parts.elements, chunks->data, parts.rows, overwrite, out);
    return true;
  }

  bool Stateless() const final { return shared_; }
  bool FixedSize() const final { return !EndsEmpty(); }

 protected:
  // The chunks of a shard of so many elements.
  virtual ChunkForm FormOf(std::uint64_t elements) const = 0;

  // Adds `added` to `kept` (zeros at first), writes one item per chunk to `items`, and subtracts from
  // `kept` exactly what receivers make of these. What is infinite or NaN is sent, and not kept.
  virtual void EncodeChunks(std::uint64_t elements, const float* added, float* kept,
                            std::byte* items) = 0;

  // Decodes the chunks of `rows` consecutive elements of a shard of so many `elements`; stores the values
  // in out[0] and on, or adds them. Throws `Refusal` if EncodeChunks cannot have produced the items.
  virtual void DecodeChunks(std::uint64_t elements, const std::byte* items, std::uint64_t rows,
                            bool overwrite, float* out) const = 0;

 private:
  static constexpr const char* kPart = "chunks";

  bool shared_;
};

}  // namespace geomx
