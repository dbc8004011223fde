// Rows of sparse tensors on a GPU: indices of odd widths (bits.h), and adding rows up (sparse.h).
#include "kernels/cuda/elements.h"
#include "kernels/cuda/twins.h"

namespace geomx::kernels::GEOMX_CUDA {
namespace {

// Each thread computes one 32-bit word of the output from the numbers that overlap it.
__global__ void __launch_bounds__(kThreads)
    PackKernel(const std::uint32_t* numbers, std::uint64_t count, std::uint32_t bits,
               std::byte* out, std::uint64_t bytes) {
  const bool aligned = reinterpret_cast<std::uintptr_t>(out) % 4 == 0;
  for (std::uint64_t word = Place(); 4 * word < bytes; word += Stride()) {
    const std::uint64_t start = 32 * word;
    std::uint32_t packed = 0;
    for (std::uint64_t i = start / bits; i < count && i * bits < start + 32; ++i) {
      const std::uint64_t at = i * bits;
      const std::uint64_t number = numbers[i];
      packed |= static_cast<std::uint32_t>(at >= start ? number << (at - start)
                                                       : number >> (start - at));
    }
    if (aligned && 4 * word + 4 <= bytes) {
      reinterpret_cast<std::uint32_t*>(out)[word] = packed;
    } else {
      for (std::uint64_t k = 0; k < 4 && 4 * word + k < bytes; ++k) {
        out[4 * word + k] = static_cast<std::byte>(packed >> 8 * k);
      }
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    UnpackKernel(const std::byte* in, std::uint64_t count, std::uint32_t bits,
                 std::uint32_t* out) {
  const std::uint64_t mask = (std::uint64_t{1} << bits) - 1;
  for (std::uint64_t i = Place(); i < count; i += Stride()) {
    const std::uint64_t bit = i * bits;
    const std::uint64_t last = (bit + bits - 1) / 8;
    std::uint64_t window = 0;
    for (std::uint64_t byte = bit / 8; byte <= last; ++byte) {
      window |= static_cast<std::uint64_t>(in[byte]) << 8 * (byte - bit / 8);
    }
    out[i] = static_cast<std::uint32_t>(window >> bit % 8 & mask);
  }
}

__global__ void __launch_bounds__(kThreads)
    LookKernel(const std::byte* indices, std::uint64_t count, std::uint64_t elements,
               std::uint32_t* refused, std::uint32_t* disordered) {
  for (std::uint64_t i = Place(); i < count; i += Stride()) {
    const std::uint32_t index = LoadWord(indices + 4 * i);
    if (index >= elements) *refused = 1;
    if (i > 0 && index <= LoadWord(indices + 4 * (i - 1))) *disordered = 1;
  }
}

// Codecs produce ascending indices, so no two threads share one. Other indices (from a faulty peer)
// are added by one thread in their order: slow, but with the same result as on any device.
__global__ void __launch_bounds__(kThreads)
    ScatterKernel(const std::byte* values, const std::byte* indices, std::uint64_t count,
                  float* out, const std::uint32_t* refused, const std::uint32_t* disordered) {
  if (*refused != 0) return;
  const bool alone = *disordered != 0;
  if (alone && Place() > 0) return;
  for (std::uint64_t i = Place(); i < count; i += alone ? 1 : Stride()) {
    out[LoadWord(indices + 4 * i)] += FloatOf(LoadWord(values + 4 * i));
  }
}

__global__ void __launch_bounds__(kThreads)
    GatherKernel(const float* from, const std::uint32_t* rows, std::uint64_t count, float* out) {
  for (std::uint64_t i = Place(); i < count; i += Stride()) out[i] = from[rows[i]];
}

__global__ void __launch_bounds__(kThreads)
    PutKernel(const float* values, const std::uint32_t* rows, std::uint64_t count, float* to) {
  for (std::uint64_t i = Place(); i < count; i += Stride()) to[rows[i]] = values[i];
}

}  // namespace

void PackBits(Context& context, const std::uint32_t* numbers, std::uint64_t count,
              std::uint32_t bits, std::byte* out) {
  const std::uint64_t bytes = (count * bits + 7) / 8;
  Launch(context, BlocksFor(context, (bytes + 3) / 4), kThreads, &PackKernel, numbers, count, bits,
         out, bytes);
}

void UnpackBits(Context& context, const std::byte* in, std::uint64_t count, std::uint32_t bits,
                std::uint32_t* out) {
  Launch(context, BlocksFor(context, count), kThreads, &UnpackKernel, in, count, bits, out);
}

void Gather(Context& context, const float* from, const std::uint32_t* rows, std::uint64_t count,
            float* out) {
  Launch(context, BlocksFor(context, count), kThreads, &GatherKernel, from, rows, count, out);
}

void Scatter(Context& context, const float* values, const std::uint32_t* rows, std::uint64_t count,
             float* to) {
  Launch(context, BlocksFor(context, count), kThreads, &PutKernel, values, rows, count, to);
}

void ScatterAdd(Context& context, const std::byte* values, const std::byte* indices,
                std::uint64_t count, std::uint64_t elements, float* out, std::uint32_t* refused) {
  auto* disordered = reinterpret_cast<std::uint32_t*>(context.Scratch(sizeof(std::uint32_t)));
  Check(cudaMemsetAsync(disordered, 0, sizeof *disordered, context.stream), "clearing memory");
  Check(cudaMemsetAsync(refused, 0, sizeof *refused, context.stream), "clearing memory");
  Launch(context, BlocksFor(context, count), kThreads, &LookKernel, indices, count, elements,
         refused, disordered);
  Launch(context, BlocksFor(context, count), kThreads, &ScatterKernel, values, indices, count, out,
         refused, disordered);
}

}  // namespace geomx::kernels::GEOMX_CUDA
