#include "kernels/ternary.h"

#include "kernels/loops.h"
#include "kernels/thread_pool.h"

namespace geomx::kernels {

void Quantise(const Ternary& ternary, const float* added, float* residual, std::byte* codes,
              std::uint64_t n) {
  const Loops& loops = TheLoops();
  ForBlocks(n, [&](std::uint64_t first, std::uint64_t count) {
    loops.quantise(ternary, added == nullptr ? nullptr : added + first, residual + first,
                   codes + first / 4, count);
  });
}

float QuantiseToLevel(const float* added, float* residual, std::byte* codes, std::uint64_t n) {
  const float scale = LevelFor(NormsOf(residual, added, n));
  Quantise({.scale = scale, .threshold = scale / 2}, added, residual, codes, n);
  return scale;
}

void Worth(float scale, const std::byte* codes, float* out, std::uint64_t n) {
  const Loops& loops = TheLoops();
  ForBlocks(n, [&](std::uint64_t first, std::uint64_t count) {
    loops.worth(scale, codes + first / 4, out + first, count);
  });
}

void WorthAdd(float scale, const std::byte* codes, float* out, std::uint64_t n) {
  const Loops& loops = TheLoops();
  ForBlocks(n, [&](std::uint64_t first, std::uint64_t count) {
    loops.worth_add(scale, codes + first / 4, out + first, count);
  });
}

}  // namespace geomx::kernels
