// What is sent: codecs turn the parts of a tensor into other, smaller parts.
//
// A dense shard is one part, "values", float32, one row per element. A codec replaces parts: a cast
// narrows "values", a sparsifier keeps some rows and adds "indices". Codecs chain: same type in, same
// type out. Rows are what slicers cut: row r of every part that is not `whole` travels together, so
// a lost slice loses values with their indices and the receiver sees a hole, never garbage. Whole
// parts (a codebook) ride in the first slice; small ones that every slice needs (a scale) in each.
// Rows of parts with odd widths are packed, so slices begin at multiples of eight rows.
//
// A codec must be able to say what it would produce without producing it (Layout): that is all the
// simulator needs for sizes, and what the receiver checks a slice against. Sizes may depend on the
// round.
//
// A chain applies codecs by stage, in the user's order within each: those that choose rows, those
// that quantise values, those that cast them. A cast before a selection would only blind it. All of
// them work on "values" of 32 bits: where an earlier codec has left none, the others are passed by, in
// both directions, whatever their parts are called.
//
// Where all codecs of a chain are linear, what several senders encoded is added up as it is (a vector
// of float32, part after part) and decoded once, or handed back encoded to those who want the sum.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/payload.h"
#include "core/types.h"
#include "kernels/memory.h"
#include "kernels/device.h"

namespace geomx {

struct Part {
  std::string name;
  std::uint32_t bits = 32;     // per row, or per item of a whole part
  bool whole = false;
  bool in_every_slice = false; // of a whole part: not in the first slice alone
  std::uint64_t items = 0;     // of a whole part; others have one item per row
  const std::byte* data = nullptr;  // null in a layout

  std::uint64_t BytesFor(std::uint64_t rows) const {
    return ((whole ? items : rows) * bits + 7) / 8;
  }
  bool IsIn(std::uint64_t first_row) const { return !whole || in_every_slice || first_row == 0; }
};

struct Parts {
  std::uint64_t elements = 0;   // of the dense shard
  std::uint64_t rows = 0;
  std::uint64_t first_row = 0;  // where these rows lie in the whole encoded shard
  Round round = 1;              // of the value
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

  // Width of a row over all parts that are cut.
  std::uint64_t RowBits() const {
    std::uint64_t bits = 0;
    for (const Part& part : parts) bits += part.whole ? 0 : part.bits;
    return bits;
  }

  // Whether some row ends within a byte, so that slices must begin at multiples of eight rows.
  bool Packed() const {
    for (const Part& part : parts) {
      if (!part.whole && part.bits % 8 != 0) return true;
    }
    return false;
  }

  // New memory of `bytes` that lives as long as these parts and whatever points into them.
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

  // The same where the data lies on a device: what is made lies there too, the same bits. Called only
  // if this codec has kernels for devices; without, the parts come to the host first.
  virtual bool OnDevices() const { return false; }
  virtual void EncodeOn(kernels::DeviceContext& device, Parts& parts) { (void)device, (void)parts; }

  // Take in a dense vector that another node had encoded before: it leaves with the next Encode, as
  // far as that has room, and is kept until then. False if adding it to what is encoded does as well.
  virtual bool Absorb(std::span<const float> relayed) {
    (void)relayed;
    return false;
  }

  // Undo Encode on the rows of one slice (`parts.first_row`, `parts.rows`). Throws `Refusal` where the
  // bytes are nothing that Encode makes.
  virtual void Decode(Parts& parts) const = 0;

  // The same where nothing else is left to be undone, straight into the rows' places in the dense
  // shard: rows go to out[0] and on, stored or added. False if this codec cannot; then Decode does.
  virtual bool DecodeStraight(const Parts& parts, bool overwrite, float* out) const {
    (void)parts, (void)overwrite, (void)out;
    return false;
  }

  // The same of a whole shard that lies on a device, into `out` there. Called only if this codec can.
  virtual bool DecodesOnDevices() const { return false; }
  virtual void DecodeOn(kernels::DeviceContext& device, const Parts& parts, float* out) const {
    (void)device, (void)parts, (void)out;
  }

  // Whether encodings of different senders add up: all parts are float32, no rows are chosen, and the
  // sum of what was encoded decodes to the sum of what each would decode to. What a codec remembers
  // must then be alike at all of them, or not matter to decoding.
  virtual bool Linear() const { return false; }

  // Where the sum comes back: what all encodings of a round came to, once it has been decoded. A
  // linear codec's next encoding may start from it, as all nodes hear the same.
  virtual void Settle(const Parts& sum) { (void)sum; }

