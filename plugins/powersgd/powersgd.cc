// Sends a shard as thin matrices. M is a node's matrix: the values of the shard (matrix.h) plus what
// earlier rounds have left out.
//
// "powersgd": what all parties receive is the sum of what they send.
//
//   odd rounds:   U = M V;   sum of U;   each party gets (sum of U) V';   M <- M - U V'
//   even rounds:  V = M' U;  sum of V;   each party gets U (sum of V)';   M <- M - U V'
//
// The factor that is not sent is an orthonormal basis of the previous round's sum, the same at all
// parties (warm start); where there was no such sum, it is drawn by the round's number. So one side of
// subspace iteration is done in each round, as in Zhang et al., ICDCS 2023; PowerSGD does both, with one
// exchange after the other. With a common basis, the sum of the factors is the factor of the sum: the
// codec is linear.
//
// "powersgd_own": U and V of a sender of its own, whose values are never added encoded.
//
//   U = basis of M V;   V = M' U;   sends both;   M <- M - U V'
//
// In the first `dense_rounds` everything is sent, and the last of these rounds gives the first basis; with
// option `flush`, the last round of all sends everything, too. It is a part of another name than dense
// values have, because a codec that followed would make it differ from what is added. Factors are float32,
// column by column. Shards for which they save nothing stay dense.
#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

#include "core/natives.h"
#include "core/residual_codec.h"
#include "matrix.h"

namespace geomx {
namespace {

using powersgd::Into;
using powersgd::Shape;
using powersgd::ShapeOf;
using Floats = std::vector<float>;

constexpr const char* kAll = "all";          // M
constexpr const char* kRows = "rows";        // U
constexpr const char* kColumns = "columns";  // V

Floats Read(const Part& part) {
  Floats values(part.items);
  std::memcpy(values.data(), part.data, values.size() * sizeof(float));
  return values;
}

class LowRank : public ResidualCodec {
 public:
  LowRank(const Options& options, const ShardInfo& shard)
      : ResidualCodec(options, shard),
        rank_(static_cast<std::uint64_t>(Require(options, "rank"))),
        dense_rounds_(static_cast<Round>(Require(options, "dense_rounds"))) {
    if (rank_ < 1) throw std::invalid_argument("rank must be 1 or more");
    known_ = {shard.elements, ShapeOf(shard.elements, rank_)};
  }

  void Decode(Parts& parts) const final {
    if (Part* all = parts.Find(kAll)) all->name = "values";
    if (!Encoded(parts)) return;
    auto* values = reinterpret_cast<float*>(parts.Allocate(parts.elements * sizeof(float)));
    DecodeStraight(parts, true, values);
    parts.rows = parts.elements;
    parts.parts.assign(1, {.name = "values", .data = reinterpret_cast<std::byte*>(values)});
  }

  // A factor is needed as a whole.
  bool SurvivesHoles() const final { return false; }

 protected:
  static bool Encoded(const Parts& parts) {
    return parts.Find(kRows) != nullptr || parts.Find(kColumns) != nullptr;
  }

  bool IsDenseRound(Round round) const { return round <= dense_rounds_; }

  // Replaces dense values by factors without data; where all is sent, renames them.
  void Become(Parts& parts, const Shape& shape, bool rows, bool columns) const {
    if (IsDenseRound(parts.round) || Flushes(parts)) {
      parts.parts[0].name = kAll;
      return;
    }
    parts.rows = 0;
    parts.parts.clear();
    if (rows) AddFactor(parts, kRows, shape.rows * shape.rank);
    if (columns) AddFactor(parts, kColumns, shape.columns * shape.rank);
  }
  // Gives a factor its data.
  static void Fill(Parts& parts, const char* name, const Floats& values) {
    std::byte* data = parts.Allocate(values.size() * sizeof(float));
    std::memcpy(data, values.data(), values.size() * sizeof(float));
    parts.Find(name)->data = data;
  }

  Shape ShapeFor(std::uint64_t elements) const {
    return elements == known_.first ? known_.second : ShapeOf(elements, rank_);
  }

 private:
  static void AddFactor(Parts& parts, const char* name, std::uint64_t items) {
    parts.parts.push_back({.name = name, .bits = 32, .whole = true, .items = items});
  }

  std::uint64_t rank_;
  Round dense_rounds_;
  std::pair<std::uint64_t, Shape> known_;  // of the shard; finding divisors takes microseconds
};

class SharedBasis final : public LowRank {
 public:
  using LowRank::LowRank;

  void Layout(Parts& parts) const override {
    if (!IsDense(parts)) return;
    const Shape shape = ShapeFor(parts.elements);
    if (shape.longer() * shape.rank >= parts.elements) return;
    Become(parts, shape, SendsRows(parts.round), !SendsRows(parts.round));
  }

  void Encode(Parts& parts) override {
    const float* added = DenseValues(parts);
    Layout(parts);
    if (parts.Find(kAll) != nullptr) return SendAll(parts, added);
    if (!Encoded(parts)) return;
    const Shape shape = ShapeFor(parts.elements);
    float* matrix = Accumulate(added, parts.elements);
    const Floats basis = BasisOf(shape, parts.round);
    const bool rows = SendsRows(parts.round);
    Floats factor((rows ? shape.rows : shape.columns) * shape.rank);
    (rows ? powersgd::TimesColumns : powersgd::TimesRows)(shape, matrix, parts.elements,
                                                          basis.data(), factor.data());
    Fill(parts, rows ? kRows : kColumns, factor);
    Multiply(shape, parts.round, factor, basis, parts.elements, Into::kSubtract, matrix);
  }

