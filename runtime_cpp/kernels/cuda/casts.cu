// Casts on a GPU: half.h and bfloat.h.
#include <cuda_fp16.h>

#include "kernels/cuda/elements.h"
#include "kernels/cuda/twins.h"

namespace geomx::kernels::GEOMX_CUDA {
namespace {

struct Half {
  __device__ static std::uint16_t Narrow(float value) {
    return __half_as_ushort(__float2half_rn(value));
  }
  __device__ static float Widen(std::uint16_t half) {
    return __half2float(__ushort_as_half(half));
  }
};

struct Bfloat {
  __device__ static std::uint16_t Narrow(float value) { return NarrowBfloatOne(value); }
  __device__ static float Widen(std::uint16_t brief) { return WidenBfloatOne(brief); }
};

template <class Type>
__device__ inline std::uint32_t Pair(float low, float high) {
  return std::uint32_t{Type::Narrow(low)} | std::uint32_t{Type::Narrow(high)} << 16;
}

// Eight at a time: 32 bytes are read, 16 stored.
template <class Type>
__global__ void __launch_bounds__(kThreads)
    NarrowKernel(const float* in, std::uint16_t* out, std::uint64_t n, bool aligned) {
  const std::uint64_t eights = aligned ? n / 8 : 0;
  for (std::uint64_t eight = Place(); eight < eights; eight += Stride()) {
    float low[4], high[4];
    LoadFour(in + 8 * eight, low);
    LoadFour(in + 8 * eight + 4, high);
    reinterpret_cast<uint4*>(out)[eight] =
        make_uint4(Pair<Type>(low[0], low[1]), Pair<Type>(low[2], low[3]),
                   Pair<Type>(high[0], high[1]), Pair<Type>(high[2], high[3]));
  }
  for (std::uint64_t i = 8 * eights + Place(); i < n; i += Stride()) out[i] = Type::Narrow(in[i]);
}

// Four at a time: neighbouring threads then store neighbouring 16 bytes.
template <class Type, bool kAdd>
__global__ void __launch_bounds__(kThreads)
    WidenKernel(const std::byte* in, float* out, std::uint64_t n, bool aligned) {
  const std::uint64_t fours = aligned ? n / 4 : 0;
  for (std::uint64_t four = Place(); four < fours; four += Stride()) {
    const uint2 packed = reinterpret_cast<const uint2*>(in)[four];
    float wide[4] = {};
    if constexpr (kAdd) LoadFour(out + 4 * four, wide);
#pragma unroll
    for (unsigned k = 0; k < 4; ++k) {
      const std::uint32_t word = k < 2 ? packed.x : packed.y;
      const float more = Type::Widen(static_cast<std::uint16_t>(k % 2 == 0 ? word : word >> 16));
      wide[k] = kAdd ? wide[k] + more : more;
    }
    StoreFour(out + 4 * four, wide);
  }
  for (std::uint64_t i = 4 * fours + Place(); i < n; i += Stride()) {
    const float wide = Type::Widen(LoadShort(in + 2 * i));
    out[i] = kAdd ? out[i] + wide : wide;
  }
}

template <class Type>
void NarrowAll(Context& context, const float* in, std::uint16_t* out, std::uint64_t n) {
  const bool aligned = Aligned16(in, out);
  Launch(context, BlocksFor(context, aligned ? n / 8 + n % 8 : n), kThreads, &NarrowKernel<Type>,
         in, out, n, aligned);
}

template <class Type, bool kAdd>
void WidenAll(Context& context, const std::byte* in, float* out, std::uint64_t n) {
  const bool aligned = Aligned16(in, out);
  Launch(context, BlocksFor(context, aligned ? n / 4 + n % 4 : n), kThreads,
         &WidenKernel<Type, kAdd>, in, out, n, aligned);
}

}  // namespace

void Narrow(Context& context, const float* in, std::uint16_t* out, std::uint64_t n) {
  NarrowAll<Half>(context, in, out, n);
}
void Widen(Context& context, const std::byte* in, float* out, std::uint64_t n) {
  WidenAll<Half, false>(context, in, out, n);
}
void WidenAdd(Context& context, const std::byte* in, float* out, std::uint64_t n) {
  WidenAll<Half, true>(context, in, out, n);
}
void NarrowBfloat(Context& context, const float* in, std::uint16_t* out, std::uint64_t n) {
  NarrowAll<Bfloat>(context, in, out, n);
}
void WidenBfloat(Context& context, const std::byte* in, float* out, std::uint64_t n) {
  WidenAll<Bfloat, false>(context, in, out, n);
}
void WidenBfloatAdd(Context& context, const std::byte* in, float* out, std::uint64_t n) {
  WidenAll<Bfloat, true>(context, in, out, n);
}

}  // namespace geomx::kernels::GEOMX_CUDA
