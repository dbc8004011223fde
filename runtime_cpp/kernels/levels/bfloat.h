// bfloat16 at one level (bfloat.h); part of a level, see table.h.

using BriefAt = std::uint16_t __attribute__((aligned(1), may_alias));  // at any address

static void NarrowBfloat(const float* __restrict in, std::uint16_t* __restrict out,
                         std::uint64_t n) {
  for (std::uint64_t i = 0; i < n; ++i) out[i] = NarrowBfloatOne(in[i]);
}

template <bool kAdd>
static void WidenBfloatInto(const std::byte* in, float* __restrict out, std::uint64_t n) {
  const BriefAt* __restrict brief = reinterpret_cast<const BriefAt*>(in);
  for (std::uint64_t i = 0; i < n; ++i) {
    const float wide = WidenBfloatOne(brief[i]);
    out[i] = kAdd ? out[i] + wide : wide;
  }
}
