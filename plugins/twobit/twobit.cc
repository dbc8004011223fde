// Two bits a value: +s, -s or nothing, and what was not said is kept for later.
//
//   r <- r + g;  where |r| reaches t: send s with the sign of r, r <- r - what was sent
//
// With a fixed threshold t = s, as in MXNet's 2-bit compression. Without, s follows the values: the
// nearest of -s, 0, s is sent, t = s / 2, with s = sum r^2 / sum |r|. That is the best s for Laplace
// distributed values, twice their mean magnitude, more where tails are heavier, and little more than
// the mean of rows that another codec has chosen for their size. Residuals belong to elements,
// whatever row they travel in.
//
// Codes are MXNet's: 11 is +s, 10 is -s, 00 is nothing, the first row in the two top bits.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "core/bits.h"
#include "core/natives.h"

namespace geomx {
namespace {

constexpr std::uint64_t kBlock = 1024;

// Four at once, by whatever vector instructions there are.
using Lanes = float __attribute__((vector_size(16)));
using LaneBits = std::uint32_t __attribute__((vector_size(16)));

inline Lanes Load(const float* values) {
  Lanes lanes;
  std::memcpy(&lanes, values, sizeof lanes);
  return lanes;
}

inline Lanes Magnitudes(Lanes values) {
  return reinterpret_cast<Lanes>(reinterpret_cast<LaneBits>(values) & 0x7fffffffu);
}

// Sums of magnitudes and of squares.
struct Moments {
  double magnitudes = 0, squares = 0;

  void Add(const float* values, std::uint64_t count) {
    Lanes first = {}, second = {}, more_first = {}, more_second = {};  // additions take their time
    std::uint64_t i = 0;
    for (; i + 8 <= count; i += 8) {
      const Lanes low = Load(values + i), high = Load(values + i + 4);
      first += Magnitudes(low);
      more_first += Magnitudes(high);
      second += low * low;
      more_second += high * high;
    }
    first += more_first;
    second += more_second;
    for (; i < count; ++i) {
      first[0] += std::fabs(values[i]);
      second[0] += values[i] * values[i];
    }
    for (int lane = 0; lane < 4; ++lane) {
      magnitudes += first[lane];
      squares += second[lane];
    }
  }

  // 0 where all is zero; NaN where anything is.
  float Scale() const {
    return magnitudes == 0 ? 0.0f : static_cast<float>(squares / magnitudes);
  }
};

class TwoBit final : public Codec {
 public:
  TwoBit(const Options& options, const ShardInfo&)
      : fixed_(static_cast<float>(Require(options, "threshold"))) {}

  void Layout(Parts& parts) const override {
    Part* values = parts.Find("values");
    if (values == nullptr || values->bits != 32 || values->whole) return;
    values->name = "codes";
    values->bits = 2;
    if (fixed_ > 0) return;
    parts.parts.push_back(
        {.name = "scale", .bits = 32, .whole = true, .in_every_slice = true, .items = 1});
  }

  void Encode(Parts& parts) override {
    const Part* values = parts.Find("values");
    if (values == nullptr || values->bits != 32 || values->whole) return;
    const auto* gradient = reinterpret_cast<const float*>(values->data);
    residual_.resize(parts.elements);
    const std::uint32_t* elements = Elements(parts);
    Layout(parts);

    Moments moments;
    ForBlocks(parts.rows, [&](std::uint64_t first, std::uint64_t count) {
      float pending[kBlock];
      const float* added = gradient + first;
      if (elements != nullptr) {
        for (std::uint64_t i = 0; i < count; ++i) {
          pending[i] = residual_[elements[first + i]] += added[i];
        }
        moments.Add(pending, count);
      } else {
        float* residual = residual_.data() + first;
        for (std::uint64_t i = 0; i < count; ++i) residual[i] += added[i];
        moments.Add(residual, count);
      }
    });
    const float scale = fixed_ > 0 ? fixed_ : moments.Scale();
    Quantise(parts, elements, scale);
    if (Part* part = parts.Find("scale")) {
      std::byte* data = parts.Allocate(sizeof scale);
      std::memcpy(data, &scale, sizeof scale);
      part->data = data;
    }
  }

