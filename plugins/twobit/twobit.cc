// Encodes a value in two bits, +s, -s or 0, and adds the quantisation error to the next value.
//
//   r <- r + g;  if |r| >= t, send s with the sign of r and subtract it from r; else send 0
//
// With a fixed threshold, t = s, as in MXNet's 2-bit compression. Without one, t = s / 2, so that the
// nearest of -s, 0 and s is sent, and s = sum r^2 / sum |r|. For Laplace distributed values this is the
// best s, twice their mean magnitude; it is larger for heavier tails, and little more than the mean
// magnitude of rows that another codec has selected by magnitude.
//
// Codes are MXNet's: 11 is +s, 10 is -s, 00 is 0; the first row is in the two most significant bits.
#include <cstring>

#include "core/element_errors.h"
#include "core/natives.h"
#include "kernels/ternary.h"

namespace geomx {
namespace {

class TwoBit final : public Codec {
 public:
  TwoBit(const Options& options, const ShardInfo&)
      : fixed_(static_cast<float>(Require(options, "threshold"))) {}

  void Layout(Parts& parts) const override {
    if (!Codec::Concerns(parts)) return;
    Part* values = parts.Find("values");
    values->name = "codes";
    values->bits = 2;
    if (fixed_ > 0) return;
    parts.parts.push_back(
        {.name = "scale", .bits = 32, .whole = true, .in_every_slice = true, .items = 1});
  }

  void Encode(Parts& parts) override {
    if (!Codec::Concerns(parts)) return;
    const auto* gradient = reinterpret_cast<const float*>(parts.Find("values")->data);
    float* pending = residuals_.Gather(parts);
    Layout(parts);
    std::byte* codes = parts.Allocate((parts.rows + 3) / 4);
    if (Part* part = parts.Find("scale")) {
      const float level = kernels::QuantiseToLevel(gradient, pending, codes, parts.rows);
      std::byte* data = parts.Allocate(sizeof level);
      std::memcpy(data, &level, sizeof level);
      part->data = data;
    } else {
      kernels::Quantise(Fixed(), gradient, pending, codes, parts.rows);
    }
    parts.Find("codes")->data = codes;
    residuals_.Scatter();
  }

  bool OnDevices() const override { return true; }
  void EncodeOn(kernels::DeviceContext& device, Parts& parts) override {
    if (!Codec::Concerns(parts)) return;
    const auto* gradient = reinterpret_cast<const float*>(parts.Find("values")->data);
    float* residual = residuals_.resident().At(device, parts.elements);
    parts.owners.push_back(residuals_.resident().buffer());
    float* pending = residual;
    std::uint32_t* elements = nullptr;
    if (const Part* indices = parts.Find("indices")) {
      elements = parts.AllocateOn<std::uint32_t>(device, parts.rows);
      device.queue.UnpackBits(indices->data, parts.rows, indices->bits, elements);
      pending = parts.AllocateOn<float>(device, parts.rows);
      device.queue.Gather(residual, elements, parts.rows, pending);
    }
    Layout(parts);
    auto* codes = parts.AllocateOn<std::byte>(device, (parts.rows + 3) / 4);
    if (Part* part = parts.Find("scale")) {
      auto* level = parts.AllocateOn<float>(device, 1);
      device.queue.QuantiseToLevel(gradient, pending, level, codes, parts.rows);
      part->data = reinterpret_cast<const std::byte*>(level);
    } else {
      device.queue.Quantise(Fixed(), gradient, pending, codes, parts.rows);
    }
    parts.Find("codes")->data = codes;
    if (elements != nullptr) device.queue.Scatter(pending, elements, parts.rows, residual);
  }

  void Decode(Parts& parts) const override {
    Part* codes = parts.Find("codes");
    if (codes == nullptr) return;
    std::byte* wide = parts.Allocate(parts.rows * sizeof(float));
    kernels::Worth(ScaleOf(parts), codes->data, reinterpret_cast<float*>(wide), parts.rows);
    codes->name = "values";
    codes->bits = 32;
    codes->data = wide;
  }

  double SquaredResidual() const override { return residuals_.resident().SumOfSquares(); }
  void Exchange(Archive& archive) override { archive(residuals_.resident()); }

  bool FixedSize() const override { return true; }

  bool DecodeStraight(const Parts& parts, bool overwrite, float* out) const override {
    const Part* codes = parts.Find("codes");
    if (codes == nullptr || parts.Find("indices") != nullptr) return false;
    (overwrite ? kernels::Worth : kernels::WorthAdd)(ScaleOf(parts), codes->data, out, parts.rows);
    return true;
  }

  Stage stage() const override { return Stage::kQuantise; }

 private:
  kernels::Ternary Fixed() const { return {.scale = fixed_, .threshold = fixed_}; }

  float ScaleOf(const Parts& parts) const {
    float scale = fixed_;
    if (const Part* part = parts.Find("scale")) std::memcpy(&scale, part->data, sizeof scale);
    return scale;
  }

  float fixed_;  // threshold; 0: adapt it to the values
  ElementErrors residuals_{"twobit"};
};

const Registered<NativeCodecs> registered("twobit", MakeCodecFactory<TwoBit>);

}  // namespace
}  // namespace geomx
