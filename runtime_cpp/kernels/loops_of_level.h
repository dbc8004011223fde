// The loops of one level, included by loops.cc once per level inside that level's namespace: plain
// loops that the compiler turns into the level's vector instructions, and intrinsics where it does
// not. GEOMX_LEVEL is 0 (portable), 2 (AVX2) or 5 (AVX-512). Nothing may be included from here.

// float32 and binary16 at any address.
using FloatAt = float __attribute__((aligned(1), may_alias));
using IndexAt = std::uint32_t __attribute__((aligned(1), may_alias));
using HalfAt = std::uint16_t __attribute__((aligned(1), may_alias));

// The 16 lanes of a sum over elements, in as many registers as the level needs.
constexpr int kWidth = GEOMX_LEVEL == 5 ? 16 : GEOMX_LEVEL == 2 ? 8 : 4;
constexpr int kRegisters = 16 / kWidth;
using Lanes = float __attribute__((vector_size(4 * kWidth)));
using LaneBits = std::uint32_t __attribute__((vector_size(4 * kWidth)));

static inline float Within(float bound, float value) {
  const float above = value < -bound ? -bound : value;
  return bound < above ? bound : above;
}

// ---- half precision ----

// Comparisons are of signed numbers, which all have instructions for: magnitudes have 31 bits.

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
static void WidenInto(const std::byte* in, float* __restrict out, std::uint64_t n) {
  const auto* __restrict half = reinterpret_cast<const HalfAt*>(in);
  std::uint64_t i = 0;
#if GEOMX_LEVEL == 5
  for (; i + 16 <= n; i += 16) {
    __m512 wide = _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(half + i)));
    if (kAdd) wide = _mm512_add_ps(_mm512_loadu_ps(out + i), wide);
    _mm512_storeu_ps(out + i, wide);
  }
#elif GEOMX_LEVEL == 2
  for (; i + 8 <= n; i += 8) {
    __m256 wide = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(half + i)));
    if (kAdd) wide = _mm256_add_ps(_mm256_loadu_ps(out + i), wide);
    _mm256_storeu_ps(out + i, wide);
  }
#endif
  for (; i < n; ++i) {
    const float wide = WidenOne(half[i]);
    out[i] = kAdd ? out[i] + wide : wide;
  }
}

// ---- sums ----

template <int kTerms>
static void AddTerms(float* __restrict sum, const float* const* terms, std::uint64_t n) {
  const float* __restrict a = terms[0];
  const float* __restrict b = terms[kTerms > 1 ? 1 : 0];
  const float* __restrict c = terms[kTerms > 2 ? 2 : 0];
  const float* __restrict d = terms[kTerms > 3 ? 3 : 0];
  for (std::uint64_t i = 0; i < n; ++i) {
    float total = sum[i] + a[i];
    if (kTerms > 1) total += b[i];
    if (kTerms > 2) total += c[i];
    if (kTerms > 3) total += d[i];
    sum[i] = total;
  }
}

static void Add(float* sum, const float* const* terms, std::size_t count, std::uint64_t n) {
  switch (count) {
    case 1: return AddTerms<1>(sum, terms, n);
    case 2: return AddTerms<2>(sum, terms, n);
    case 3: return AddTerms<3>(sum, terms, n);
    default: return AddTerms<4>(sum, terms, n);
  }
}

static void AddBytes(const std::byte* in, float* __restrict out, std::uint64_t n) {
  const auto* __restrict values = reinterpret_cast<const FloatAt*>(in);
  for (std::uint64_t i = 0; i < n; ++i) out[i] += values[i];
}

// The lanes of a run become one number: lane 0 first.
static inline double SumOf(const Lanes* registers) {
  float lanes[16];
  __builtin_memcpy(lanes, registers, sizeof lanes);
  double sum = 0;
  for (int lane = 0; lane < 16; ++lane) sum += static_cast<double>(lanes[lane]);
  return sum;
}

static double Squares(const float* values, std::uint64_t n) {
  double lanes[16] = {};
  std::uint64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    for (int lane = 0; lane < 16; ++lane) {
      const double value = static_cast<double>(values[i + lane]);
      lanes[lane] += value * value;
    }
  }
  for (; i < n; ++i) lanes[0] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  double sum = 0;
  for (int lane = 0; lane < 16; ++lane) sum += lanes[lane];
  return sum;
}

