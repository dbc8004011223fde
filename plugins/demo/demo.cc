// Sends the largest cosine coefficients of every chunk of a shard, and keeps the rest for later.
//
//   m <- decay m + g;  send q, the largest `kept` coefficients of DCT(m), chunk by chunk;  m <- m - IDCT(q)
//
// A chunk is `side` x `side` consecutive values at most, transformed as a matrix in row-major order
// (kernels/cosines.h): a shard has no shape here. All chunks of a shard are equally long, a multiple of 8
// elements; their matrices have powers of two as sides, and end with zeros. What receivers make of those
// is left out at both ends, so that exactly what arrives is subtracted from m.
//
// A chunk is one item of a packed part, padded to whole bytes:
//
//   kept x `bits`   the coefficients, bfloat16 or float32
//   kept x w bits   their places in the matrix, column by column, ascending, w = log2 of its size
//
// Shards for which this saves nothing stay dense.
//
// The same codec encodes answers: sums of the parties' pushes, with `times` as many coefficients, which
// is about how many a sum has. All parties must receive the same values, as their replicas of the weights
// would diverge otherwise. What an answer leaves out therefore belongs to the sum and not to a receiver
// (`shared`), and one encoding serves all.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "core/natives.h"
#include "core/plugin_failure.h"
#include "kernels/bfloat.h"
#include "kernels/bits.h"
#include "kernels/chunks.h"
#include "kernels/cosines.h"
#include "kernels/device.h"
#include "kernels/sums.h"
#include "kernels/thread_pool.h"

namespace geomx {
namespace {

using kernels::Tile;
using Matrix = std::array<float, std::size_t{kernels::kLongestSide} * kernels::kLongestSide>;

// The form of a shard's chunks.
struct Form {
  std::uint64_t span = 8;  // elements
  std::uint64_t kept = 1;  // coefficients
  Tile tile;
  std::uint32_t bits = 16, place_bits = 0;

  std::uint64_t Chunks(std::uint64_t elements) const { return (elements + span - 1) / span; }
  std::uint64_t PlacesAt() const { return kept * bits / 8; }
  std::uint64_t Bytes() const { return PlacesAt() + (kept * place_bits + 7) / 8; }
};

// Calls run(chunk) for all chunks, on several threads if there are many.
template <class Run>
void ForChunks(std::uint64_t chunks, std::uint64_t span, const Run& run) {
  const std::uint64_t together = std::max<std::uint64_t>(1, kernels::kBlock / span);
  const std::uint64_t tasks = (chunks + together - 1) / together;
  kernels::ForBlocks(tasks * kernels::kBlock, [&](std::uint64_t first, std::uint64_t) {
    const std::uint64_t from = first / kernels::kBlock * together;
    for (std::uint64_t i = from; i < std::min(chunks, from + together); ++i) run(i);
  });
}

class Cosines final : public Codec {
 public:
  Cosines(const Options& options, const ShardInfo& shard)
      : side_(static_cast<unsigned>(Require(options, "side"))),
        kept_(static_cast<std::uint64_t>(Require(options, "kept"))),
        times_(static_cast<std::uint64_t>(Require(options, "times"))),
        bits_(static_cast<std::uint32_t>(Require(options, "bits"))),
        decay_(static_cast<float>(Require(options, "decay"))),
        shared_(Require(options, "shared") != 0),
        shard_(shard) {
    if (side_ < 4 || side_ > kernels::kLongestSide || !std::has_single_bit(side_)) {
      throw std::invalid_argument("side must be a power of two, 4 to 64");
    }
    if (kept_ < 1 || kept_ > side_ * side_ || times_ < 1) {
      throw std::invalid_argument("kept must be 1 to the square of side");
    }
    if (bits_ != 16 && bits_ != 32) throw std::invalid_argument("bits must be 16 or 32");
  }

  void Layout(Parts& parts) const override {
    if (!IsDense(parts)) return;
    const Form form = FormOf(parts.elements);
    const std::uint64_t bytes = form.Chunks(parts.elements) * form.Bytes();
    if (bytes >= parts.elements * sizeof(float)) return;
    parts.parts.assign(1, {.name = "coefficients",
                           .bits = static_cast<std::uint32_t>(8 * form.Bytes()),
                           .span = form.span});
  }