  bool DecodeStraight(const Parts& parts, bool overwrite, float* out) const override {
    if (!Encoded(parts)) return false;
    const Shape shape = ShapeFor(parts.elements);
    Multiply(shape, parts.round, Read(parts.parts[0]), BasisOf(shape, parts.round), parts.elements,
             overwrite ? Into::kStore : Into::kAdd, out);
    return true;
  }

  bool Linear() const override { return true; }
  void Settle(const Parts& sum) override {
    const Shape shape = ShapeFor(sum.elements);
    next_ = sum.round + 1;
    if (Encoded(sum)) {
      basis_ = Read(sum.parts[0]);
      Orthonormalise(basis_, shape, !SendsRows(next_), next_);
    } else if (const Part* all = sum.Find(kAll); all != nullptr && !IsDenseRound(next_)) {
      basis_ = Iterate(shape, reinterpret_cast<const float*>(all->data), sum.elements, next_);
    } else {
      next_ = 0;
    }
  }

  void Exchange(Archive& archive) override {
    LowRank::Exchange(archive);
    archive(basis_, next_);
  }

 private:
  static bool SendsRows(Round round) { return round % 2 != 0; }

  static void Orthonormalise(Floats& factor, const Shape& shape, bool rows, Round seed) {
    powersgd::Orthonormalise(factor, rows ? shape.rows : shape.columns, shape.rank, seed);
  }

  // The factor that all parties know in `round`.
  Floats BasisOf(const Shape& shape, Round round) const {
    const bool rows = !SendsRows(round);
    Floats drawn((rows ? shape.rows : shape.columns) * shape.rank, 0.0f);
    if (round == next_ && basis_.size() == drawn.size()) return basis_;
    Orthonormalise(drawn, shape, rows, round);
    return drawn;
  }

  // The basis for `round` of two steps of subspace iteration on a matrix that all parties have.
  Floats Iterate(const Shape& shape, const float* matrix, std::uint64_t elements, Round round) const {
    Floats v(shape.columns * shape.rank, 0.0f), u(shape.rows * shape.rank);
    Orthonormalise(v, shape, false, round);
    for (int step = 0; step < 2; ++step) {
      powersgd::TimesColumns(shape, matrix, elements, v.data(), u.data());
      Orthonormalise(u, shape, true, round);
      powersgd::TimesRows(shape, matrix, elements, u.data(), v.data());
      Orthonormalise(v, shape, false, round);
    }
    return SendsRows(round) ? v : u;
  }

  static void Multiply(const Shape& shape, Round round, const Floats& factor, const Floats& basis,
                       std::uint64_t elements, Into into, float* out) {
    const bool rows = SendsRows(round);
    powersgd::Product(shape, (rows ? factor : basis).data(), (rows ? basis : factor).data(),
                      elements, into, out);
  }

  Floats basis_;
  Round next_ = 0;  // the round that `basis_` is of; others have a drawn one
};

class OwnFactors final : public LowRank {
 public:
  using LowRank::LowRank;

  void Layout(Parts& parts) const override {
    if (!IsDense(parts)) return;
    const Shape shape = ShapeFor(parts.elements);
    if ((shape.rows + shape.columns) * shape.rank >= parts.elements) return;
    Become(parts, shape, true, true);
  }

  void Encode(Parts& parts) override {
    const float* added = DenseValues(parts);
    Layout(parts);
    if (parts.Find("values") != nullptr) return;
    if (Flushes(parts)) return SendAll(parts, added);
    const Shape shape = ShapeFor(parts.elements);
    const float* matrix = Encoded(parts) ? Accumulate(added, parts.elements) : added;
    if (v_.size() != shape.columns * shape.rank) {  // the first round
      v_.assign(shape.columns * shape.rank, 0.0f);
      powersgd::Orthonormalise(v_, shape.columns, shape.rank, 1);
    }
    Floats u(shape.rows * shape.rank);
    powersgd::TimesColumns(shape, matrix, parts.elements, v_.data(), u.data());
    powersgd::Orthonormalise(u, shape.rows, shape.rank, 1);
    powersgd::TimesRows(shape, matrix, parts.elements, u.data(), v_.data());
    if (Encoded(parts)) {
      Fill(parts, kRows, u);
      Fill(parts, kColumns, v_);
      powersgd::Product(shape, u.data(), v_.data(), parts.elements, Into::kSubtract,
                        residual(parts.elements));
    }
    powersgd::Orthonormalise(v_, shape.columns, shape.rank, 1);  // only its span matters, if it is finite
  }

  bool DecodeStraight(const Parts& parts, bool overwrite, float* out) const override {
    if (!Encoded(parts)) return false;
    powersgd::Product(ShapeFor(parts.elements), Read(*parts.Find(kRows)).data(),
                      Read(*parts.Find(kColumns)).data(), parts.elements,
                      overwrite ? Into::kStore : Into::kAdd, out);
    return true;
  }

  void Exchange(Archive& archive) override {
    LowRank::Exchange(archive);
    archive(v_);
  }

 private:
  Floats v_;  // an orthonormal basis, from which the next round starts
};

const Registered<NativeCodecs> shared("powersgd", MakeCodecFactory<SharedBasis>);
const Registered<NativeCodecs> own("powersgd_own", MakeCodecFactory<OwnFactors>);

}  // namespace
}  // namespace geomx
