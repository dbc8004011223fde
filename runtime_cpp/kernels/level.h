// The vector instructions that the kernels use, detected once at run time, so that one build serves
// every machine.
//
// Results do not depend on the level, nor on the number of threads, to the last bit: element-wise
// arithmetic is the same in any width (products and sums are never contracted), and sums over
// elements have a fixed order, independent of the instructions. Tests compare every level of the
// machine with the portable one.
#pragma once

#include <vector>

namespace geomx::kernels {

enum class Level { kPortable, kAvx2, kAvx512 };

const char* Name(Level level);

// The levels of this build that this machine can run, ascending.
const std::vector<Level>& Levels();

// The level in use; initially the highest.
Level Current();

// For tests and benchmarks. REQUIRES: `level` is one of Levels(), and no kernel is running.
void Use(Level level);

}  // namespace geomx::kernels
