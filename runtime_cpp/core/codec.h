// What is sent: codecs turn the parts of a tensor into other, smaller parts.
//
// A dense shard is one part, "values", float32, one row per element. A codec replaces parts: a cast
// narrows "values", a sparsifier keeps some rows and adds "indices". Codecs chain: same type in,
// same type out. Slicers cut rows: row r of every part that is not `whole` travels together, so a
// lost slice loses values with their indices and the receiver sees a hole, never garbage. Whole
// parts (a codebook) travel in the first slice; small ones that every slice needs (a scale) in
// each. Rows of parts with odd widths are packed, so slices begin at multiples of eight rows.
//
// A part may be packed: one item stands for a chunk of `span` rows, and its bits have any meaning (a
// scale, or the places and values of what was selected of the chunk). Chunks are never cut, so a codec
// sees whole ones in every slice, except that the last chunk of a shard may have fewer rows.
//
// A codec can describe its output without producing it (Layout): the simulator needs no more for
// sizes, and the receiver checks every slice against it. Sizes may depend on the round, and on whether
// it is the last: what a codec has kept until then is lost unless it is sent.
//
// A chain applies codecs by stage, in the user's order within each: those that choose rows, those
// that quantise values, those that cast them. A cast before a selection would only cost precision.
// All codecs work on "values" of 32 bits: where an earlier codec has left none, the later ones are
// skipped, in both directions.
//
// Where all codecs of a chain are linear, the encodings of several senders are added as they are (a
// vector of float32, part after part), and the sum is decoded once or sent back encoded.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/archive.h"
#include "core/buffer.h"
#include "core/payload.h"
#include "core/types.h"
#include "kernels/memory.h"
#include "kernels/device.h"

namespace geomx {

struct Part {
  std::string name;
  std::uint32_t bits = 32;     // of an item
  bool whole = false;
  bool in_every_slice = false; // of a whole part: not in the first slice alone
  std::uint64_t items = 0;     // of a whole part
  std::uint64_t span = 1;      // of others: one item per so many rows
  const std::byte* data = nullptr;  // null in a layout

  std::uint64_t ItemsFor(std::uint64_t rows) const {
    if (whole) return items;
    return span == 1 ? rows : (rows + span - 1) / span;  // a division takes longer than the rest
  }
  // The bytes of so many rows from the beginning of a chunk on.
  std::uint64_t BytesFor(std::uint64_t rows) const { return (ItemsFor(rows) * bits + 7) / 8; }
  bool IsIn(std::uint64_t first_row) const { return !whole || in_every_slice || first_row == 0; }
};

struct Parts {
  std::uint64_t elements = 0;   // of the dense shard
  std::uint64_t rows = 0;
  std::uint64_t first_row = 0;  // where these rows lie in the whole encoded shard
  Round round = 1;              // of the value
  bool last = false;            // see Turn
  std::vector<Part> parts;
  std::vector<std::shared_ptr<const void>> owners;  // keep `data` alive

  const Part* Find(std::string_view name) const {
    for (const Part& part : parts) {
      if (part.name == name) return &part;
    }
    return nullptr;
  }
  Part* Find(std::string_view name) {
    return const_cast<Part*>(static_cast<const Parts*>(this)->Find(name));
  }

  // Bits of one row in the mean, over all parts that are not whole.
  double RowBits() const;

  // Slices must begin at multiples of so many rows: with a chunk, and with a byte of every part.
  std::uint64_t Granule() const;

  // The most rows that fit into so many bytes, of parts that are not whole: a multiple of the granule
  // and of eight, at least one.
  std::uint64_t RowsIn(std::uint64_t bytes) const;

  // Returns new memory of `bytes` that lives as long as these parts and every copy of their owners.
  std::byte* Allocate(std::size_t bytes) {
    std::shared_ptr<std::byte[]> memory = kernels::ShareMemory(bytes);
    std::byte* data = memory.get();
    owners.push_back(std::move(memory));
    return data;
  }

  // Bytes of rows [first, first + count), with the whole parts when the range starts at row 0.
  std::uint64_t SliceBytes(std::uint64_t first, std::uint64_t count) const;

  // Likewise, memory of a device for `count` of T.
  template <class T>
  T* AllocateOn(kernels::DeviceContext& device, std::uint64_t count) {
    std::shared_ptr<std::byte> memory = device.memory.Acquire(count * sizeof(T));
    auto* data = reinterpret_cast<T*>(memory.get());
    owners.push_back(std::move(memory));
    return data;
  }

  // The parts of a dense shard. `values` may be null (a layout).
  static Parts Dense(std::uint64_t elements, const float* values,
                     std::shared_ptr<const void> owner);
};

class Codec {
 public:
  virtual ~Codec() = default;

  // Replace `parts` by what Encode would make of them, without data. Pure.
  virtual void Layout(Parts& parts) const = 0;

