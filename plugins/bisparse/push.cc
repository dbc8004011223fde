// Bi-Sparse's codec for pushes: Deep Gradient Compression (Lin et al., ICLR 2018) of a party's sum.
//
//   g <- clipped g         by the norm of the shard, if `clip` is positive
//   u <- m u + g           momentum correction: velocities accumulate instead of gradients
//   v <- v + u
//   send the k entries of v of largest magnitude, k = max(1, int(ratio n)); there v <- 0, u <- 0
//
// Each party has its own u and v, in which entries that are not sent remain. Zeroing u as well is DGC's
// momentum factor masking (option `masking`).
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
    const kernels::DeviceContext& host = kernels::Host();
    const auto* gradient = reinterpret_cast<const float*>(parts.Find("values")->data);
    float* sum = sum_.At(host, parts.elements);
    float* velocity = momentum_ != 0 ? velocity_.At(host, parts.elements) : nullptr;
    if (!density_.Layout(parts)) {
      SendAll(parts, gradient, velocity, sum);
      return;
    }
    auto* next_fill = next_fill_.At<std::uint64_t>(host, 1);
    selector_.set_next_fill(*next_fill);
    Store(parts, kernels::Sparsify(How(parts), gradient, velocity, sum, parts.elements, parts.rows,
                                   selector_));
    *next_fill = selector_.next_fill();
  }

  bool OnDevices() const override { return true; }
  void EncodeOn(kernels::DeviceContext& device, Parts& parts) override {
    if (!IsDense(parts)) return;
    const auto* gradient = reinterpret_cast<const float*>(parts.Find("values")->data);
    float* sum = sum_.At(device, parts.elements);
    float* velocity = momentum_ != 0 ? velocity_.At(device, parts.elements) : nullptr;
    auto* next_fill = next_fill_.At<std::uint64_t>(device, 1);
    const bool packed = density_.Layout(parts);  // otherwise all rows are chosen
    auto* values = parts.AllocateOn<float>(device, parts.rows);
    auto* indices = parts.AllocateOn<std::uint32_t>(device, parts.rows);
    device.queue.Sparsify(How(parts), gradient, velocity, sum, parts.elements, parts.rows,
                         next_fill, indices, values);
    parts.Find("values")->data = reinterpret_cast<const std::byte*>(values);
    if (packed) {
      Part* where = parts.Find("indices");
      auto* bits = parts.AllocateOn<std::byte>(device, where->BytesFor(parts.rows));
      device.queue.PackBits(indices, parts.rows, where->bits, bits);
      where->data = bits;
    }
    parts.owners.insert(parts.owners.end(), {sum_.buffer(), velocity_.buffer(), next_fill_.buffer()});
  }

  std::span<const float> Kept() override {
    if (sum_.empty()) return {};
    return {sum_.At(kernels::Host(), shard_.elements), shard_.elements};
  }

  bool EndsEmpty() const override { return density_.flush(); }

  double SquaredResidual() const override { return sum_.SumOfSquares(); }

  // Contributions of other parties have been clipped, and have passed the momentum, before they were sent.
  bool Absorb(std::span<const float> relayed) override {
    const float* const terms[] = {relayed.data()};
    kernels::Add(sum_.At(kernels::Host(), relayed.size()), terms, 1, relayed.size());
    return true;
  }

  void Decode(Parts& parts) const override { Expand(parts); }
  void Exchange(Archive& archive) override { archive(velocity_, sum_, next_fill_); }

 private:
  kernels::Sparsification How(const Parts& parts) const {
    return {.momentum = momentum_, .clip = clip_, .masking = masking_, .exact = exact_,
            .seed = Seed(shard_, parts.round)};
  }

  // For rounds that send all values.
  void SendAll(Parts& parts, const float* gradient, float* velocity, float* sum) {
    const kernels::Accumulation step{.scale = kernels::ClipScale(clip_, gradient, parts.elements),
                                     .momentum = momentum_};
    std::byte* out = parts.Allocate(parts.elements * sizeof(float));
    auto* values = reinterpret_cast<float*>(out);
    for (std::uint64_t i = 0; i < parts.elements; ++i) {
      float more = 0;
      if (velocity != nullptr) {
        more = velocity[i] = step.Step(gradient[i], velocity[i]);
        if (masking_) velocity[i] = 0;
      } else {
        more = step.Step(gradient[i]);
      }
      values[i] = std::exchange(sum[i], 0.0f) + more;
    }
    parts.Find("values")->data = out;
  }

  Density density_;
  float momentum_;
  bool masking_;
  double clip_;
  bool exact_;
  ShardInfo shard_;
  kernels::Selector selector_;
  kernels::Resident velocity_, sum_;  // u and v; allocated by the first encoding only
  kernels::Resident next_fill_;       // the selector's state, on the device that encodes
};

const Registered<NativeCodecs> registered("bisparse", MakeCodecFactory<Push>);

}  // namespace
}  // namespace geomx::bisparse
