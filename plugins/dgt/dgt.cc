// Differential gradient transmission (Zhou et al., FGCS 121, 2021). Divides the rows of a shard into
// blocks. The blocks that contribute most to the update are sent first, on the reliable channel; the
// others on best-effort channels, in order of contribution.
//
//   contribution  c <- alpha c + (1 - alpha) mean |x|      per block, starting from 0; anew after what is not finite
//   reliable      round(k n) of n blocks, at least one
//   others        spread evenly over channels 1..C by rank
//   k             max(k0 loss / loss_0, k_min), at most 1, if the loss is known and `adaptive` is on
//
// Mean |x| is known of float32 and float16; of integers with scales, scales stand for it, and of two-bit codes the
// share of those that are not zero. Blocks of other encodings are sent in an order that is drawn anew in every round,
// so that none is always sent best effort. Blocks with infinities or NaN are sent first. Blocks whose contribution is
// exactly zero are sent too, last; without them, the receiver could not distinguish zero from lost.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>

#include "core/natives.h"
#include "kernels/half.h"
#include "kernels/sums.h"

namespace geomx {
namespace {

// Returns a drawn contribution of a block, in [0, 1), for encodings of which it is not known, and for simulations
// without gradients: a hash of shard, round and block.
double DrawnContribution(const ShardInfo& shard, Round round, std::uint64_t block) {
  std::uint64_t x = (std::uint64_t{shard.key} << 40) ^ (std::uint64_t{shard.index} << 20) ^ block;
  x = (x + round) * 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return static_cast<double>((x ^ (x >> 31)) >> 11) * 0x1p-53;
}

// Returns the mean magnitude of a block of rows, by the same measure for all blocks of a shard; nothing if it is
// unknown.
std::optional<double> MeanMagnitude(const Parts& encoded, std::uint64_t first, std::uint64_t count) {
  double sum = 0;
  std::uint64_t terms = count;
  const Part* const values = encoded.Find("values");
  const Part* const codes = encoded.Find("codes");
  const Part* const scales = encoded.Find("integers") == nullptr ? nullptr : encoded.Find("scales");
  if (values != nullptr && values->bits == 32) {
    sum = kernels::SumOfMagnitudes(reinterpret_cast<const float*>(values->data) + first, count);
  } else if (values != nullptr && values->bits == 16) {
    float wide[kernels::kRun];
    for (std::uint64_t at = 0; at < count; at += kernels::kRun) {
      const std::uint64_t few = std::min(kernels::kRun, count - at);
      kernels::Widen(values->data + 2 * (first + at), wide, few);
      sum += kernels::SumOfMagnitudes(wide, few);
    }
  } else if (scales != nullptr && scales->bits == 32) {
    terms = scales->ItemsFor(count);
    sum = kernels::SumOfMagnitudes(reinterpret_cast<const float*>(scales->data) + first / scales->span, terms);
  } else if (codes != nullptr && codes->bits == 2) {  // 11 and 10; a block begins with a byte
    const std::span<const std::byte> bytes(codes->data + first / 4, (count + 3) / 4);
    for (const std::byte four : bytes) sum += std::popcount(std::to_integer<unsigned>(four) & 0xaau);
  } else {
    return std::nullopt;
  }
  return terms == 0 ? 0 : sum / static_cast<double>(terms);
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
    const std::vector<Slice> blocks = Blocks(context, slices);
    const std::vector<double> contributions = Contribute(context, blocks);

    std::vector<std::uint32_t> order(blocks.size());
    std::iota(order.begin(), order.end(), 0u);
    std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      return contributions[a] > contributions[b];
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

  void Exchange(Archive& archive) override { archive(averages_); }

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

  // Updates the averages, and returns what ranks the blocks of this round.
  std::vector<double> Contribute(const SliceContext& context, const std::vector<Slice>& blocks) {
    const Parts& encoded = context.encoded;
    const bool phantom = encoded.parts.empty() || encoded.parts.front().data == nullptr;
    averages_.resize(blocks.size(), 0.0);
    std::vector<double> ranks(blocks.size());
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      std::optional<double> magnitude;
      if (!phantom) magnitude = MeanMagnitude(encoded, blocks[i].first_row, blocks[i].rows);
      if (!magnitude) magnitude = DrawnContribution(context.shard, context.round, i);
      const double average = alpha_ * averages_[i] + (1 - alpha_) * *magnitude;
      averages_[i] = std::isfinite(average) ? average : 0;
      ranks[i] = std::isfinite(average) ? average : HUGE_VAL;
    }
    return ranks;
  }

  double k_, k_min_;
  bool adaptive_;
  double alpha_;
  std::uint64_t block_bytes_;
  std::uint32_t channels_;
  std::vector<double> averages_;  // contribution of each block; finite
};

const Registered<NativeSlicers> registered("dgt", MakeSlicerFactory<Dgt>);

}  // namespace
}  // namespace geomx
