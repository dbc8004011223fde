// Bi-Sparse on the way down: the sum of what the parties sent is sparse too. `times` k rows hold the
// union of `times` parties' choices; with fewer rows (a re-selection) the largest go and the rest
// waits in a residual for later rounds, so that nothing is ever lost.
//
// Every party must get the same rows, or their replicas would drift apart: the residual belongs to
// the sum, not to a receiver, and one encoding serves them all.
#include <algorithm>

#include "rows.h"

namespace geomx::bisparse {
namespace {

class Pull final : public Codec {
 public:
  Pull(const Options& options, const ShardInfo& shard)
      : density_(options, static_cast<std::uint64_t>(Require(options, "times"))),
        selector_(shard) {}

  void Layout(Parts& parts) const override {
    if (IsDense(parts)) density_.Layout(parts);
  }

  void Encode(Parts& parts) override {
    if (!IsDense(parts)) return;
    const auto* sum = reinterpret_cast<const float*>(parts.Find("values")->data);
    if (!density_.Layout(parts)) {
      SendAll(parts, sum);
      return;
    }
    const auto& rows = residual_.empty() ? Choose<false>(parts, sum) : Choose<true>(parts, sum);
    Store(parts, residual_.empty() ? sum : residual_.data(), rows);
    if (selector_.complete()) {
      residual_ = {};
      return;
    }
    if (residual_.empty()) residual_.assign(sum, sum + parts.elements);
    for (const std::uint32_t row : rows) residual_[row] = 0;
  }

  void Decode(Parts& parts) const override { Expand(parts); }
  bool Stateless() const override { return true; }

 private:
  template <bool kResidual>
  const std::vector<std::uint32_t>& Choose(const Parts& parts, const float* sum) {
    const auto peek = [&](std::uint64_t i) {
      return Magnitude(kResidual ? residual_[i] + sum[i] : sum[i]);
    };
    const auto pass = [&](std::uint64_t first, std::uint64_t count,
                          std::uint32_t* __restrict magnitudes) {
      const float* __restrict term = sum + first;
      if constexpr (kResidual) {
        float* __restrict residual = residual_.data() + first;
        for (std::uint64_t i = 0; i < count; ++i) {
          residual[i] += term[i];
          magnitudes[i] = Magnitude(residual[i]);
        }
      } else {
        for (std::uint64_t i = 0; i < count; ++i) magnitudes[i] = Magnitude(term[i]);
      }
    };
    const float* values = kResidual ? residual_.data() : sum;
    return selector_.Select(values, parts.elements, parts.rows, parts.round, true, peek, pass);
  }

  void SendAll(Parts& parts, const float* sum) {
    if (residual_.empty()) return;
    std::byte* out = parts.Allocate(parts.elements * sizeof(float));
    auto* values = reinterpret_cast<float*>(out);
    for (std::uint64_t i = 0; i < parts.elements; ++i) values[i] = sum[i] + residual_[i];
    parts.Find("values")->data = out;
    residual_ = {};
  }

  Density density_;
  Selector selector_;
  std::vector<float> residual_;  // empty while everything has been sent
};

const Registered<NativeCodecs> registered("bisparse_pull", MakeCodecFactory<Pull>);

}  // namespace
}  // namespace geomx::bisparse
