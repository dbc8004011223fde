// Differential gradient transmission (Zhou et al., FGCS 121, 2021). Divides the rows of a shard into
// blocks. The blocks that contribute most to the update are sent first, on the reliable channel; the
// others on best-effort channels, in order of contribution.
//
//   contribution  c <- alpha c + (1 - alpha) mean |x|      per block, starting from 0
//   reliable      round(k n) of n blocks, at least one
//   others        spread evenly over channels 1..C by rank
//   k             max(k0 loss / loss_0, k_min), at most 1, if the loss is known and `adaptive` is on
//
// Blocks whose contribution is exactly zero are sent too, last; without them, the receiver could not
// distinguish zero from lost.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>

#include "core/natives.h"
#include "kernels/half.h"
#include "kernels/sums.h"

namespace geomx {
namespace {

// Returns a block's contribution in simulations without gradients: a hash of shard, round and block,
// in [0, 1).
double PhantomContribution(const ShardInfo& shard, Round round, std::uint64_t block) {
  std::uint64_t x = (std::uint64_t{shard.key} << 40) ^ (std::uint64_t{shard.index} << 20) ^ block;
  x = (x + round) * 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return static_cast<double>((x ^ (x >> 31)) >> 11) * 0x1p-53;
}

// Returns the mean magnitude of values in single or half precision. Returns 0 for other encodings,
// whose blocks are then sent in their order.
double MeanMagnitude(const Part& values, std::uint64_t first, std::uint64_t count) {
  double sum = 0;
  if (values.bits == 32) {
    sum = kernels::SumOfMagnitudes(reinterpret_cast<const float*>(values.data) + first, count);
  } else if (values.bits == 16) {
    float wide[kernels::kRun];
    for (std::uint64_t at = 0; at < count; at += kernels::kRun) {
      const std::uint64_t few = std::min(kernels::kRun, count - at);
      kernels::Widen(values.data + 2 * (first + at), wide, few);
      sum += kernels::SumOfMagnitudes(wide, few);
    }
  }
  return count == 0 ? 0 : sum / static_cast<double>(count);
}

class Dgt final : public Slicer {
 public:
  Dgt(const Options& options, const ShardInfo&)
      : k_(Require(options, "k")),
        k_min_(Require(options, "k_min")),
        adaptive_(Require(options, "adaptive") != 0),
        alpha_(Require(options, "alpha")),
        block_bytes_(static_cast<std::uint64_t>(Require(options, "block_bytes"))),
        channels_(static_cast<std::uint32_t>(Require(options, "channels"))) {}

  void Cut(const SliceContext& context, std::vector<Slice>& slices) override {
    if (!context.survives_holes) return;
    const Part* values = context.encoded.Find("values");
    const std::vector<Slice> blocks = Blocks(context, slices);
    Contribute(context, values, blocks);

    std::vector<std::uint32_t> order(blocks.size());
    std::iota(order.begin(), order.end(), 0u);
    std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      return contributions_[a] > contributions_[b];
    });
    const auto n = static_cast<std::uint32_t>(blocks.size());
    const double wanted = std::round(Fraction(context.loss_ratio) * n);
    const auto reliable = std::clamp<std::uint32_t>(static_cast<std::uint32_t>(wanted), 1, n);
    slices.clear();
    for (std::uint32_t rank = 0; rank < n; ++rank) {
      Slice slice = blocks[order[rank]];
      if (rank >= reliable) {
        slice.channel = static_cast<std::uint8_t>(
            1 + std::uint64_t{rank - reliable} * channels_ / (n - reliable));
      }
      slices.push_back(slice);
    }
  }

  void Exchange(Archive& archive) override { archive(contributions_); }

 private:
  double Fraction(double loss_ratio) const {
    if (!adaptive_ || std::isnan(loss_ratio)) return k_;
    return std::min(1.0, std::max(k_ * loss_ratio, k_min_));
  }

  std::vector<Slice> Blocks(const SliceContext& context, const std::vector<Slice>& slices) const {
    constexpr std::uint64_t kMost = std::uint64_t{1} << 30;  // no shard has more rows
    const auto rows =
        static_cast<std::uint32_t>(std::min(context.encoded.RowsIn(block_bytes_), kMost));
    std::vector<Slice> blocks;
    for (const Slice& slice : slices) {
      for (std::uint32_t at = 0; at < slice.rows || (slice.rows == 0 && at == 0); at += rows) {
        Slice block = slice;
        block.first_row = slice.first_row + at;
        block.rows = std::min(rows, slice.rows - at);
        blocks.push_back(block);
      }
    }
    return blocks;
  }

  void Contribute(const SliceContext& context, const Part* values,
                  const std::vector<Slice>& blocks) {
    contributions_.resize(blocks.size(), 0.0);
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      const double magnitude =
          values != nullptr && values->data != nullptr
              ? MeanMagnitude(*values, blocks[i].first_row, blocks[i].rows)
              : PhantomContribution(context.shard, context.round, i);
      contributions_[i] = alpha_ * contributions_[i] + (1 - alpha_) * magnitude;
    }
  }

  double k_, k_min_;
  bool adaptive_;
  double alpha_;
  std::uint64_t block_bytes_;
  std::uint32_t channels_;
  std::vector<double> contributions_;
};

const Registered<NativeSlicers> registered("dgt", MakeSlicerFactory<Dgt>);

}  // namespace
}  // namespace geomx
