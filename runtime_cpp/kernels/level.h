// Which vector instructions the kernels use: found out once, at run time, so that one build serves
// every machine.
//
// What a kernel answers does not depend on the level, nor on the number of threads, to the last bit:
// element-wise arithmetic is the same in any width (products and sums are never contracted), and
// whatever is added up over elements is added in an order of its own, not the instructions'. Tests
// hold every level that the machine has against the portable one.
#pragma once

#include <vector>

namespace geomx::kernels {

enum class Level { kPortable, kAvx2, kAvx512 };

const char* Name(Level level);

// The levels that this build has and this machine can run, ascending.
const std::vector<Level>& Levels();

// The one in use: at first the highest.
Level Current();

// For tests and benchmarks. REQUIRES: `level` is one of Levels(), and no kernel is running.
void Use(Level level);

}  // namespace geomx::kernels