  void Decode(Parts& parts) const override {
    Part* codes = parts.Find("codes");
    if (codes == nullptr) return;
    float scale = fixed_;
    if (const Part* part = parts.Find("scale")) std::memcpy(&scale, part->data, sizeof scale);
    const float worth[4] = {0, 0, -scale, scale};
    std::byte* wide = parts.Allocate(parts.rows * sizeof(float));
    auto* out = reinterpret_cast<float*>(wide);
    for (std::uint64_t row = 0; row < parts.rows; ++row) {
      const auto four = std::to_integer<unsigned>(codes->data[row / 4]);
      out[row] = worth[four >> (6 - 2 * (row % 4)) & 3u];
    }
    codes->name = "values";
    codes->bits = 32;
    codes->data = wide;
  }

  bool FixedSize() const override { return true; }
  Stage stage() const override { return Stage::kQuantise; }

 private:
  template <class Block>
  static void ForBlocks(std::uint64_t rows, Block block) {
    for (std::uint64_t first = 0; first < rows; first += kBlock) {
      block(first, std::min(kBlock, rows - first));
    }
  }

  // Which element every row is, if an earlier codec has chosen rows.
  const std::uint32_t* Elements(const Parts& parts) {
    const Part* indices = parts.Find("indices");
    if (indices == nullptr) return nullptr;
    elements_.resize(parts.rows);
    UnpackBits(indices->data, parts.rows, indices->bits, elements_.data());
    for (const std::uint32_t element : elements_) {
      if (element >= parts.elements) throw std::out_of_range("twobit: a row of no element");
    }
    return elements_.data();
  }

  // Codes of `count` residuals; what they say is taken off. NaN speaks, so that it is noticed.
  static void Code(float* __restrict residual, std::uint64_t count, float scale, float threshold,
                   std::uint8_t* __restrict codes) {
    for (std::uint64_t i = 0; i < count; ++i) {
      const float value = residual[i];
      const std::uint32_t says = std::fabs(value) < threshold ? 0u : ~0u;
      const std::uint32_t sign = std::bit_cast<std::uint32_t>(value) & 0x80000000u;
      const std::uint32_t sent = (std::bit_cast<std::uint32_t>(scale) | sign) & says;
      residual[i] = value - std::bit_cast<float>(sent);
      codes[i] = static_cast<std::uint8_t>((3u - (sign >> 31)) & says);
    }
  }

  void Quantise(Parts& parts, const std::uint32_t* elements, float scale) {
    const float threshold = fixed_ > 0 ? scale : scale / 2;
    std::byte* out = parts.Allocate((parts.rows + 3) / 4);
    parts.Find("codes")->data = out;
    ForBlocks(parts.rows, [&](std::uint64_t first, std::uint64_t count) {
      std::uint8_t codes[kBlock];
      if (elements == nullptr) {
        Code(residual_.data() + first, count, scale, threshold, codes);
      } else {
        float pending[kBlock];
        const std::uint32_t* here = elements + first;
        for (std::uint64_t i = 0; i < count; ++i) pending[i] = residual_[here[i]];
        Code(pending, count, scale, threshold, codes);
        for (std::uint64_t i = 0; i < count; ++i) residual_[here[i]] = pending[i];
      }
      for (std::uint64_t i = count; i % 4 != 0; ++i) codes[i] = 0;
      for (std::uint64_t i = 0; i < count; i += 4) {
        std::uint32_t four;
        std::memcpy(&four, codes + i, sizeof four);
        // The product's top byte: the first code moves up by 30 bits, the others by 20, 10 and 0.
        out[(first + i) / 4] = static_cast<std::byte>(four * 0x40100401u >> 24);
      }
    });
  }

  float fixed_;  // 0: the threshold follows the values
  std::vector<float> residual_;
  std::vector<std::uint32_t> elements_;
};

const Registered<NativeCodecs> registered("twobit", MakeCodecFactory<TwoBit>);

}  // namespace
}  // namespace geomx
