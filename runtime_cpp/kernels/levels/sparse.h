// Finding large entries at one level (sparse.h); part of a level, see table.h. Entries are
// processed in chunks that fit the first-level cache: first computed, then compared, then written.

constexpr std::uint64_t kChunk = 512;

// Sets a bit for each of up to kChunk values whose magnitude reaches the threshold.
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
  // A byte per value, with the available vector instructions; a product combines eight.
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

// Writes the entries of one chunk that reach the threshold. May write a few more than there are:
// avoiding the branch makes this fast.
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
      const float step = kVelocity ? MovedBy(scale, momentum, term[i], velocity[i])
                                   : scale * term[i];
      if (kVelocity) velocity[i] = step;
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
  const auto least = static_cast<std::uint32_t>(bound);
  std::uint32_t beyond = 0;
  for (std::uint64_t i = 0; i < n; ++i) beyond |= At<std::uint32_t>(indices, i) >= least;
  return beyond == 0;
}
