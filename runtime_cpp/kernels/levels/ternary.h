// Codes of two bits at one level (ternary.h); part of a level, see table.h.

template <bool kAdded>
static void QuantiseIn(const Ternary& ternary, const float* __restrict added,
                       float* __restrict residual, std::byte* __restrict codes, std::uint64_t n) {
  const float threshold = ternary.threshold;
  const std::uint32_t scale = BitsOf(ternary.scale);
  std::uint8_t bytes[kChunk];  // a code each
  for (std::uint64_t first = 0; first < n; first += kChunk) {
    const std::uint64_t count = n - first < kChunk ? n - first : kChunk;
    float* __restrict here = residual + first;
    for (std::uint64_t i = 0; i < count; ++i) {
      float value = kAdded ? here[i] + added[first + i] : here[i];
      bytes[i] = static_cast<std::uint8_t>(QuantiseOne(scale, threshold, value));
      here[i] = value;
    }
    for (std::uint64_t i = count; i % 4 != 0; ++i) bytes[i] = 0;
    std::byte* __restrict out = codes + first / 4;
    for (std::uint64_t i = 0; i < (count + 3) / 4; ++i) {
      std::uint32_t four;
      __builtin_memcpy(&four, bytes + 4 * i, sizeof four);
      // The product's top byte: the first code moves up by 30 bits, the others by 20, 10 and 0.
      out[i] = static_cast<std::byte>(four * 0x40100401u >> 24);
    }
  }
}

static void QuantiseAll(const Ternary& ternary, const float* added, float* residual,
                        std::byte* codes, std::uint64_t n) {
  if (added != nullptr) return QuantiseIn<true>(ternary, added, residual, codes, n);
  QuantiseIn<false>(ternary, nullptr, residual, codes, n);
}

template <bool kAdd>
static void WorthInto(float scale, const std::byte* __restrict codes, float* __restrict out,
                      std::uint64_t n) {
  const float worth[4] = {0, 0, -scale, scale};
  std::uint64_t i = 0;
#if GEOMX_LEVEL == 5
  const __m512i shifts = _mm512_setr_epi32(6, 4, 2, 0, 14, 12, 10, 8, 22, 20, 18, 16, 30, 28, 26, 24);
  const __m512 table = _mm512_broadcast_f32x4(_mm_loadu_ps(worth));
  for (; i + 16 <= n; i += 16) {
    std::int32_t sixteen;
    __builtin_memcpy(&sixteen, codes + i / 4, sizeof sixteen);
    // Of each index the two lowest bits count within a table of four that is there four times.
    const __m512i code = _mm512_srlv_epi32(_mm512_set1_epi32(sixteen), shifts);
    __m512 value = _mm512_permutevar_ps(table, code);
    if (kAdd) value = _mm512_add_ps(_mm512_loadu_ps(out + i), value);
    _mm512_storeu_ps(out + i, value);
  }
#elif GEOMX_LEVEL == 2
  const __m256i shifts = _mm256_setr_epi32(6, 4, 2, 0, 14, 12, 10, 8);
  const __m256 table = _mm256_broadcast_ps(reinterpret_cast<const __m128*>(worth));
  for (; i + 8 <= n; i += 8) {
    std::int16_t eight;
    __builtin_memcpy(&eight, codes + i / 4, sizeof eight);
    const __m256i code = _mm256_srlv_epi32(_mm256_set1_epi32(eight), shifts);
    __m256 value = _mm256_permutevar_ps(table, code);
    if (kAdd) value = _mm256_add_ps(_mm256_loadu_ps(out + i), value);
    _mm256_storeu_ps(out + i, value);
  }
#else
  if (n >= 4096) {  // worth a table of all bytes
    float values[256][4];
    for (unsigned byte = 0; byte < 256; ++byte) {
      for (unsigned k = 0; k < 4; ++k) values[byte][k] = worth[byte >> (6 - 2 * k) & 3u];
    }
    for (; i + 4 <= n; i += 4) {
      const float* four = values[static_cast<unsigned>(codes[i / 4])];
      for (unsigned k = 0; k < 4; ++k) out[i + k] = kAdd ? out[i + k] + four[k] : four[k];
    }
  }
#endif
  for (; i < n; ++i) {
    const float value = worth[static_cast<unsigned>(codes[i / 4]) >> (6 - 2 * (i % 4)) & 3u];
    out[i] = kAdd ? out[i] + value : value;
  }
}
