// Half precision at one level (half.h); part of a level, see table.h. Without instructions for it,
// and for the last few values with them, it is arithmetic on whole numbers. Comparisons are signed,
// as every instruction set has them: magnitudes have 31 bits.

static inline std::uint16_t NarrowOne(float value) {
  std::uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof bits);
  const std::uint32_t sign = bits & 0x80000000u;
  const std::uint32_t magnitude = bits ^ sign;
  const auto size = static_cast<std::int32_t>(magnitude);
  // Normal results: rounding by an addition that carries into the exponent, whose bias changes.
  const std::uint32_t normal = (magnitude + 0xc8000fffu + ((magnitude >> 13) & 1u)) >> 13;
  // Subnormal ones: the FPU rounds where 0.5 has as many bits as the half.
  float small;
  __builtin_memcpy(&small, &magnitude, sizeof small);
  small += 0.5f;
  std::uint32_t subnormal;
  __builtin_memcpy(&subnormal, &small, sizeof subnormal);
  subnormal -= 0x3f000000u;
  const std::uint32_t nan = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  std::uint32_t half = size < 0x38800000 ? subnormal : normal;
  half = size >= 0x47800000 ? 0x7c00u : half;
  half = size > 0x7f800000 ? nan : half;
  return static_cast<std::uint16_t>(half | sign >> 16);
}

static inline float WidenOne(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000u) << 16;
  const std::uint32_t magnitude = (half & 0x7fffu) << 13;
  const auto size = static_cast<std::int32_t>(magnitude);
  const std::uint32_t normal = magnitude + 0x38000000u;
  const std::uint32_t quiet = size > 0x0f800000 ? 0x00400000u : 0u;
  const std::uint32_t special = (magnitude + 0x70000000u) | quiet;
  // A subnormal half is a normal float: 2^-14 with it in the last bits, less 2^-14.
  const std::uint32_t above = magnitude + 0x38800000u;
  float small;
  __builtin_memcpy(&small, &above, sizeof small);
  small -= 0x1p-14f;
  std::uint32_t subnormal;
  __builtin_memcpy(&subnormal, &small, sizeof subnormal);
  std::uint32_t bits = size < 0x00800000 ? subnormal : normal;
  bits = size >= 0x0f800000 ? special : bits;
  bits |= sign;
  float value;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}

static void Narrow(const float* __restrict in, std::uint16_t* __restrict out, std::uint64_t n) {
  std::uint64_t i = 0;
#if GEOMX_LEVEL == 5
  for (; i + 16 <= n; i += 16) {
    const __m256i half = _mm512_cvtps_ph(_mm512_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), half);
  }
#elif GEOMX_LEVEL == 2
  for (; i + 8 <= n; i += 8) {
    const __m128i half = _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), half);
  }
#endif
  for (; i < n; ++i) out[i] = NarrowOne(in[i]);
}

template <bool kAdd>
static void WidenInto(const std::byte* __restrict in, float* __restrict out, std::uint64_t n) {
  std::uint64_t i = 0;
#if GEOMX_LEVEL == 5
  for (; i + 16 <= n; i += 16) {
    __m512 wide = _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + 2 * i)));
    if (kAdd) wide = _mm512_add_ps(_mm512_loadu_ps(out + i), wide);
    _mm512_storeu_ps(out + i, wide);
  }
#elif GEOMX_LEVEL == 2
  for (; i + 8 <= n; i += 8) {
    __m256 wide = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in + 2 * i)));
    if (kAdd) wide = _mm256_add_ps(_mm256_loadu_ps(out + i), wide);
    _mm256_storeu_ps(out + i, wide);
  }
#endif
  for (; i < n; ++i) {
    const float wide = WidenOne(At<std::uint16_t>(in, i));
    out[i] = kAdd ? out[i] + wide : wide;
  }
}
