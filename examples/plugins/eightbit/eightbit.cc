// One byte per value and one scale per shard: the largest magnitude becomes 127, the rest in proportion.
// What rounding loses is kept and added to the next value (error feedback), so nothing is lost for good.
#include <geomx/codec.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <vector>

namespace {

class EightBit {
 public:
  static constexpr std::uint32_t kFlags = GEOMX_SURVIVES_HOLES | GEOMX_FIXED_SIZE;

  EightBit(const geomx::plugin::Options& options, std::uint64_t elements)
      : levels_(static_cast<float>(options.at("levels"))), residual_(elements) {
    if (!(levels_ >= 1 && levels_ <= 127)) throw std::invalid_argument("levels must be 1 to 127");
  }

  void Layout(std::uint64_t, geomx_layout* layout) const {
    geomx::plugin::AddPart(layout, "codes", 8);
    geomx::plugin::AddPart(layout, "scale", 32, GEOMX_WHOLE | GEOMX_IN_EVERY_SLICE, 1);
  }

  void Encode(std::uint64_t, const float* values, std::uint64_t count, void* const* parts) {
    // An earlier codec may have chosen rows; they are others in every round, so nothing is kept.
    const bool all = count == residual_.size();
    std::vector<float> pending(values, values + count);
    float largest = 0;
    bool finite = true;
    for (std::uint64_t i = 0; i < count; ++i) {
      if (all) pending[i] += residual_[i];
      largest = std::max(largest, std::abs(pending[i]));
      finite = finite && std::isfinite(pending[i]);
    }
    // An infinity or NaN makes all values NaN at the receiver, and is not kept.
    const float step = largest / levels_;
    const float scale = !finite ? std::nanf("") : step > 0 ? step : 1;
    auto* codes = static_cast<std::int8_t*>(parts[0]);
    for (std::uint64_t i = 0; i < count; ++i) {
      codes[i] = static_cast<std::int8_t>(finite ? std::nearbyint(pending[i] / scale) : 0);
      if (all) residual_[i] = finite ? pending[i] - static_cast<float>(codes[i]) * scale : 0;
    }
    std::memcpy(parts[1], &scale, sizeof scale);
  }

  void Decode(std::uint64_t, std::uint64_t, const void* const* parts, float* values,
              std::uint64_t count) const {
    const auto* codes = static_cast<const std::int8_t*>(parts[0]);
    float scale = 0;
    std::memcpy(&scale, parts[1], sizeof scale);
    for (std::uint64_t i = 0; i < count; ++i) values[i] = static_cast<float>(codes[i]) * scale;
  }

 private:
  float levels_;
  std::vector<float> residual_;
};

}  // namespace

GEOMX_CODEC(EightBit)