static double Magnitudes(const float* values, std::uint64_t n) {
  Lanes sums[kRegisters] = {};
  std::uint64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    for (int r = 0; r < kRegisters; ++r) {
      LaneBits bits;
      __builtin_memcpy(&bits, values + i + r * kWidth, sizeof bits);
      bits &= 0x7fffffffu;
      sums[r] += reinterpret_cast<Lanes>(bits);
    }
  }
  for (; i < n; ++i) sums[0][0] += __builtin_fabsf(values[i]);
  return SumOf(sums);
}

template <bool kBoth>
static Norms NormsIn(const float* a, const float* b, std::uint64_t n) {
  Lanes sums[kRegisters] = {}, squares[kRegisters] = {};
  std::uint64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    for (int r = 0; r < kRegisters; ++r) {
      Lanes value;
      __builtin_memcpy(&value, a + i + r * kWidth, sizeof value);
      if (kBoth) {
        Lanes more;
        __builtin_memcpy(&more, b + i + r * kWidth, sizeof more);
        value += more;
      }
      sums[r] += reinterpret_cast<Lanes>(reinterpret_cast<LaneBits>(value) & 0x7fffffffu);
      squares[r] += value * value;
    }
  }
  for (; i < n; ++i) {
    const float value = kBoth ? a[i] + b[i] : a[i];
    sums[0][0] += __builtin_fabsf(value);
    squares[0][0] += value * value;
  }
  Norms norms;
  norms.magnitudes = SumOf(sums);
  norms.squares = SumOf(squares);
  return norms;
}

static Norms BothNorms(const float* a, const float* b, std::uint64_t n) {
  return b != nullptr ? NormsIn<true>(a, b, n) : NormsIn<false>(a, nullptr, n);
}

// ---- what is large ----

// Entries are looked at by chunks that stay in the nearest cache.
constexpr std::uint64_t kChunk = 512;

// A bit for each of up to kChunk values: whether its magnitude reaches the threshold.
static inline void MarkLarge(const float* values, std::uint64_t n, std::uint32_t threshold,
                             std::uint64_t* marks) {
  std::uint8_t bytes[kChunk / 8];
  std::uint64_t i = 0;
#if GEOMX_LEVEL == 5
  const __m512i no_sign = _mm512_set1_epi32(0x7fffffff);
  const __m512i least = _mm512_set1_epi32(static_cast<int>(threshold));
  for (; i + 16 <= n; i += 16) {
    const __m512i bits = _mm512_and_si512(_mm512_loadu_si512(values + i), no_sign);
    const std::uint16_t large = _mm512_cmpge_epi32_mask(bits, least);
    __builtin_memcpy(bytes + i / 8, &large, sizeof large);
  }
#elif GEOMX_LEVEL == 2
  const __m256i no_sign = _mm256_set1_epi32(0x7fffffff);
  const __m256i below = _mm256_set1_epi32(static_cast<int>(threshold - 1));
  for (; i + 8 <= n; i += 8) {
    const __m256i bits = _mm256_and_si256(
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(values + i)), no_sign);
    const __m256 large = _mm256_castsi256_ps(_mm256_cmpgt_epi32(bits, below));
    bytes[i / 8] = static_cast<std::uint8_t>(_mm256_movemask_ps(large));
  }
#else
  // A byte for each, by whatever vector instructions there are; a product brings eight together.
  std::uint8_t large[kChunk];
  const auto least = static_cast<std::int32_t>(threshold);
  for (std::uint64_t k = 0; k < n; ++k) {
    std::int32_t bits;
    __builtin_memcpy(&bits, values + k, sizeof bits);
    large[k] = (bits & 0x7fffffff) >= least;
  }
  for (; i + 8 <= n; i += 8) {
    std::uint64_t eight;
    __builtin_memcpy(&eight, large + i, sizeof eight);
    bytes[i / 8] = static_cast<std::uint8_t>(eight * 0x0102040810204080u >> 56);
  }
#endif
  if (i < n || i % 64 != 0) {
    for (std::uint64_t byte = i / 8; byte < (n + 63) / 64 * 8; ++byte) bytes[byte] = 0;
    for (; i < n; ++i) {
      const unsigned reaches = Magnitude(values[i]) >= threshold;
      bytes[i / 8] = static_cast<std::uint8_t>(bytes[i / 8] | reaches << i % 8);
    }
  }
  __builtin_memcpy(marks, bytes, (n + 63) / 64 * 8);
}

