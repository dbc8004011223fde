// What is sent: codecs turn the parts of a tensor into other, smaller parts.
//
// A dense shard is one part, "values", float32, one row per element. A codec replaces parts: a cast
// narrows "values", a sparsifier keeps some rows and adds "indices". Codecs chain: same type in, same
// type out. Rows are what slicers cut: row r of every part that is not `whole` travels together, so
// a lost slice loses values with their indices and the receiver sees a hole, never garbage. Whole
// parts (a scale, a codebook) ride in the first slice.
//
// A codec must be able to say what it would produce without producing it (Layout): that is all the
// simulator needs for sizes, and what the receiver checks a slice against.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/payload.h"
#include "core/types.h"

namespace geomx {

struct Part {
  std::string name;
  std::uint32_t bits = 32;     // per row, or per item of a whole part
  bool whole = false;
  std::uint64_t items = 0;     // of a whole part; others have one item per row
  const std::byte* data = nullptr;  // null in a layout

  std::uint64_t BytesFor(std::uint64_t rows) const {
    return ((whole ? items : rows) * bits + 7) / 8;
  }
};

struct Parts {
  std::uint64_t elements = 0;   // of the dense shard
  std::uint64_t rows = 0;
  std::uint64_t first_row = 0;  // where these rows lie in the whole encoded shard
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

  // New memory of `bytes` that lives as long as these parts and whatever points into them.
  std::byte* Allocate(std::size_t bytes) {
    std::shared_ptr<std::byte[]> memory(new std::byte[bytes]);
    std::byte* data = memory.get();
    owners.push_back(std::move(memory));
    return data;
  }

  // Bytes of rows [first, first + count), with the whole parts when the range starts at row 0.
  std::uint64_t SliceBytes(std::uint64_t first, std::uint64_t count) const;

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

  // Undo Encode on the rows of one slice (`parts.first_row`, `parts.rows`).
  virtual void Decode(Parts& parts) const = 0;

  // Without state, one encoding serves every receiver of the same value.
  virtual bool Stateless() const { return false; }

  // False if a missing slice would make the others unreadable.
  virtual bool SurvivesHoles() const { return true; }
};

class CodecFactory {
 public:
  virtual ~CodecFactory() = default;
  virtual std::unique_ptr<Codec> Make(const ShardInfo& shard) const = 0;
};

// The codecs of one link in one direction for one shard, in order. Empty: dense float32.
class CodecChain {
 public:
  using Factories = std::vector<std::shared_ptr<const CodecFactory>>;

  CodecChain() = default;
  CodecChain(const Factories& factories, const ShardInfo& shard);

  Parts Layout(std::uint64_t elements) const;
  void Encode(Parts& parts);
  bool Stateless() const;
  bool SurvivesHoles() const;

  // Decode one slice's payload and add it to (or, with `overwrite`, store it in) the dense shard
  // `out`, which has `elements` entries. Returns a reason if the bytes are not such a slice.
  const char* DecodeInto(Bytes payload, std::uint64_t elements, std::uint64_t first_row,
                         std::uint64_t rows, std::uint64_t total_rows, bool overwrite,
                         float* out) const;

  // Bytes that a slice must have, or the reason why there is no such slice.
  const char* CheckSlice(std::uint64_t elements, std::uint64_t first_row, std::uint64_t rows,
                         std::uint64_t total_rows, std::uint64_t payload_bytes) const;

 private:
  std::vector<std::unique_ptr<Codec>> codecs_;
};

}  // namespace geomx
