// Sums at one level (sums.h); part of a level, see table.h.

// The 16 lanes of a sum over elements, in as many registers as the level needs.
constexpr int kWidth = GEOMX_LEVEL == 5 ? 16 : GEOMX_LEVEL == 2 ? 8 : 4;
constexpr int kRegisters = 16 / kWidth;
using Lanes = float __attribute__((vector_size(4 * kWidth)));
using LaneBits = std::uint32_t __attribute__((vector_size(4 * kWidth)));

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

static void AddBytes(const std::byte* __restrict in, float* __restrict out, std::uint64_t n) {
  for (std::uint64_t i = 0; i < n; ++i) out[i] += At<float>(in, i);
}

// Adds up the lanes of a run, lane 0 first.
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

// An exponent of ones is the largest there is: one comparison for all, at the end.
static bool Finite(const float* values, std::uint64_t n) {
  std::int32_t largest = 0;
  for (std::uint64_t i = 0; i < n; ++i) {
    const std::int32_t magnitude = static_cast<std::int32_t>(BitsOf(values[i]) & 0x7fffffffu);
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest < 0x7f800000;
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
