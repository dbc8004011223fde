// Sends the largest cosine coefficients of every chunk of a shard, and keeps the rest for later.
//
//   m <- decay m + g;  send q, the largest `kept` coefficients of DCT(m), chunk by chunk;  m <- m - IDCT(q)
//
// A chunk is `side` x `side` consecutive values at most, transformed as a matrix in row-major order
// (kernels/cosines.h): a shard has no shape here. The matrices have powers of two as sides, and end
// with zeros. What receivers make of those is left out at both ends, so that exactly what arrives is
// subtracted from m.
//
// A chunk is one item of a packed part, padded to whole bytes:
//
//   kept x `bits`   the coefficients, bfloat16 or float32
//   kept x w bits   their places in the matrix, column by column, ascending, w = log2 of its size
//
// Chunks, what is kept, answers, and the last round: core/chunk_codec.h.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "core/chunk_codec.h"
#include "core/plugin_failure.h"
#include "kernels/bfloat.h"
#include "kernels/bits.h"
#include "kernels/chunks.h"
#include "kernels/cosines.h"
#include "kernels/memory.h"
#include "kernels/thread_pool.h"

namespace geomx {
namespace {

using kernels::Tile;
using Matrix = std::array<float, std::size_t{kernels::kLongestSide} * kernels::kLongestSide>;

// What a chunk's item consists of.
struct Form {
  std::uint64_t span = 8;  // elements
  std::uint64_t kept = 1;  // coefficients
  Tile tile;
  std::uint32_t bits = 16, place_bits = 0;

  std::uint64_t PlacesAt() const { return kept * bits / 8; }
  std::uint64_t Bytes() const { return PlacesAt() + (kept * place_bits + 7) / 8; }
};

class Cosines final : public ChunkCodec {
 public:
  Cosines(const Options& options, const ShardInfo& shard)
      : ChunkCodec(options, shard),
        side_(static_cast<unsigned>(Require(options, "side"))),
        share_(std::uint64_t{side_} * side_, options),
        bits_(static_cast<std::uint32_t>(Require(options, "bits"))),
        decay_(static_cast<float>(Require(options, "decay"))) {
    if (side_ < 4 || side_ > kernels::kLongestSide || !std::has_single_bit(side_)) {
      throw std::invalid_argument("side must be a power of two, 4 to 64");
    }
    if (!share_.Valid()) throw std::invalid_argument("kept must be 1 to the square of side");
    if (bits_ != 16 && bits_ != 32) throw std::invalid_argument("bits must be 16 or 32");
  }

 private:
  Form Items(std::uint64_t elements) const {
    Form form{.span = share_.SpanOf(elements), .bits = bits_};
    form.kept = share_.KeptOf(form.span);
    form.tile.width = std::min<std::uint64_t>(side_, std::bit_ceil(form.span));
    form.tile.height = std::bit_ceil((form.span + form.tile.width - 1) / form.tile.width);
    form.place_bits = static_cast<std::uint32_t>(std::bit_width(form.tile.size() - 1));
    return form;
  }

  ChunkForm FormOf(std::uint64_t elements) const override {
    const Form form = Items(elements);
    return {.span = form.span, .bytes = form.Bytes()};
  }

  void EncodeChunks(std::uint64_t elements, const float* added, float* momentum,
                    std::byte* items) override {
    const Form form = Items(elements);
    const std::uint64_t chunks = FormOf(elements).Chunks(elements);
    const std::uint64_t cells = chunks * form.tile.size();
    const auto memory = kernels::ShareMemory(cells * sizeof(float));
    auto* spectrum = reinterpret_cast<float*>(memory.get());
    kernels::ForItems(chunks, form.span, [&](std::uint64_t chunk) {
      const std::uint64_t at = chunk * form.span;
      float* matrix = spectrum + chunk * form.tile.size();
      const std::uint64_t count = std::min(form.span, elements - at);
      for (std::uint64_t i = 0; i < count; ++i) {
        matrix[i] = momentum[at + i] = decay_ * momentum[at + i] + added[at + i];
      }
      std::fill(matrix + count, matrix + form.tile.size(), 0.0f);
      kernels::CosineTransform(form.tile, matrix);
    });
    kernels::TakeLargest({}, spectrum, cells, form.tile.size(), form.kept,
                         [&](std::uint64_t chunk, const kernels::Entries& chosen) {
                           const std::uint64_t at = chunk * form.span;
                           std::byte* item = items + chunk * form.Bytes();
                           Write(form, chosen, item);
                           Subtract(form, item, momentum + at,
                                    std::min(form.span, elements - at));
                         });
  }

  void DecodeChunks(std::uint64_t elements, const std::byte* items, std::uint64_t rows,
                    bool overwrite, float* out) const override {
    const Form form = Items(elements);
    kernels::ForItems(FormOf(elements).Chunks(rows), form.span, [&](std::uint64_t chunk) {
      const std::uint64_t at = chunk * form.span;
      const std::uint64_t count = std::min(form.span, rows - at);
      Matrix matrix;
      Read(form, items + chunk * form.Bytes(), matrix);
      for (std::uint64_t i = 0; i < count; ++i) {
        out[at + i] = overwrite ? matrix[i] : out[at + i] + matrix[i];
      }
    });
  }

  static void Write(const Form& form, const kernels::Entries& chosen, std::byte* item) {
    const std::uint64_t count = chosen.size();
    std::memset(item, 0, form.Bytes());
    if (form.bits == 16) {
      std::array<std::uint16_t, Matrix().size()> narrow;
      kernels::NarrowBfloat(chosen.values.data(), narrow.data(), count);
      std::memcpy(item, narrow.data(), count * sizeof narrow[0]);
    } else {
      std::memcpy(item, chosen.values.data(), count * sizeof(float));
    }
    PackBits(chosen.indices.data(), count, form.place_bits, item + form.PlacesAt());
  }

  // Subtracts one chunk's item from `momentum`, the chunk's own.
  static void Subtract(const Form& form, const std::byte* item, float* momentum,
                       std::uint64_t count) {
    Matrix matrix;
    Read(form, item, matrix);
    for (std::uint64_t i = 0; i < count; ++i) {
      const float left = momentum[i] - matrix[i];
      momentum[i] = std::isfinite(left) ? left : 0;
    }
  }

  // Sets the beginning of `matrix` to one chunk's values.
  static void Read(const Form& form, const std::byte* item, Matrix& matrix) {
    std::array<std::uint32_t, Matrix().size()> places;
    std::array<float, Matrix().size()> values;
    if (form.bits == 16) {
      kernels::WidenBfloat(item, values.data(), form.kept);
    } else {
      std::memcpy(values.data(), item, form.kept * sizeof(float));
    }
    UnpackBits(item + form.PlacesAt(), form.kept, form.place_bits, places.data());
    std::fill_n(matrix.begin(), form.tile.size(), 0.0f);
    std::uint32_t least = 0;
    for (std::uint64_t i = 0; i < form.kept; ++i) {
      if (places[i] < least) throw Refusal("demo: places are not ascending");
      least = places[i] + 1;
      matrix[places[i]] = values[i];
    }
    kernels::InverseCosineTransform(form.tile, matrix.data());
  }

  unsigned side_;
  ChunkShare share_;
  std::uint32_t bits_;
  float decay_;
};

const Registered<NativeCodecs> registered("demo", MakeCodecFactory<Cosines>);

}  // namespace
}  // namespace geomx
