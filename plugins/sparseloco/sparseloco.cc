// Sends the largest values of every chunk of a shard in two bits each, and keeps the rest for later.
//
//   e <- decay e + g;  send Q(largest `kept` of each chunk of e);  e <- e - what was sent
//
// Q maps a value to its sign and one of two magnitudes per chunk: the means of the chosen values below
// and of those above the mean magnitude of all chosen ones. With `bits` 32, values are sent as they are.
//
// A chunk is one item of a packed part, padded to whole bytes:
//
//   2 x 16 bits     the magnitudes as bfloat16, the smaller first; not with `bits` 32
//   kept x `bits`   the values: sign (1: negative) in bit 1, and in bit 0 which magnitude; or float32
//   kept x w bits   their places in the chunk, ascending, w = ceil(log2 span); not if all are kept
//
// Chunks, what is kept, answers, and the last round: core/chunk_codec.h.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "core/chunk_codec.h"
#include "core/plugin_failure.h"
#include "kernels/bfloat.h"
#include "kernels/bits.h"
#include "kernels/chunks.h"

namespace geomx {
namespace {

constexpr std::uint64_t kMagnitudes = 2 * sizeof(std::uint16_t);  // bytes

// What a chunk's item consists of.
struct Form {
  std::uint64_t span = 8;  // elements
  std::uint64_t kept = 1;  // values
  std::uint32_t value_bits = 2, place_bits = 0;

  bool quantised() const { return value_bits == 2; }
  std::uint64_t ValueBytes(std::uint64_t count) const { return (count * value_bits + 7) / 8; }
  std::uint64_t PlacesAt() const { return (quantised() ? kMagnitudes : 0) + ValueBytes(kept); }
  std::uint64_t Bytes() const { return PlacesAt() + (kept * place_bits + 7) / 8; }
};

class SparseLoco final : public ChunkCodec {
 public:
  SparseLoco(const Options& options, const ShardInfo& shard)
      : ChunkCodec(options, shard),
        share_(static_cast<std::uint64_t>(Require(options, "chunk")), options),
        bits_(static_cast<std::uint32_t>(Require(options, "bits"))),
        decay_(static_cast<float>(Require(options, "decay"))) {
    if (share_.longest < 8 || share_.longest > kernels::kLongestSpan || !share_.Valid()) {
      throw std::invalid_argument("kept must be 1 to chunk, and chunk 8 to 65536");
    }
    if (bits_ != 2 && bits_ != 32) throw std::invalid_argument("bits must be 2 or 32");
  }

 private:
  Form Items(std::uint64_t elements) const {
    Form form{.span = share_.SpanOf(elements), .value_bits = bits_};
    form.kept = share_.KeptOf(form.span);
    if (form.kept != form.span) {
      form.place_bits = static_cast<std::uint32_t>(std::bit_width(form.span - 1));
    }
    return form;
  }

  ChunkForm FormOf(std::uint64_t elements) const override {
    const Form form = Items(elements);
    return {.span = form.span, .bytes = form.Bytes()};
  }

  void EncodeChunks(std::uint64_t elements, const float* added, float* error,
                    std::byte* items) override {
    const Form form = Items(elements);
    kernels::TakeLargest({.added = added, .decay = decay_}, error, elements, form.span, form.kept,
                         [&](std::uint64_t chunk, const kernels::Entries& chosen) {
                           Write(form, chosen, error + chunk * form.span,
                                 items + chunk * form.Bytes());
                         });
  }

  void DecodeChunks(std::uint64_t elements, const std::byte* items, std::uint64_t rows,
                    bool overwrite, float* out) const override {
    const Form form = Items(elements);
    if (overwrite) std::memset(out, 0, rows * sizeof(float));
    for (std::uint64_t at = 0; at < rows; at += form.span, items += form.Bytes()) {
      Read(form, items, std::min(form.span, rows - at), out + at);
    }
  }

