// Bi-Sparse's codec for answers. Encodes the sum of the parties' pushes as `times` * k rows, which hold
// every nonzero entry if `times` is the number of parties. With fewer rows (option `reselect`), the
// entries of largest magnitude are sent, and a residual keeps the others for later rounds.
//
// All parties must receive the same rows, as their replicas of the weights would diverge otherwise.
// The residual therefore belongs to the sum and not to a receiver, and one encoding serves all of them.
#include "kernels/sums.h"
#include "rows.h"

namespace geomx::bisparse {
namespace {

class Pull final : public Codec {
 public:
  Pull(const Options& options, const ShardInfo& shard)
      : density_(options, static_cast<std::uint64_t>(Require(options, "times"))),
        shard_(shard) {}

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
    const kernels::Entries& rows = Choose(parts, sum);
    Store(parts, rows);
    if (selector_.complete()) {
      residual_ = {};
      return;
    }
    if (residual_.empty()) residual_.assign(sum, sum + parts.elements);
    for (const std::uint32_t row : rows.indices) residual_[row] = 0;
  }

  void Decode(Parts& parts) const override { Expand(parts); }
  bool Stateless() const override { return true; }
  double SquaredResidual() const override {
    return kernels::SumOfSquares(residual_.data(), residual_.size());
  }
  void Exchange(Archive& archive) override {
    std::uint64_t next_fill = selector_.next_fill();
    archive(residual_, next_fill);
    selector_.set_next_fill(next_fill);
    if (!residual_.empty() && residual_.size() != shard_.elements) {
      throw StateError("a residual of another shard");
    }
  }

 private:
  const kernels::Entries& Choose(const Parts& parts, const float* sum) {
    float* residual = residual_.empty() ? nullptr : residual_.data();
    const auto peek = [=](std::uint64_t i) {
      return residual != nullptr ? residual[i] + sum[i] : sum[i];
    };
    const auto pass = [&](std::uint32_t threshold, kernels::FindScratch& scratch,
                          kernels::Entries& found) {
      if (residual != nullptr) {
        kernels::Accumulate({}, sum, nullptr, residual, parts.elements, threshold, scratch, found);
      } else {
        kernels::Find(sum, parts.elements, threshold, scratch, found);
      }
    };
    return selector_.Select(residual != nullptr ? residual : sum, parts.elements, parts.rows,
                            Seed(shard_, parts.round), true, peek, pass);
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
  ShardInfo shard_;
  kernels::Selector selector_;
  kernels::Array<float> residual_;  // empty while everything has been sent
};

const Registered<NativeCodecs> registered("bisparse_pull", MakeCodecFactory<Pull>);

}  // namespace
}  // namespace geomx::bisparse
