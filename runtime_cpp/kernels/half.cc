#include "kernels/half.h"

#include "kernels/loops.h"
#include "kernels/thread_pool.h"

namespace geomx::kernels {

void Narrow(const float* in, std::uint16_t* out, std::uint64_t n) {
  const Loops& loops = TheLoops();
  ForBlocks(n, [&](std::uint64_t first, std::uint64_t count) {
    loops.narrow(in + first, out + first, count);
  });
}

void Widen(const std::byte* in, float* out, std::uint64_t n) {
  const Loops& loops = TheLoops();
  ForBlocks(n, [&](std::uint64_t first, std::uint64_t count) {
    loops.widen(in + 2 * first, out + first, count);
  });
}

void WidenAdd(const std::byte* in, float* out, std::uint64_t n) {
  const Loops& loops = TheLoops();
  ForBlocks(n, [&](std::uint64_t first, std::uint64_t count) {
    loops.widen_add(in + 2 * first, out + first, count);
  });
}

}  // namespace geomx::kernels
