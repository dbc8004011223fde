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

#include "kernels/sums.h"
#include "rows.h"

namespace geomx::bisparse {
namespace {

class Push final : public Codec {
 public:
  Push(const Options& options, const ShardInfo& shard)
      : density_(options, 1),
        momentum_(static_cast<float>(Require(options, "momentum"))),
        masking_(Require(options, "masking") != 0),
        clip_(Require(options, "clip")),
        exact_(Require(options, "exact") != 0),
        shard_(shard) {}

  void Layout(Parts& parts) const override {
    if (IsDense(parts)) density_.Layout(parts);
  }

  void Encode(Parts& parts) override {
    if (!IsDense(parts)) return;
    const auto* gradient = reinterpret_cast<const float*>(parts.Find("values")->data);
    const std::uint64_t elements = parts.elements;
    sum_.resize(elements);
    if (momentum_ != 0) velocity_.resize(elements);
    if (!density_.Layout(parts)) {
      SendAll(parts, gradient);
      return;
    }
    const kernels::Sparsification how{.momentum = momentum_, .clip = clip_, .masking = masking_,
                                      .exact = exact_, .seed = Seed(shard_, parts.round)};
    Store(parts, kernels::Sparsify(how, gradient, momentum_ != 0 ? velocity_.data() : nullptr,
                                   sum_.data(), elements, parts.rows, selector_));
  }

  // What others have sent already had its momentum and its clipping.
  bool Absorb(std::span<const float> relayed) override {
    sum_.resize(relayed.size());
    const float* const terms[] = {relayed.data()};
    kernels::Add(sum_.data(), terms, 1, relayed.size());
    return true;
  }

  void Decode(Parts& parts) const override { Expand(parts); }

 private:
  // So many rows are wanted that their indices are not worth it.
  void SendAll(Parts& parts, const float* gradient) {
    const float scale = kernels::ClipScale(clip_, gradient, parts.elements);
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
  ShardInfo shard_;
  kernels::Selector selector_;
  kernels::Array<float> velocity_, sum_;  // u and v; only where values are sent from
};

const Registered<NativeCodecs> registered("bisparse", MakeCodecFactory<Push>);

}  // namespace
}  // namespace geomx::bisparse
