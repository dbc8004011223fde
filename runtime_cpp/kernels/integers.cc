#include "kernels/integers.h"

#include "kernels/loops.h"
#include "kernels/thread_pool.h"

namespace geomx::kernels {
namespace {

static_assert(kBlock % kLargestChunk == 0, "chunks do not cross blocks");

using Decode = decltype(Loops::decode_integers);

void DecodeBlocks(Decode decode, const Integers& format, const std::byte* codes,
                  const std::byte* scales, float* out, std::uint64_t n) {
  ForBlocks(n, [&](std::uint64_t first, std::uint64_t count) {
    decode(format, codes + first * format.bits / 8, scales + first / format.chunk * sizeof(float),
           out + first, count);
  });
}

}  // namespace

void EncodeIntegers(const Integers& format, const float* added, float* residual, std::byte* codes,
                    float* scales, std::uint64_t n) {
  const Loops& loops = TheLoops();
  ForBlocks(n, [&](std::uint64_t first, std::uint64_t count) {
    loops.encode_integers(format, added == nullptr ? nullptr : added + first, residual + first,
                          codes + first * format.bits / 8, scales + first / format.chunk, count);
  });
}

void DecodeIntegers(const Integers& format, const std::byte* codes, const std::byte* scales,
                    float* out, std::uint64_t n) {
  DecodeBlocks(TheLoops().decode_integers, format, codes, scales, out, n);
}

void DecodeIntegersAdd(const Integers& format, const std::byte* codes, const std::byte* scales,
                       float* out, std::uint64_t n) {
  DecodeBlocks(TheLoops().decode_integers_add, format, codes, scales, out, n);
}

}  // namespace geomx::kernels