  void Encode(Parts& parts) override {
    const Part* values = parts.Find("values");
    const auto* added = values ? reinterpret_cast<const float*>(values->data) : nullptr;
    Layout(parts);
    Part* coefficients = parts.Find("coefficients");
    if (coefficients == nullptr) return;
    const Form form = FormOf(parts.elements);
    float* momentum = momentum_.At(kernels::Host(), parts.elements);
    const std::uint64_t chunks = form.Chunks(parts.elements);
    const std::uint64_t cells = chunks * form.tile.size();
    const auto memory = kernels::ShareMemory(cells * sizeof(float));
    auto* spectrum = reinterpret_cast<float*>(memory.get());
    ForChunks(chunks, form.span, [&](std::uint64_t chunk) {
      const std::uint64_t at = chunk * form.span;
      float* matrix = spectrum + chunk * form.tile.size();
      const std::uint64_t count = std::min(form.span, parts.elements - at);
      for (std::uint64_t i = 0; i < count; ++i) {
        matrix[i] = momentum[at + i] = decay_ * momentum[at + i] + added[at + i];
      }
      std::fill(matrix + count, matrix + form.tile.size(), 0.0f);
      kernels::CosineTransform(form.tile, matrix);
    });
    std::byte* out = parts.Allocate(coefficients->BytesFor(parts.rows));
    kernels::TakeLargest({}, spectrum, cells, form.tile.size(), form.kept,
                         [&](std::uint64_t chunk, const kernels::Entries& chosen) {
                           const std::uint64_t at = chunk * form.span;
                           std::byte* item = out + chunk * form.Bytes();
                           Write(form, chosen, item);
                           Subtract(form, item, momentum + at,
                                    std::min(form.span, parts.elements - at));
                         });
    coefficients->data = out;
  }

  void Decode(Parts& parts) const override {
    if (parts.Find("coefficients") == nullptr) return;
    auto* values = reinterpret_cast<float*>(parts.Allocate(parts.rows * sizeof(float)));
    DecodeStraight(parts, true, values);
    parts.parts.assign(1, {.name = "values", .data = reinterpret_cast<std::byte*>(values)});
  }

  bool DecodeStraight(const Parts& parts, bool overwrite, float* out) const override {
    const Part* coefficients = parts.Find("coefficients");
    if (coefficients == nullptr) return false;
    const Form form = FormOf(parts.elements);
    ForChunks(form.Chunks(parts.rows), form.span, [&](std::uint64_t chunk) {
      const std::uint64_t at = chunk * form.span;
      const std::uint64_t count = std::min(form.span, parts.rows - at);
      Matrix matrix;
      Read(form, coefficients->data + chunk * form.Bytes(), matrix);
      for (std::uint64_t i = 0; i < count; ++i) {
        out[at + i] = overwrite ? matrix[i] : out[at + i] + matrix[i];
      }
    });
    return true;
  }

  std::span<const float> Kept() override {
    if (momentum_.empty()) return {};
    return {momentum_.At(kernels::Host(), shard_.elements), shard_.elements};
  }
  double SquaredResidual() const override { return momentum_.SumOfSquares(); }
  bool Absorb(std::span<const float> relayed) override {
    const float* const terms[] = {relayed.data()};
    kernels::Add(momentum_.At(kernels::Host(), relayed.size()), terms, 1, relayed.size());
    return true;
  }

  void Exchange(Archive& archive) override { archive(momentum_); }
  bool Stateless() const override { return shared_; }
  bool FixedSize() const override { return true; }

 private:
  static bool IsDense(const Parts& parts) {
    return Codec::Concerns(parts) && parts.parts.size() == 1 && parts.rows == parts.elements;
  }

  Form FormOf(std::uint64_t elements) const {
    const std::uint64_t longest = std::uint64_t{side_} * side_;
    const std::uint64_t chunks = std::max<std::uint64_t>(1, (elements + longest - 1) / longest);
    Form form;
    form.span = std::max<std::uint64_t>(8, ((elements + chunks - 1) / chunks + 7) / 8 * 8);
    form.tile.width = std::min<std::uint64_t>(side_, std::bit_ceil(form.span));
    form.tile.height = std::bit_ceil((form.span + form.tile.width - 1) / form.tile.width);
    form.kept = std::clamp<std::uint64_t>(form.span * kept_ / longest * times_, 1, form.span);
    form.bits = bits_;
    form.place_bits = static_cast<std::uint32_t>(std::bit_width(form.tile.size() - 1));
    return form;
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

  // Subtracts one chunk's item from `momentum`, the chunk's own. What is infinite or NaN is sent,
  // and not kept.
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
  std::uint64_t kept_, times_;
  std::uint32_t bits_;
  float decay_;
  bool shared_;
  ShardInfo shard_;
  kernels::Resident momentum_;  // what has not been sent; allocated by the first encoding
};

const Registered<NativeCodecs> registered("demo", MakeCodecFactory<Cosines>);

}  // namespace
}  // namespace geomx