  // Encode in place. May keep state (a residual), one codec object per shard and link.
  virtual void Encode(Parts& parts) = 0;

  // The same for data on a device: the result stays there and has the same bits. Called only if
  // this codec has device kernels; otherwise the parts are copied to the host first.
  virtual bool OnDevices() const { return false; }
  virtual void EncodeOn(kernels::DeviceContext& device, Parts& parts) { (void)device, (void)parts; }

  // Takes a dense vector that another node has encoded before. The next Encode, of any layout, includes as
  // much of it as fits; the rest is kept. Returns false if the caller adds it to the input of Encode instead:
  // only a codec that changes its input before it selects from it needs this.
  virtual bool Absorb(std::span<const float> relayed) {
    (void)relayed;
    return false;
  }

  // Returns what earlier encodings have not sent and later ones will, as a dense vector on the host,
  // valid until the next call; empty if there is nothing, or if it is unknown.
  virtual std::span<const float> Kept() { return {}; }
  // Returns true if the last round of a shard sends all of that.
  virtual bool EndsEmpty() const { return false; }

  // Returns the sum of the squares of what earlier encodings have left out or rounded off and later ones will
  // send, for reports; 0 without such a residual. Waits for the device if it lies on one, and leaves it there.
  virtual double SquaredResidual() const { return 0; }

  // Undoes Encode on the rows of one slice (`parts.first_row`, `parts.rows`). Throws `Refusal` if
  // Encode cannot have produced the bytes.
  virtual void Decode(Parts& parts) const = 0;

  // The same for the last codec to be undone, directly into the dense shard: rows go to out[0] and
  // on, stored or added. Returns false if this codec has no such path; the caller then uses Decode.
  virtual bool DecodeStraight(const Parts& parts, bool overwrite, float* out) const {
    (void)parts, (void)overwrite, (void)out;
    return false;
  }

  // The same for a whole shard on a device, into `out` on that device. Called only if
  // DecodesOnDevices(); the layout must then not depend on the last round.
  virtual bool DecodesOnDevices() const { return false; }
  virtual void DecodeOn(kernels::DeviceContext& device, const Parts& parts, float* out) const {
    (void)device, (void)parts, (void)out;
  }

  // Returns true if encodings of different senders can be added: all parts are float32, no rows are
  // chosen, and the sum of the encodings decodes to the sum of the decoded values. Decoding must
  // then not depend on state that differs between senders.
  virtual bool Linear() const { return false; }

  // Called with the sum of all encodings of a round, after it has been decoded. A linear codec may
  // start its next encoding from it, as all nodes receive the same sum.
  virtual void Settle(const Parts& sum) { (void)sum; }

  // Returns true if one encoding serves every receiver of the same value: there is no state, or it
  // belongs to the value and not to the receiver.
  virtual bool Stateless() const { return false; }

  // Writes or reads the state that is kept from round to round, after waiting for the device. A codec
  // without any does nothing; one that does not say is taken to have some that it cannot write.
  virtual void Exchange(Archive& archive) {
    (void)archive;
    Archive::CannotTell("a codec");
  }

  // Returns false if a missing slice would make the others unreadable.
  virtual bool SurvivesHoles() const { return true; }

  // Returns true if `Layout` depends on the number of elements alone.
  virtual bool FixedSize() const { return false; }

  enum class Stage { kSelect, kQuantise, kCast };
  virtual Stage stage() const { return Stage::kSelect; }

  // Returns true if `parts` has 32-bit "values" for a codec to work on.
  static bool Concerns(const Parts& parts) {
    const Part* values = parts.Find("values");
    return values != nullptr && values->bits == 32 && !values->whole;
  }
};

using Codecs = std::vector<std::unique_ptr<Codec>>;

// Makes the codecs of shards. Factories are shared between nodes and keep no state.
class CodecFactory {
 public:
  virtual ~CodecFactory() = default;
  // Appends this shard's codecs, in order: at least one.
  virtual void AddTo(Codecs& codecs, const ShardInfo& shard) const = 0;
};

// Makes one codec for every shard.
class SingleCodecFactory : public CodecFactory {
 public:
  void AddTo(Codecs& codecs, const ShardInfo& shard) const final { codecs.push_back(Make(shard)); }
  virtual std::unique_ptr<Codec> Make(const ShardInfo& shard) const = 0;
};

// The codecs of one link in one direction for one shard, in order. Empty: dense float32.
class CodecChain {
 public:
  using Factories = std::vector<std::shared_ptr<const CodecFactory>>;

  CodecChain() = default;
  CodecChain(const Factories& factories, const ShardInfo& shard);

