// Converts the part "values" from float32 to IEEE binary16, rounding to nearest even. Values beyond the
// range of binary16 become infinities, as in any cast. Sums are computed in float32 after decoding.
#include "core/natives.h"
#include "kernels/half.h"

namespace geomx {
namespace {

class Fp16 final : public Codec {
 public:
  Fp16(const Options&, const ShardInfo&) {}

  void Layout(Parts& parts) const override {
    if (Part* values = parts.Find("values"); values != nullptr && values->bits == 32) {
      values->bits = 16;
    }
  }

  void Encode(Parts& parts) override {
    Part* values = parts.Find("values");
    if (values == nullptr || values->bits != 32) return;
    const auto* wide = reinterpret_cast<const float*>(values->data);
    std::byte* half = parts.Allocate(parts.rows * sizeof(std::uint16_t));
    kernels::Narrow(wide, reinterpret_cast<std::uint16_t*>(half), parts.rows);
    values->data = half;
    values->bits = 16;
  }

  bool OnDevices() const override { return true; }
  void EncodeOn(kernels::DeviceContext& device, Parts& parts) override {
    Part* values = parts.Find("values");
    if (values == nullptr || values->bits != 32) return;
    auto* half = parts.AllocateOn<std::uint16_t>(device, parts.rows);
    device.queue.Narrow(reinterpret_cast<const float*>(values->data), half, parts.rows);
    values->data = reinterpret_cast<const std::byte*>(half);
    values->bits = 16;
  }

  void Exchange(Archive&) override {}

  void Decode(Parts& parts) const override {
    Part* values = parts.Find("values");
    if (values == nullptr || values->bits != 16) return;
    std::byte* wide = parts.Allocate(parts.rows * sizeof(float));
    kernels::Widen(values->data, reinterpret_cast<float*>(wide), parts.rows);
    values->data = wide;
    values->bits = 32;
  }

  bool DecodeStraight(const Parts& parts, bool overwrite, float* out) const override {
    const Part* values = parts.Find("values");
    if (values == nullptr || values->bits != 16 || parts.Find("indices") != nullptr) return false;
    (overwrite ? kernels::Widen : kernels::WidenAdd)(values->data, out, parts.rows);
    return true;
  }

  bool DecodesOnDevices() const override { return true; }
  void DecodeOn(kernels::DeviceContext& device, const Parts& parts, float* out) const override {
    device.queue.Widen(parts.Find("values")->data, out, parts.rows);
  }

  bool Stateless() const override { return true; }
  bool FixedSize() const override { return true; }
  Stage stage() const override { return Stage::kCast; }
};

const Registered<NativeCodecs> registered("fp16", MakeCodecFactory<Fp16>);

}  // namespace
}  // namespace geomx