// The entries of one chunk that reach the threshold. A few are written before it is known whether
// there are so many: that no branch depends on it is what makes this fast.
static inline std::uint64_t FindInChunk(const float* values, std::uint64_t n,
                                        std::uint32_t threshold, std::uint32_t first,
                                        std::uint32_t* __restrict indices,
                                        float* __restrict found) {
  constexpr int kAtOnce = 4;
  std::uint64_t marks[kChunk / 64];
  MarkLarge(values, n, threshold, marks);
  std::uint64_t hits = 0;
  for (std::uint64_t word = 0; word < (n + 63) / 64; ++word) {
    std::uint64_t left = marks[word];
    const auto start = static_cast<std::uint32_t>(word * 64);
    const auto count = static_cast<std::uint64_t>(__builtin_popcountll(left));
    std::uint32_t* out = indices + hits;
    for (int k = 0; k < kAtOnce; ++k) {
      out[k] = start + static_cast<std::uint32_t>(left == 0 ? 64 : __builtin_ctzll(left));
      left &= left - 1;
    }
    for (out += kAtOnce; left != 0; left &= left - 1) {
      *out++ = start + static_cast<std::uint32_t>(__builtin_ctzll(left));
    }
    hits += count;
  }
  for (std::uint64_t hit = 0; hit < hits; ++hit) {
    found[hit] = values[indices[hit]];
    indices[hit] += first;
  }
  return hits;
}

static std::uint64_t FindLarge(const float* values, std::uint64_t n, std::uint32_t threshold,
                               std::uint32_t first, std::uint32_t* indices, float* found) {
  std::uint64_t hits = 0;
  for (std::uint64_t at = 0; at < n; at += kChunk) {
    hits += FindInChunk(values + at, n - at < kChunk ? n - at : kChunk, threshold,
                        first + static_cast<std::uint32_t>(at), indices + hits, found + hits);
  }
  return hits;
}

template <bool kVelocity>
static std::uint64_t AccumulateIn(const Accumulation& accumulation, const float* __restrict term,
                                  float* __restrict velocity, float* __restrict sum,
                                  std::uint64_t n, std::uint32_t threshold, std::uint32_t first,
                                  std::uint32_t* __restrict indices, float* __restrict found) {
  const float scale = accumulation.scale, momentum = accumulation.momentum;
  std::uint64_t hits = 0;
  for (std::uint64_t at = 0; at < n; at += kChunk) {
    const std::uint64_t count = n - at < kChunk ? n - at : kChunk;
    for (std::uint64_t i = at; i < at + count; ++i) {
      float step = scale * term[i];
      if (kVelocity) {
        step += momentum * velocity[i];
        step = __builtin_fabsf(step) < 0x1p-126f ? 0.0f : step;
        velocity[i] = step;
      }
      sum[i] += step;
    }
    hits += FindInChunk(sum + at, count, threshold, first + static_cast<std::uint32_t>(at),
                        indices + hits, found + hits);
  }
  return hits;
}

static std::uint64_t AccumulateLarge(const Accumulation& accumulation, const float* term,
                                     float* velocity, float* sum, std::uint64_t n,
                                     std::uint32_t threshold, std::uint32_t first,
                                     std::uint32_t* indices, float* found) {
  return velocity != nullptr ? AccumulateIn<true>(accumulation, term, velocity, sum, n, threshold,
                                                  first, indices, found)
                             : AccumulateIn<false>(accumulation, term, nullptr, sum, n, threshold,
                                                   first, indices, found);
}

static bool AllBelow(const std::byte* indices, std::uint64_t n, std::uint64_t bound) {
  if (bound > 0xffffffffu) return true;
  const auto* index = reinterpret_cast<const IndexAt*>(indices);
  const auto least = static_cast<std::uint32_t>(bound);
  std::uint32_t beyond = 0;
  for (std::uint64_t i = 0; i < n; ++i) beyond |= index[i] >= least;
  return beyond == 0;
}

// ---- three levels ----

