// Sends values as integers of 8 or 4 bits with a scale per chunk of rows (kernels/integers.h), and adds
// the rounding error to the next value.
//
// Codes have one item per row, scales one per `chunk` rows, so slices are cut between chunks.
//
// The same codec encodes answers: sums of the parties' pushes. All parties must receive the same values,
// as their replicas of the weights would diverge otherwise. The error of an answer therefore belongs to
// the sum and not to a receiver (`shared`), and one encoding serves all.
#include <stdexcept>

#include "core/element_errors.h"
#include "core/natives.h"
#include "kernels/integers.h"

namespace geomx {
namespace {

class LowBit final : public Codec {
 public:
  LowBit(const Options& options, const ShardInfo&)
      : format_{.bits = static_cast<unsigned>(Require(options, "bits")),
                .chunk = static_cast<std::uint64_t>(Require(options, "chunk"))},
        shared_(Require(options, "shared") != 0) {
    if (format_.bits != 8 && format_.bits != 4) throw std::invalid_argument("bits must be 8 or 4");
    const bool power = (format_.chunk & (format_.chunk - 1)) == 0;
    if (!power || format_.chunk < 16 || format_.chunk > kernels::kLargestChunk) {
      throw std::invalid_argument("chunk must be a power of two, 16 to 4096");
    }
  }

  void Layout(Parts& parts) const override {
    if (!Codec::Concerns(parts)) return;
    Part* values = parts.Find("values");
    values->name = "integers";
    values->bits = format_.bits;
    parts.parts.push_back({.name = "scales", .bits = 32, .span = format_.chunk});
  }

  void Encode(Parts& parts) override {
    if (!Codec::Concerns(parts)) return;
    const auto* values = reinterpret_cast<const float*>(parts.Find("values")->data);
    float* errors = errors_.Gather(parts);
    Layout(parts);
    Part* codes = parts.Find("integers");
    Part* scales = parts.Find("scales");
    std::byte* integers = parts.Allocate(codes->BytesFor(parts.rows));
    std::byte* levels = parts.Allocate(scales->BytesFor(parts.rows));
    kernels::EncodeIntegers(format_, values, errors, integers, reinterpret_cast<float*>(levels),
                            parts.rows);
    codes->data = integers;
    scales->data = levels;
    errors_.Scatter();
  }

  void Decode(Parts& parts) const override {
    const Part* codes = parts.Find("integers");
    if (codes == nullptr) return;
    auto* values = reinterpret_cast<float*>(parts.Allocate(parts.rows * sizeof(float)));
    kernels::DecodeIntegers(format_, codes->data, parts.Find("scales")->data, values, parts.rows);
    std::erase_if(parts.parts, [](const Part& part) { return part.name == "scales"; });
    Part* decoded = parts.Find("integers");
    decoded->name = "values";
    decoded->bits = 32;
    decoded->data = reinterpret_cast<std::byte*>(values);
  }

  bool DecodeStraight(const Parts& parts, bool overwrite, float* out) const override {
    const Part* codes = parts.Find("integers");
    if (codes == nullptr || parts.Find("indices") != nullptr) return false;
    (overwrite ? kernels::DecodeIntegers : kernels::DecodeIntegersAdd)(
        format_, codes->data, parts.Find("scales")->data, out, parts.rows);
    return true;
  }

  double SquaredResidual() const override { return errors_.resident().SumOfSquares(); }
  void Exchange(Archive& archive) override { archive(errors_.resident()); }
  bool Stateless() const override { return shared_; }
  bool FixedSize() const override { return true; }
  Stage stage() const override { return Stage::kQuantise; }

 private:
  kernels::Integers format_;
  bool shared_;
  ElementErrors errors_{"lowbit"};
};

const Registered<NativeCodecs> registered("lowbit", MakeCodecFactory<LowBit>);

}  // namespace
}  // namespace geomx
