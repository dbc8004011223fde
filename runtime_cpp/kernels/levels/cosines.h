// Cosine transforms of matrices (cosines.h); part of a level, see table.h.
//
// One-dimensional transforms of 16 columns at a time: an operation on one value is one on a vector of
// 16, and four kilobytes of them stay in the first cache.
constexpr unsigned kStrip = 16;
using Strip = float __attribute__((vector_size(4 * kStrip)));

// values <- their transform without scale, sum of x(i) cos(pi (i + 1/2) k / kSize). `spare` is as long.
template <unsigned kSize>
static inline void Spread(const float* halves, Strip* __restrict values, Strip* __restrict spare) {
  if constexpr (kSize > 1) {
    constexpr unsigned kHalf = kSize / 2;
    for (unsigned i = 0; i < kHalf; ++i) {
      const Strip low = values[i], high = values[kSize - 1 - i];
      spare[i] = low + high;
      spare[kHalf + i] = (low - high) * halves[kHalf + i];
    }
    Spread<kHalf>(halves, spare, values);
    Spread<kHalf>(halves, spare + kHalf, values + kHalf);
    for (unsigned i = 0; i < kHalf; ++i) values[2 * i] = spare[i];
    for (unsigned i = 0; i + 1 < kHalf; ++i) {
      values[2 * i + 1] = spare[kHalf + i] + spare[kHalf + i + 1];
    }
    values[kSize - 1] = spare[kSize - 1];
  }
}

// The transpose of Spread: sum of X(k) cos(pi (i + 1/2) k / kSize).
template <unsigned kSize>
static inline void Collapse(const float* halves, Strip* __restrict values, Strip* __restrict spare) {
  if constexpr (kSize > 1) {
    constexpr unsigned kHalf = kSize / 2;
    for (unsigned i = 0; i < kHalf; ++i) spare[i] = values[2 * i];
    spare[kHalf] = values[1];
    for (unsigned i = 1; i < kHalf; ++i) spare[kHalf + i] = values[2 * i - 1] + values[2 * i + 1];
    Collapse<kHalf>(halves, spare, values);
    Collapse<kHalf>(halves, spare + kHalf, values + kHalf);
    for (unsigned i = 0; i < kHalf; ++i) {
      const Strip even = spare[i], odd = spare[kHalf + i] * halves[kHalf + i];
      values[i] = even + odd;
      values[kSize - 1 - i] = even - odd;
    }
  }
}

template <bool kBack, unsigned kSize>
static inline void TransformOf(const float* halves, Strip* values) {
  Strip spare[kSize];
  if (kBack) {
    Collapse<kSize>(halves, values, spare);
  } else {
    Spread<kSize>(halves, values, spare);
  }
}

template <bool kBack>
static inline void TransformStrip(const CosineFactors& factors, unsigned size, Strip* values) {
  const auto scale = [&] {
    values[0] *= factors.first[size];
    for (unsigned i = 1; i < size; ++i) values[i] *= factors.others[size];
  };
  if (kBack) scale();
  switch (size) {
    case 2: TransformOf<kBack, 2>(factors.halves, values); break;
    case 4: TransformOf<kBack, 4>(factors.halves, values); break;
    case 8: TransformOf<kBack, 8>(factors.halves, values); break;
    case 16: TransformOf<kBack, 16>(factors.halves, values); break;
    case 32: TransformOf<kBack, 32>(factors.halves, values); break;
    case 64: TransformOf<kBack, 64>(factors.halves, values); break;
    default: break;
  }
  if (!kBack) scale();
}

// Copies up to kStrip values, which are usually as many: the length is then known to the compiler.
static inline void CopyLanes(float* to, const float* from, unsigned count) {
  if (count == kStrip) {
    __builtin_memcpy(to, from, sizeof(Strip));
  } else {
    for (unsigned j = 0; j < count; ++j) to[j] = from[j];
  }
}

// Transforms the columns of a matrix of size x others, in row-major order; `out` is its transpose if
// kTurned. Lanes beyond the matrix hold zeros.
template <bool kBack, bool kTurned>
static inline void TransformColumns(const CosineFactors& factors, unsigned size, unsigned others,
                                    const float* __restrict in, float* __restrict out) {
  Strip strip[kLongestSide];
  auto* lanes = reinterpret_cast<float(*)[kStrip]>(strip);
  for (unsigned first = 0; first < others; first += kStrip) {
    const unsigned count = others - first < kStrip ? others - first : kStrip;
    for (unsigned i = 0; i < size; ++i) {
      if (count < kStrip) strip[i] = Strip{};
      CopyLanes(lanes[i], in + i * others + first, count);
    }
    TransformStrip<kBack>(factors, size, strip);
    if (!kTurned) {
      for (unsigned i = 0; i < size; ++i) {
        CopyLanes(out + i * others + first, lanes[i], count);
      }
      continue;
    }
    for (unsigned j = 0; j < count; ++j) {
      for (unsigned i = 0; i < size; ++i) out[(first + j) * size + i] = lanes[i][j];
    }
  }
}

template <bool kBack>
static void TransformTile(const CosineFactors& factors, const Tile& tile, float* values) {
  float turned[kLongestSide * kLongestSide];
  const unsigned first = kBack ? tile.width : tile.height;
  const unsigned second = kBack ? tile.height : tile.width;
  TransformColumns<kBack, true>(factors, first, second, values, turned);
  TransformColumns<kBack, false>(factors, second, first, turned, values);
}