template <bool kAdded>
static void QuantiseIn(const Ternary& ternary, const float* __restrict added,
                       float* __restrict residual, std::byte* __restrict codes, std::uint64_t n) {
  const float threshold = ternary.threshold;
  std::uint32_t scale;
  __builtin_memcpy(&scale, &ternary.scale, sizeof scale);
  std::uint8_t bytes[kChunk];  // a code each
  for (std::uint64_t first = 0; first < n; first += kChunk) {
    const std::uint64_t count = n - first < kChunk ? n - first : kChunk;
    float* __restrict here = residual + first;
    for (std::uint64_t i = 0; i < count; ++i) {
      const float value = kAdded ? here[i] + added[first + i] : here[i];
      std::uint32_t bits;
      __builtin_memcpy(&bits, &value, sizeof bits);
      const std::uint32_t says = __builtin_fabsf(value) < threshold ? 0u : ~0u;
      const std::uint32_t sign = bits & 0x80000000u;
      const std::uint32_t sent_bits = (scale | sign) & says;
      float sent;
      __builtin_memcpy(&sent, &sent_bits, sizeof sent);
      here[i] = value - sent;
      bytes[i] = static_cast<std::uint8_t>((3u - (sign >> 31)) & says);
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

// ---- optimizers ----

static void SgdStep(const Descent& step, float* __restrict w, const float* __restrict gradient,
                    std::uint64_t n) {
  const Descent s = step;
  const float decay = s.rate * s.wd;
  for (std::uint64_t i = 0; i < n; ++i) {
    const float g = Within(s.clip, s.rescale * gradient[i]);
    w[i] -= decay * w[i] + s.rate * g;
  }
}

static void MomentumStep(const Descent& step, float momentum, float* __restrict w,
                         const float* __restrict gradient, float* __restrict velocity,
                         std::uint64_t n) {
  const Descent s = step;
  const float decay = s.rate * s.wd;
  for (std::uint64_t i = 0; i < n; ++i) {
    const float g = Within(s.clip, s.rescale * gradient[i]);
    velocity[i] = momentum * velocity[i] - decay * w[i] - s.rate * g;
    w[i] += velocity[i];
  }
}

// MXNet's operator writes the weights first, so the decay in the velocity is that of the new ones.
static void NesterovStep(const Descent& step, float momentum, float* __restrict w,
                         const float* __restrict gradient, float* __restrict velocity,
                         std::uint64_t n) {
  const Descent s = step;
  for (std::uint64_t i = 0; i < n; ++i) {
    const float g = Within(s.clip, s.rescale * gradient[i]);
    const float kept = momentum * velocity[i];
    w[i] = w[i] - kept + (momentum + 1.0f) * (kept - s.rate * (g + s.wd * w[i]));
    velocity[i] = kept - s.rate * (g + s.wd * w[i]);
  }
}

static void AdamStep(const Descent& step, const Moments& moments, float* __restrict w,
                     const float* __restrict gradient, float* __restrict mean,
                     float* __restrict square, std::uint64_t n) {
  const Descent s = step;
  const Moments m = moments;
  for (std::uint64_t i = 0; i < n; ++i) {
    const float g = Within(s.clip, s.rescale * gradient[i] + s.wd * w[i]);
    mean[i] = m.beta1 * mean[i] + (1.0f - m.beta1) * g;
    square[i] = m.beta2 * square[i] + (1.0f - m.beta2) * g * g;
    w[i] -= s.rate * mean[i] / (__builtin_sqrtf(square[i]) + m.epsilon);
  }
}

static void AdamWStep(const Descent& step, const Moments& moments, float correction,
                      float* __restrict w, const float* __restrict gradient,
                      float* __restrict mean, float* __restrict square, std::uint64_t n) {
  const Descent s = step;
  const Moments m = moments;
  for (std::uint64_t i = 0; i < n; ++i) {
    const float g = Within(s.clip, s.rescale * gradient[i]);
    mean[i] = m.beta1 * mean[i] + (1.0f - m.beta1) * g;
    square[i] = m.beta2 * square[i] + (1.0f - m.beta2) * g * g;
    w[i] -= s.rate *
            (correction * mean[i] / (__builtin_sqrtf(square[i]) + m.epsilon) + s.wd * w[i]);
  }
}

static void RmsPropStep(const Descent& step, const RmsProp& rms, float* __restrict w,
                        const float* __restrict gradient, float* __restrict square,
                        std::uint64_t n) {
  const Descent s = step;
  const RmsProp r = rms;
  for (std::uint64_t i = 0; i < n; ++i) {
    const float g = Within(s.clip, s.rescale * gradient[i] + s.wd * w[i]);
    square[i] = r.gamma * square[i] + (1.0f - r.gamma) * (g * g);
    w[i] = Within(r.largest, w[i] - s.rate * (g / __builtin_sqrtf(square[i] + r.epsilon)));
  }
}

static void CenteredStep(const Descent& step, const RmsProp& rms, float* __restrict w,
                         const float* __restrict gradient, float* __restrict square,
                         float* __restrict mean, float* __restrict velocity, std::uint64_t n) {
  const Descent s = step;
  const RmsProp r = rms;
  for (std::uint64_t i = 0; i < n; ++i) {
    const float g = Within(s.clip, s.rescale * gradient[i] + s.wd * w[i]);
    square[i] = r.gamma * square[i] + (1.0f - r.gamma) * g * g;
    mean[i] = r.gamma * mean[i] + (1.0f - r.gamma) * g;
    velocity[i] = r.momentum * velocity[i] -
                  s.rate * g / __builtin_sqrtf(square[i] - mean[i] * mean[i] + r.epsilon);
    w[i] = Within(r.largest, w[i] + velocity[i]);
  }
}

static void AdaGradStep(const Descent& step, float epsilon, float* __restrict w,
                        const float* __restrict gradient, float* __restrict history,
                        std::uint64_t n) {
  const Descent s = step;
  for (std::uint64_t i = 0; i < n; ++i) {
    const float g = Within(s.clip, s.rescale * gradient[i]);
    history[i] += g * g;
    w[i] -= s.rate * (g / __builtin_sqrtf(history[i] + epsilon) + s.wd * w[i]);
  }
}

template <bool kAdaptive, bool kMomentum>
static void CompensatedStep(const Descent& step, const Compensation& compensation,
                            float* __restrict w, const float* __restrict gradient,
                            float* __restrict backup, float* __restrict velocity,
                            float* __restrict mean_square, std::uint64_t n) {
  const Descent s = step;
  const Compensation c = compensation;
  for (std::uint64_t i = 0; i < n; ++i) {
    const float g = Within(s.clip, s.rescale * gradient[i]);
    float strength = c.lamda;
    if (kAdaptive) {
      mean_square[i] = c.decay * mean_square[i] + (1.0f - c.decay) * g * g;
      strength = c.lamda / __builtin_sqrtf(mean_square[i] + c.epsilon);
    }
    const float move = s.rate * (g + s.wd * w[i] + strength * g * g * (w[i] - backup[i]));
    if (kMomentum) {
      velocity[i] = c.momentum * velocity[i] - move;
      w[i] += velocity[i];
    } else {
      w[i] -= move;
    }
    backup[i] = w[i];
  }
}

static void DcAsgdStep(const Descent& step, const Compensation& compensation, float* w,
                       const float* gradient, float* backup, float* velocity, float* mean_square,
                       std::uint64_t n) {
  const auto move = mean_square != nullptr
                        ? velocity != nullptr ? CompensatedStep<true, true>
                                              : CompensatedStep<true, false>
                    : velocity != nullptr ? CompensatedStep<false, true>
                                          : CompensatedStep<false, false>;
  move(step, compensation, w, gradient, backup, velocity, mean_square, n);
}

static constexpr Loops kLoops = {
    .narrow = Narrow,
    .widen = WidenInto<false>,
    .widen_add = WidenInto<true>,
    .add = Add,
    .add_bytes = AddBytes,
    .squares = Squares,
    .magnitudes = Magnitudes,
    .norms = BothNorms,
    .accumulate = AccumulateLarge,
    .find = FindLarge,
    .all_below = AllBelow,
    .quantise = QuantiseAll,
    .worth = WorthInto<false>,
    .worth_add = WorthInto<true>,
    .sgd = SgdStep,
    .momentum = MomentumStep,
    .nesterov = NesterovStep,
    .adam = AdamStep,
    .adamw = AdamWStep,
    .rmsprop = RmsPropStep,
    .rmsprop_centered = CenteredStep,
    .adagrad = AdaGradStep,
    .dcasgd = DcAsgdStep,
};
