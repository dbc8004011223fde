// Bi-Sparse on the way up, Deep Gradient Compression (Lin et al., ICLR 2018) of a party's sum:
//
//   g <- clipped g         the norm of the shard's part, if `clip` is positive
//   u <- m u + g           momentum correction: what accumulates is velocity
//   v <- v + u
//   send the k entries of v of largest magnitude, k = max(1, int(ratio n)); there v <- 0, u <- 0
//
// u and v are this party's own; what is not sent stays in them. Zeroing u as well is DGC's momentum
// factor masking, `masking`.
#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "rows.h"

namespace geomx::bisparse {
namespace {

// Sum of squares, in lanes that a compiler can keep side by side.
double SquareNorm(const float* values, std::uint64_t count) {
  constexpr std::uint64_t kLanes = 8;
  double lanes[kLanes] = {};
  std::uint64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::uint64_t lane = 0; lane < kLanes; ++lane) {
      const double value = values[i + lane];
      lanes[lane] += value * value;
    }
  }
  for (; i < count; ++i) lanes[0] += double{values[i]} * values[i];
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

// Velocities that nothing feeds any more would end as subnormal numbers, which are slow.
constexpr std::uint32_t kLeastNormal = 0x00800000u;

class Push final : public Codec {
 public:
  Push(const Options& options, const ShardInfo& shard)
      : density_(options, 1),
        momentum_(static_cast<float>(Require(options, "momentum"))),
        masking_(Require(options, "masking") != 0),
        clip_(Require(options, "clip")),
        exact_(Require(options, "exact") != 0),
        selector_(shard) {}

  void Layout(Parts& parts) const override {
    if (IsDense(parts)) density_.Layout(parts);
  }

  void Encode(Parts& parts) override {
    if (!IsDense(parts)) return;
    const auto* gradient = reinterpret_cast<const float*>(parts.Find("values")->data);
    const std::uint64_t elements = parts.elements;
    sum_.resize(elements);
    if (momentum_ != 0) velocity_.resize(elements);
    const float scale = ClipScale(gradient, elements);
    if (!density_.Layout(parts)) {
      SendAll(parts, gradient, scale);
      return;
    }
    const auto& rows = momentum_ != 0 ? Choose<true>(parts, gradient, scale)
                                      : Choose<false>(parts, gradient, scale);
    Store(parts, sum_.data(), rows);
    for (const std::uint32_t row : rows) sum_[row] = 0;
    if (momentum_ == 0 || !masking_) return;
    for (const std::uint32_t row : rows) velocity_[row] = 0;
  }

  // What others have sent already had its momentum and its clipping.
  bool Absorb(std::span<const float> relayed) override {
    sum_.resize(relayed.size());
    for (std::size_t i = 0; i < relayed.size(); ++i) sum_[i] += relayed[i];
    return true;
  }

  void Decode(Parts& parts) const override { Expand(parts); }

 private:
  float ClipScale(const float* gradient, std::uint64_t elements) const {
    if (!(clip_ > 0)) return 1;
    const double norm = std::sqrt(SquareNorm(gradient, elements));
    return norm > clip_ ? static_cast<float>(clip_ / norm) : 1.0f;
  }

  template <bool kMomentum>
  void Accumulate(const float* __restrict gradient, float scale, std::uint64_t first,
                  std::uint64_t count, std::uint32_t* __restrict magnitudes) {
    float* __restrict sum = sum_.data() + first;
    float* __restrict velocity = velocity_.data() + (kMomentum ? first : 0);
    const float momentum = momentum_;
    gradient += first;
    for (std::uint64_t i = 0; i < count; ++i) {
      float step = scale * gradient[i];
      if constexpr (kMomentum) {
        step += momentum * velocity[i];
        step = Magnitude(step) < kLeastNormal ? 0.0f : step;
        velocity[i] = step;
      }
      sum[i] += step;
      magnitudes[i] = Magnitude(sum[i]);
    }
  }

  template <bool kMomentum>
  const std::vector<std::uint32_t>& Choose(const Parts& parts, const float* gradient, float scale) {
    const auto peek = [&](std::uint64_t i) {
      const float step = scale * gradient[i] + (kMomentum ? momentum_ * velocity_[i] : 0.0f);
      return Magnitude(sum_[i] + step);
    };
    const auto pass = [&](std::uint64_t first, std::uint64_t count, std::uint32_t* magnitudes) {
      Accumulate<kMomentum>(gradient, scale, first, count, magnitudes);
    };
    return selector_.Select(sum_.data(), parts.elements, parts.rows, parts.round, exact_, peek,
                            pass);
  }

  // So many rows are wanted that their indices are not worth it.
  void SendAll(Parts& parts, const float* gradient, float scale) {
    std::byte* out = parts.Allocate(parts.elements * sizeof(float));
    auto* values = reinterpret_cast<float*>(out);
    for (std::uint64_t i = 0; i < parts.elements; ++i) {
      float step = scale * gradient[i];
      if (momentum_ != 0) velocity_[i] = step += momentum_ * velocity_[i];
      values[i] = std::exchange(sum_[i], 0.0f) + step;
    }
    if (masking_) std::fill(velocity_.begin(), velocity_.end(), 0.0f);
    parts.Find("values")->data = out;
  }

  Density density_;
  float momentum_;
  bool masking_;
  double clip_;
  bool exact_;
  Selector selector_;
  std::vector<float> velocity_, sum_;  // u and v; only where values are sent from
};

const Registered<NativeCodecs> registered("bisparse", MakeCodecFactory<Push>);

}  // namespace
}  // namespace geomx::bisparse
