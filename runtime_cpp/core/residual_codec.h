// Codecs that keep one float32 per element of a shard for later values: what they have not sent, or the
// error of what they have sent (error feedback).
//
// What is kept is reported and written to archives. What other nodes relay is added to the value to be encoded,
// so that it is sent like this node's own: shards that stay dense leave nothing for later, and a decay is of what
// was kept. A derived codec with more state overrides Exchange.
#pragma once

#include <cstdint>
#include <span>

#include "core/codec.h"
#include "kernels/device.h"
#include "kernels/sums.h"

namespace geomx {

class ResidualCodec : public Codec {
 public:
  explicit ResidualCodec(const ShardInfo& shard) : elements_(shard.elements) {}

  std::span<const float> Kept() final {
    if (residual_.empty()) return {};
    return {residual(elements_), elements_};
  }
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
  kernels::Resident residual_;
};

}  // namespace geomx
