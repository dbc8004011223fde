// Codes of 8 and 4 bits with a scale per chunk (integers.h); part of a level, see table.h.

// Adding this rounds a float32 of magnitude below 2^22 to the nearest integer, ties to even, which is
// then in the lowest bits.
constexpr float kRounding = 12582912.0f;  // 1.5 * 2^23

template <int kBits>
static inline void StoreCodes(const std::int8_t* __restrict wide, std::uint64_t n,
                              std::byte* __restrict codes) {
  if (kBits == 8) {
    for (std::uint64_t i = 0; i < n; ++i) codes[i] = static_cast<std::byte>(wide[i]);
    return;
  }
  const std::uint64_t half = (n + 1) / 2;
  for (std::uint64_t i = 0; i < n - half; ++i) {
    codes[i] = static_cast<std::byte>((wide[i] & 15) | (wide[half + i] & 15) << 4);
  }
  if (n % 2 != 0) codes[half - 1] = static_cast<std::byte>(wide[half - 1] & 15);
}

// Encodes one chunk of pending values and returns its scale.
template <int kBits>
static inline float EncodeChunk(float* __restrict pending, std::uint64_t n,
                                std::byte* __restrict codes) {
  std::int8_t wide[kLargestChunk];
  std::int32_t largest = 0;
  for (std::uint64_t i = 0; i < n; ++i) {
    const auto magnitude = static_cast<std::int32_t>(BitsOf(pending[i]) & 0x7fffffffu);
    largest = magnitude > largest ? magnitude : largest;
  }
  const float most = kBits == 8 ? 127.0f : 7.0f;
  float scale = FloatOf(static_cast<std::uint32_t>(largest)) / most;
  if (largest >= 0x7f800000) {  // an infinity or NaN: all values of the chunk become it
    for (std::uint64_t i = 0; i < n; ++i) wide[i] = 1;
    for (std::uint64_t i = 0; i < n; ++i) pending[i] = 0;
  } else if (scale < 0x1p-126f) {
    for (std::uint64_t i = 0; i < n; ++i) wide[i] = 0;
    scale = 0;
  } else {
    const float inverse = 1.0f / scale;
    for (std::uint64_t i = 0; i < n; ++i) {
      const float rounded = pending[i] * inverse + kRounding;
      wide[i] = static_cast<std::int8_t>(BitsOf(rounded));
      pending[i] -= (rounded - kRounding) * scale;
    }
  }
  StoreCodes<kBits>(wide, n, codes);
  return scale;
}

static void EncodeIntegersIn(const Integers& format, const float* __restrict added,
                             float* __restrict residual, std::byte* __restrict codes,
                             float* __restrict scales, std::uint64_t n) {
  for (std::uint64_t first = 0; first < n; first += format.chunk) {
    const std::uint64_t count = n - first < format.chunk ? n - first : format.chunk;
    float* __restrict pending = residual + first;
    if (added != nullptr) {
      for (std::uint64_t i = 0; i < count; ++i) pending[i] += added[first + i];
    }
    std::byte* out = codes + first * format.bits / 8;
    *scales++ = format.bits == 8 ? EncodeChunk<8>(pending, count, out)
                                 : EncodeChunk<4>(pending, count, out);
  }
}

template <int kBits, bool kAdd>
static inline void DecodeChunk(float scale, const std::byte* __restrict codes,
                               float* __restrict out, std::uint64_t n) {
  if (kBits == 8) {
    for (std::uint64_t i = 0; i < n; ++i) {
      const float value = static_cast<float>(static_cast<std::int8_t>(codes[i])) * scale;
      out[i] = kAdd ? out[i] + value : value;
    }
    return;
  }
  const std::uint64_t half = (n + 1) / 2;
  for (std::uint64_t i = 0; i < half; ++i) {
    const int code = ((static_cast<int>(codes[i]) & 15) ^ 8) - 8;
    const float value = static_cast<float>(code) * scale;
    out[i] = kAdd ? out[i] + value : value;
  }
  for (std::uint64_t i = 0; i < n - half; ++i) {
    const int code = ((static_cast<int>(codes[i]) >> 4) ^ 8) - 8;
    const float value = static_cast<float>(code) * scale;
    out[half + i] = kAdd ? out[half + i] + value : value;
  }
}

template <bool kAdd>
static void DecodeIntegersInto(const Integers& format, const std::byte* __restrict codes,
                               const std::byte* __restrict scales, float* __restrict out,
                               std::uint64_t n) {
  for (std::uint64_t first = 0; first < n; first += format.chunk, scales += sizeof(float)) {
    const std::uint64_t count = n - first < format.chunk ? n - first : format.chunk;
    float scale;
    __builtin_memcpy(&scale, scales, sizeof scale);
    const std::byte* in = codes + first * format.bits / 8;
    if (format.bits == 8) {
      DecodeChunk<8, kAdd>(scale, in, out + first, count);
    } else {
      DecodeChunk<4, kAdd>(scale, in, out + first, count);
    }
  }
}
