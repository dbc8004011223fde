// Codecs that keep one float32 per element of a shard for later values: what they have not sent, or the
// error of what they have sent (error feedback).
//
// With option `flush`, the last round of a shard sends all that is kept. This is not for codecs that forget a
// part of it in every round (a decay).
//
// What is kept is reported and written to archives. What other nodes relay is added to the value to be encoded,
// so that it is sent like this node's own: shards that stay dense leave nothing for later, and a decay is of what
// was kept. A derived codec with more state overrides Exchange.
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "core/codec.h"
#include "core/natives.h"
#include "kernels/device.h"
#include "kernels/sums.h"

namespace geomx {

class ResidualCodec : public Codec {
 public:
  // Reads the option `flush`; false where it is absent.
  ResidualCodec(const Options& options, const ShardInfo& shard) : elements_(shard.elements) {
    const auto flush = options.find("flush");
    flush_ = flush != options.end() && flush->second != 0;
  }

  std::span<const float> Kept() final {
    if (residual_.empty()) return {};
    return {residual(elements_), elements_};
  }
  bool EndsEmpty() const final { return flush_; }
  double SquaredResidual() const final { return residual_.SumOfSquares(); }
  void Exchange(Archive& archive) override { archive(residual_); }

 protected:
  // What is kept of every element, on the host: zeros at first, allocated by the first call.
  float* residual(std::uint64_t elements) { return residual_.At(kernels::Host(), elements); }

  // Adds values to it, and returns it.
  float* Accumulate(const float* values, std::uint64_t elements) {
    float* kept = residual(elements);
    kernels::Add(kept, &values, 1, elements);
    return kept;
  }

  // Returns true if `parts` are of a round that sends all.
  bool Flushes(const Parts& parts) const { return flush_ && parts.last; }

  // Makes `parts`, one of float32, the sum of `values` and of all that is kept.
  void SendAll(Parts& parts, const float* values) {
    if (residual_.empty()) return;
    float* kept = residual(parts.elements);
    auto* all = reinterpret_cast<float*>(parts.Allocate(parts.elements * sizeof(float)));
    for (std::uint64_t i = 0; i < parts.elements; ++i) all[i] = values[i] + std::exchange(kept[i], 0.0f);
    parts.parts[0].data = reinterpret_cast<const std::byte*>(all);
  }

  // Returns true if `parts` are a whole shard of float32 and nothing else.
  static bool IsDense(const Parts& parts) {
    return Codec::Concerns(parts) && parts.parts.size() == 1 && parts.rows == parts.elements;
  }

  // The data of the dense values; null in a layout, or if there are none.
  static const float* DenseValues(const Parts& parts) {
    const Part* values = parts.Find("values");
    return values == nullptr ? nullptr : reinterpret_cast<const float*>(values->data);
  }

 private:
  std::uint64_t elements_;
  bool flush_ = false;
  kernels::Resident residual_;
};

}  // namespace geomx
