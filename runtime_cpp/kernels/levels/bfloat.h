// bfloat16 at one level (bfloat.h); part of a level, see table.h.

static void NarrowBfloat(const float* __restrict in, std::uint16_t* __restrict out,
                         std::uint64_t n) {
  for (std::uint64_t i = 0; i < n; ++i) out[i] = NarrowBfloatOne(in[i]);
}

template <bool kAdd>
static void WidenBfloatInto(const std::byte* __restrict in, float* __restrict out, std::uint64_t n) {
  for (std::uint64_t i = 0; i < n; ++i) {
    const float wide = WidenBfloatOne(At<std::uint16_t>(in, i));
    out[i] = kAdd ? out[i] + wide : wide;
  }
}
