// Half precision on the wire: the part "values" narrows from float32 to IEEE binary16, rounding to
// nearest even. Values beyond the range of binary16 become infinities, as in any cast; whatever is
// summed is summed in float32 after decoding.
#include <bit>
#include <cstdint>
#include <cstring>

#include "core/natives.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace geomx {
namespace {

std::uint16_t Narrow(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {  // NaN: quiet, with what fits of its payload, as hardware does
    return static_cast<std::uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  }
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u;  // rounds beyond 65504
  if (magnitude < 0x33000001u) return sign;             // rounds to zero
  const int exponent = static_cast<int>(magnitude >> 23) - 127;
  std::uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
  const int shift = exponent < -14 ? 13 + (-14 - exponent) : 13;  // more for subnormal results
  std::uint32_t half = mantissa >> shift;
  const std::uint32_t rest = mantissa & ((1u << shift) - 1);
  const std::uint32_t tie = 1u << (shift - 1);
  if (rest > tie || (rest == tie && (half & 1u))) ++half;
  // The implicit bit of a normal number adds one to the exponent field.
  if (exponent >= -14) half += static_cast<std::uint32_t>(exponent + 14) << 10;
  return static_cast<std::uint16_t>(sign | half);
}

float Widen(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000u) << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1fu;
  const std::uint32_t mantissa = half & 0x3ffu;
  if (exponent == 0) {
    const float value = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(value));
  }
  const std::uint32_t quiet = mantissa != 0 ? 0x400000u : 0;
  const std::uint32_t wide = exponent == 0x1f ? 0x7f800000u | quiet : (exponent + 112) << 23;
  return std::bit_cast<float>(sign | wide | mantissa << 13);
}

void NarrowPortable(const float* in, std::uint16_t* out, std::uint64_t n) {
  for (std::uint64_t i = 0; i < n; ++i) out[i] = Narrow(in[i]);
}

void WidenPortable(const std::byte* in, float* out, std::uint64_t n) {
  for (std::uint64_t i = 0; i < n; ++i) {
    std::uint16_t half;  // slices need not be aligned
    std::memcpy(&half, in + 2 * i, sizeof half);
    out[i] = Widen(half);
  }
}

#if defined(__x86_64__)
__attribute__((target("avx,f16c"))) void NarrowF16c(const float* in, std::uint16_t* out,
                                                    std::uint64_t n) {
  std::uint64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m128i half = _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), half);
  }
  NarrowPortable(in + i, out + i, n - i);
}

__attribute__((target("avx,f16c"))) void WidenF16c(const std::byte* in, float* out,
                                                   std::uint64_t n) {
  std::uint64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + 2 * i));
    _mm256_storeu_ps(out + i, _mm256_cvtph_ps(half));
  }
  WidenPortable(in + 2 * i, out + i, n - i);
}

bool HasF16c() {
  static const bool has = __builtin_cpu_supports("avx") && __builtin_cpu_supports("f16c");
  return has;
}
#endif

void NarrowAll(const float* in, std::uint16_t* out, std::uint64_t n) {
#if defined(__x86_64__)
  if (HasF16c()) return NarrowF16c(in, out, n);
#endif
  NarrowPortable(in, out, n);
}

void WidenAll(const std::byte* in, float* out, std::uint64_t n) {
#if defined(__x86_64__)
  if (HasF16c()) return WidenF16c(in, out, n);
#endif
  WidenPortable(in, out, n);
}

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
    NarrowAll(wide, reinterpret_cast<std::uint16_t*>(half), parts.rows);
    values->data = half;
    values->bits = 16;
  }

  void Decode(Parts& parts) const override {
    Part* values = parts.Find("values");
    if (values == nullptr || values->bits != 16) return;
    std::byte* wide = parts.Allocate(parts.rows * sizeof(float));
    WidenAll(values->data, reinterpret_cast<float*>(wide), parts.rows);
    values->data = wide;
    values->bits = 32;
  }

  bool Stateless() const override { return true; }
  bool FixedSize() const override { return true; }
  Stage stage() const override { return Stage::kCast; }
};

const Registered<NativeCodecs> registered("fp16", MakeCodecFactory<Fp16>);

}  // namespace
}  // namespace geomx
