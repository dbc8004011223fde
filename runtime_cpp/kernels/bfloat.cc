#include "kernels/bfloat.h"

#include "kernels/loops.h"
#include "kernels/thread_pool.h"

namespace geomx::kernels {

void NarrowBfloat(const float* in, std::uint16_t* out, std::uint64_t n) {
  const Loops& loops = TheLoops();
  ForBlocks(n, [&](std::uint64_t first, std::uint64_t count) {
    loops.narrow_bfloat(in + first, out + first, count);
  });
}

void WidenBfloat(const std::byte* in, float* out, std::uint64_t n) {
  const Loops& loops = TheLoops();
  ForBlocks(n, [&](std::uint64_t first, std::uint64_t count) {
    loops.widen_bfloat(in + 2 * first, out + first, count);
  });
}

void WidenBfloatAdd(const std::byte* in, float* out, std::uint64_t n) {
  const Loops& loops = TheLoops();
  ForBlocks(n, [&](std::uint64_t first, std::uint64_t count) {
    loops.widen_bfloat_add(in + 2 * first, out + first, count);
  });
}

}  // namespace geomx::kernels
