// Codes of two bits on a GPU: ternary.h. Each thread handles four values and their byte.
#include <algorithm>

#include "kernels/cuda/elements.h"
#include "kernels/cuda/twins.h"

namespace geomx::kernels::GEOMX_CUDA {
namespace {

// The level is given, or computed from norms on the device, and stored to `level`.
template <bool kAdded>
__global__ void __launch_bounds__(kThreads)
    QuantiseKernel(Ternary ternary, const Norms* norms, float* level, const float* added,
                   float* residual, std::byte* codes, std::uint64_t n, bool aligned) {
  if (norms != nullptr) {
    ternary.scale = LevelFor(*norms);
    ternary.threshold = ternary.scale / 2;
    if (Place() == 0) *level = ternary.scale;
  }
  const std::uint32_t scale_bits = BitsOf(ternary.scale);
  const float threshold = ternary.threshold;
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

void QueueCodes(Context& context, const Ternary& ternary, const Norms* norms, float* level,
                const float* added, float* residual, std::byte* codes, std::uint64_t n,
                std::uint64_t threads) {
  Launch(context, BlocksFor(context, threads), kThreads,
         added != nullptr ? &QuantiseKernel<true> : &QuantiseKernel<false>, ternary, norms, level,
         added, residual, codes, n, Aligned16(added, residual));
}

}  // namespace

void Quantise(Context& context, const Ternary& ternary, const float* added, float* residual,
              std::byte* codes, std::uint64_t n) {
  QueueCodes(context, ternary, nullptr, nullptr, added, residual, codes, n, Groups(n));
}

void QuantiseToLevel(Context& context, const float* added, float* residual, float* level,
                     std::byte* codes, std::uint64_t n) {
  constexpr std::size_t kHead = 256;  // keeps the alignment of device memory
  std::byte* const room = context.Scratch(kHead + NormsRoom(n));
  auto* norms = reinterpret_cast<Norms*>(room);
  NormsIn(context, residual, added, n, norms, room + kHead);
  const std::uint64_t threads = std::max<std::uint64_t>(1, Groups(n));  // one stores the level
  QueueCodes(context, {}, norms, level, added, residual, codes, n, threads);
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