  Parts Layout(std::uint64_t elements, Turn turn = {}) const;
  void Encode(Parts& parts) { EncodeFrom(0, parts); }
  // Applies the leading codecs that have device kernels. Returns how many; EncodeFrom continues
  // with the others on the host.
  std::size_t EncodeOn(kernels::DeviceContext& device, Parts& parts);
  void EncodeFrom(std::size_t first, Parts& parts);
  // The same for parts on the host: copies them to `device`, encodes there and copies the result
  // back. The data is on the host again when the device's queue has executed the copy. REQUIRES:
  // StartsOnDevices().
  std::size_t EncodeThrough(kernels::Device& device, Parts& parts);
  bool StartsOnDevices() const { return !codecs_.empty() && codecs_.front()->OnDevices(); }
  bool OnDevices(std::uint64_t elements) const;  // whether all codecs have device kernels
  // Returns true if encoded values can be decoded on a device: exactly one codec takes part, and it
  // has a kernel for that.
  bool DecodesOnDevices(std::uint64_t elements) const;
  void DecodeOn(kernels::DeviceContext& device, const Parts& parts, float* out) const {
    codecs_.front()->DecodeOn(device, parts, out);
  }
  std::size_t size() const { return codecs_.size(); }
  // Only the first codec sees dense vectors.
  bool Absorb(std::span<const float> relayed) {
    return !codecs_.empty() && codecs_.front()->Absorb(relayed);
  }
  std::span<const float> Kept() {
    return codecs_.empty() ? std::span<const float>() : codecs_.front()->Kept();
  }
  bool EndsEmpty() const { return !codecs_.empty() && codecs_.front()->EndsEmpty(); }
  // Of all codecs together.
  double SquaredResidual() const;
  bool Stateless() const;
  bool SurvivesHoles() const;  // false if linear: a sum with missing parts would go unnoticed
  bool Dense() const { return codecs_.empty(); }  // nothing is encoded
  bool Linear() const { return linear_; }
  bool FixedSize() const;
  void Exchange(Archive& archive) {
    for (const auto& codec : codecs_) codec->Exchange(archive);
  }

  // Decodes one slice's payload and adds it to (or, with `overwrite`, stores it in) the dense shard
  // `out` of `elements` entries. Returns null, or the reason why the bytes are not such a slice.
  const char* DecodeInto(Bytes payload, std::uint64_t elements, std::uint64_t first_row,
                         std::uint64_t rows, std::uint64_t total_rows, bool overwrite,
                         float* out, Turn turn = {}) const;

  // Returns null and the size of a slice in bytes, or the reason why there is no such slice.
  const char* CheckSlice(std::uint64_t elements, std::uint64_t first_row, std::uint64_t rows,
                         std::uint64_t total_rows, std::uint64_t payload_bytes,
                         Turn turn = {}) const;

  // ---- values that stay encoded: those of linear chains, and those decoded on devices ----
  // An encoded value as one vector, part after part; empty for a layout (null data).
  static Buffer Gather(const Parts& encoded);
  // The parts in such a vector, which `owner` keeps alive; a layout if `encoded` is null.
  Parts View(std::uint64_t elements, Turn turn, const float* encoded,
             std::shared_ptr<const void> owner) const;
  // Copies one slice's payload into its place in such a vector, which is allocated if it is empty.
  // Returns null, or the reason why the bytes are not such a slice.
  const char* Keep(Bytes payload, std::uint64_t elements, std::uint64_t first_row,
                   std::uint64_t rows, std::uint64_t total_rows, Buffer& encoded,
                   Turn turn) const;
  // The dense shard of an encoded sum.
  Buffer Decoded(std::span<const float> encoded, std::uint64_t elements,
                             Turn turn) const;
  // Calls the codecs' Settle with the sum of a round.
  void Settle(std::span<const float> encoded, std::uint64_t elements, Turn turn);

 private:
  const char* CheckSlice(const Parts& layout, std::uint64_t first_row, std::uint64_t rows,
                         std::uint64_t total_rows, std::uint64_t payload_bytes) const;
  // Undoes the first `concerned` codecs on these rows, and stores or adds the resulting values.
  const char* Undo(Parts& parts, std::size_t concerned, std::uint64_t elements, bool overwrite,
                   float* out) const;

  // The layout. Sets `concerned` to the number of leading codecs that take part in it.
  Parts Layout(std::uint64_t elements, Turn turn, std::size_t& concerned) const;

  Codecs codecs_;
  bool linear_ = false;
};

// Chooses between two lists of codecs by the size of the shard: a shard of at least `bound`
// elements is large. An empty list stands for a codec that changes nothing.
class BySizeFactory final : public CodecFactory {
 public:
  BySizeFactory(std::uint64_t bound, CodecChain::Factories small, CodecChain::Factories large)
      : bound_(bound), small_(std::move(small)), large_(std::move(large)) {}
  void AddTo(Codecs& codecs, const ShardInfo& shard) const override;

 private:
  std::uint64_t bound_;
  CodecChain::Factories small_, large_;
};

}  // namespace geomx
