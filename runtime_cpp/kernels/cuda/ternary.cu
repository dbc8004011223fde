// Codes of two bits on a GPU: ternary.h. A thread has four values and their byte.
#include "kernels/cuda/elements.h"
#include "kernels/cuda/twins.h"

namespace geomx::kernels::GEOMX_CUDA {
namespace {

template <bool kAdded>
__global__ void __launch_bounds__(kThreads)
    QuantiseKernel(std::uint32_t scale_bits, float threshold, const float* added, float* residual,
                   std::byte* codes, std::uint64_t n, bool aligned) {
  for (std::uint64_t group = Place(); 4 * group < n; group += Stride()) {
    const std::uint64_t i = 4 * group;
    float values[4] = {};
    Load4(residual, i, n, aligned, values);
    if constexpr (kAdded) {
      float more[4] = {};
      Load4(added, i, n, aligned, more);
#pragma unroll
      for (unsigned k = 0; k < 4; ++k) values[k] += more[k];
    }
    std::uint32_t byte = 0;
#pragma unroll
    for (unsigned k = 0; k < 4; ++k) {
      const std::uint32_t code = QuantiseOne(scale_bits, threshold, values[k]);
      if (i + k < n) byte |= code << (6 - 2 * k);
    }
    Store4(residual, i, n, aligned, values);
    codes[group] = static_cast<std::byte>(byte);
  }
}

template <bool kAdd>
__global__ void __launch_bounds__(kThreads)
    WorthKernel(float scale, const std::byte* codes, float* out, std::uint64_t n, bool aligned) {
  for (std::uint64_t group = Place(); 4 * group < n; group += Stride()) {
    const std::uint64_t i = 4 * group;
    const auto byte = static_cast<std::uint32_t>(codes[group]);
    float values[4] = {};
    if constexpr (kAdd) Load4(out, i, n, aligned, values);
#pragma unroll
    for (unsigned k = 0; k < 4; ++k) {
      const std::uint32_t code = byte >> (6 - 2 * k) & 3u;
      const float worth = (code & 2u) == 0 ? 0.0f : (code & 1u) == 0 ? -scale : scale;
      values[k] = kAdd ? values[k] + worth : worth;
    }
    Store4(out, i, n, aligned, values);
  }
}

std::uint64_t Groups(std::uint64_t n) { return (n + 3) / 4; }

}  // namespace

void Quantise(Context& context, const Ternary& ternary, const float* added, float* residual,
              std::byte* codes, std::uint64_t n) {
  const auto scale_bits = std::bit_cast<std::uint32_t>(ternary.scale);
  const bool aligned = Aligned16(added, residual);
  Launch(context, BlocksFor(context, Groups(n)), kThreads,
         added != nullptr ? &QuantiseKernel<true> : &QuantiseKernel<false>, scale_bits,
         ternary.threshold, added, residual, codes, n, aligned);
}

void Worth(Context& context, float scale, const std::byte* codes, float* out, std::uint64_t n) {
  Launch(context, BlocksFor(context, Groups(n)), kThreads, &WorthKernel<false>, scale, codes, out,
         n, Aligned16(out));
}

void WorthAdd(Context& context, float scale, const std::byte* codes, float* out, std::uint64_t n) {
  Launch(context, BlocksFor(context, Groups(n)), kThreads, &WorthKernel<true>, scale, codes, out, n,
         Aligned16(out));
}

}  // namespace geomx::kernels::GEOMX_CUDA