  // Writes one chunk's item, and subtracts it from `error`, the chunk's own.
  static void Write(const Form& form, const kernels::Entries& chosen, float* error,
                    std::byte* item) {
    const std::uint64_t count = chosen.size();
    std::memset(item, 0, form.Bytes());
    if (form.quantised()) {
      WriteQuantised(chosen, error, item);
    } else {
      std::memcpy(item, chosen.values.data(), count * sizeof(float));
      for (const std::uint32_t place : chosen.indices) error[place] = 0;
    }
    if (form.place_bits == 0) return;
    PackBits(chosen.indices.data(), count, form.place_bits, item + form.PlacesAt());
  }

  static void WriteQuantised(const kernels::Entries& chosen, float* error, std::byte* item) {
    const std::uint64_t count = chosen.size();
    double total = 0, small = 0, large = 0;
    std::uint64_t larger = 0;
    for (const float value : chosen.values) total += std::fabs(value);
    // Where some are infinite or NaN, these are the larger ones, so that the others arrive as they are.
    const double mean = std::isfinite(total) ? total / static_cast<double>(count) : HUGE_VAL;
    const auto is_large = [&](float value) { return !(std::fabs(value) < mean); };
    for (const float value : chosen.values) {
      larger += is_large(value);
      (is_large(value) ? large : small) += std::fabs(value);
    }
    const std::uint64_t smaller = count - larger;
    float magnitudes[2] = {
        smaller == 0 ? 0 : static_cast<float>(small / static_cast<double>(smaller)),
        larger == 0 ? 0 : static_cast<float>(large / static_cast<double>(larger))};
    std::uint16_t narrow[2];
    kernels::NarrowBfloat(magnitudes, narrow, 2);
    std::memcpy(item, narrow, sizeof narrow);
    kernels::WidenBfloat(item, magnitudes, 2);
    std::byte* codes = item + kMagnitudes;
    for (std::uint64_t i = 0; i < count; ++i) {
      const float value = chosen.values[i];
      const unsigned code = (std::signbit(value) ? 2u : 0u) | (is_large(value) ? 1u : 0u);
      codes[i / 4] |= static_cast<std::byte>(code << 2 * (i % 4));
      const float sent = std::copysign(magnitudes[code & 1], value);
      float& left = error[chosen.indices[i]];
      left = std::isfinite(sent) ? left - sent : 0;
    }
  }

  // Adds one chunk of `elements` to `out`.
  static void Read(const Form& form, const std::byte* item, std::uint64_t elements, float* out) {
    const std::uint64_t count = std::min(form.kept, elements);
    std::uint32_t places[kernels::kLongestSpan / 64];
    float magnitudes[2] = {0, 0};
    const std::byte* values = item;
    if (form.quantised()) {
      kernels::WidenBfloat(item, magnitudes, 2);
      values += kMagnitudes;
    }
    const float levels[4] = {magnitudes[0], magnitudes[1], -magnitudes[0], -magnitudes[1]};
    for (std::uint64_t first = 0; first < count; first += std::size(places)) {
      const std::uint64_t few = std::min<std::uint64_t>(std::size(places), count - first);
      if (form.place_bits == 0) {
        for (std::uint64_t i = 0; i < few; ++i) places[i] = static_cast<std::uint32_t>(first + i);
      } else {  // `first` is a multiple of 8, so these places begin with a byte
        UnpackBits(item + form.PlacesAt() + first * form.place_bits / 8, few, form.place_bits,
                   places);
      }
      for (std::uint64_t i = 0; i < few; ++i) {
        if (places[i] >= elements) throw Refusal("sparseloco: a place beyond its chunk");
        const std::uint64_t entry = first + i;
        float value;
        if (form.quantised()) {
          value = levels[std::to_integer<unsigned>(values[entry / 4]) >> 2 * (entry % 4) & 3u];
        } else {
          std::memcpy(&value, values + entry * sizeof value, sizeof value);
        }
        out[places[i]] += value;
      }
    }
  }

  ChunkShare share_;
  std::uint32_t bits_;
  float decay_;
};

const Registered<NativeCodecs> registered("sparseloco", MakeCodecFactory<SparseLoco>);

}  // namespace
}  // namespace geomx