  // One encoding serves every receiver of the same value: there is no state, or it belongs to the
  // value and not to the receiver.
  virtual bool Stateless() const { return false; }

  // False if a missing slice would make the others unreadable.
  virtual bool SurvivesHoles() const { return true; }

  // Whether `Layout` depends on the number of elements alone.
  virtual bool FixedSize() const { return false; }

  enum class Stage { kSelect, kQuantise, kCast };
  virtual Stage stage() const { return Stage::kSelect; }

  // Whether there is anything in `parts` for a codec to work on.
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
  // Appends the codecs that this shard gets, in order: at least one.
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

  Parts Layout(std::uint64_t elements, Round round = 1) const;
  void Encode(Parts& parts) { EncodeFrom(0, parts); }
  // On a device, as far as codecs go that can: how many, for EncodeFrom to go on with on the host.
  std::size_t EncodeOn(kernels::DeviceContext& device, Parts& parts);
  void EncodeFrom(std::size_t first, Parts& parts);
  // What lies on the host, on `device` as far as codecs go there; how many did, for EncodeFrom. The data
  // is on the host again when the device's queue has come that far.
  // REQUIRES: StartsOnDevices().
  std::size_t EncodeThrough(kernels::Device& device, Parts& parts);
  bool StartsOnDevices() const { return !codecs_.empty() && codecs_.front()->OnDevices(); }
  bool OnDevices(std::uint64_t elements) const;  // whether nothing is left to go on with
  // What is encoded can be decoded on a device: there is one codec that matters, and it can.
  bool DecodesOnDevices(std::uint64_t elements) const;
  void DecodeOn(kernels::DeviceContext& device, const Parts& parts, float* out) const {
    codecs_.front()->DecodeOn(device, parts, out);
  }
  std::size_t size() const { return codecs_.size(); }
  // Only the first codec sees dense vectors.
  bool Absorb(std::span<const float> relayed) {
    return !codecs_.empty() && codecs_.front()->Absorb(relayed);
  }
  bool Stateless() const;
  bool SurvivesHoles() const;  // never, if linear: a sum of other parts would not be noticed
  bool Dense() const { return codecs_.empty(); }  // nothing is encoded
  bool Linear() const { return linear_; }
  bool FixedSize() const;

  // Decode one slice's payload and add it to (or, with `overwrite`, store it in) the dense shard
  // `out`, which has `elements` entries. Returns a reason if the bytes are not such a slice.
  const char* DecodeInto(Bytes payload, std::uint64_t elements, std::uint64_t first_row,
                         std::uint64_t rows, std::uint64_t total_rows, bool overwrite,
                         float* out, Round round = 1) const;

  // Bytes that a slice must have, or the reason why there is no such slice.
  const char* CheckSlice(std::uint64_t elements, std::uint64_t first_row, std::uint64_t rows,
                         std::uint64_t total_rows, std::uint64_t payload_bytes,
                         Round round = 1) const;

  // ---- values that stay encoded: those of linear chains, and those decoded on devices ----
  // An encoded value as one vector, part after part; null data (a layout) gives none.
  static std::vector<float> Gather(const Parts& encoded);
  // The parts that lie in such a vector, which `owner` keeps alive. Null gives a layout.
  Parts View(std::uint64_t elements, Round round, const float* encoded,
             std::shared_ptr<const void> owner) const;
  // One slice's payload into its place in such a vector, which is made if it is not there. Returns a
  // reason if the bytes are not such a slice.
  const char* Keep(Bytes payload, std::uint64_t elements, std::uint64_t first_row,
                   std::uint64_t rows, std::uint64_t total_rows, std::vector<float>& encoded,
                   Round round) const;
  // The dense shard of an encoded sum.
  std::vector<float> Decoded(std::span<const float> encoded, std::uint64_t elements,
                             Round round) const;
  // Tell the codecs what a round came to.
  void Settle(std::span<const float> encoded, std::uint64_t elements, Round round);

 private:
  const char* CheckSlice(const Parts& layout, std::uint64_t first_row, std::uint64_t rows,
                         std::uint64_t total_rows, std::uint64_t payload_bytes) const;
  // Undo the first `concerned` codecs on these rows, and store or add the values that come out.
  const char* Undo(Parts& parts, std::size_t concerned, std::uint64_t elements, bool overwrite,
                   float* out) const;

  // The layout, and how many codecs take part in it: the first ones.
  Parts Layout(std::uint64_t elements, Round round, std::size_t& concerned) const;

  Codecs codecs_;
  bool linear_ = false;
};

// Chooses between two lists of codecs by the size of the shard: at least `bound` elements are large. An
// empty list stands for a codec that changes nothing.
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
