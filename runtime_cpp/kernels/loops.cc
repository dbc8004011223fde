// Compiles the loops for every level, and picks one. The attribute that allows a level's
// instructions covers that level's own functions only: an inline function of the standard library,
// compiled under it, could be the copy that the whole program uses, on machines without them too.
#include "kernels/loops.h"

#include <atomic>
#include <cstring>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define GEOMX_X86 1
#include <cpuid.h>
#include <immintrin.h>
#else
#define GEOMX_X86 0
#endif

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi"  // vectors stay inside these functions
// GCC 12's own intrinsics:
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#define GEOMX_LEVEL 0
namespace geomx::kernels::portable {
#include "kernels/levels/table.h"
}
#undef GEOMX_LEVEL

#if GEOMX_X86
#define GEOMX_LEVEL 2
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,f16c,bmi,bmi2,popcnt"))), \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,f16c,bmi,bmi2,popcnt")
#endif
namespace geomx::kernels::avx2 {
#include "kernels/levels/table.h"
}
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#undef GEOMX_LEVEL

#define GEOMX_LEVEL 5
#if defined(__clang__)
#pragma clang attribute push( \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,f16c,bmi,bmi2,popcnt"))), \
    apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,f16c,bmi,bmi2,popcnt")
#endif
namespace geomx::kernels::avx512 {
#include "kernels/levels/table.h"
}
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#undef GEOMX_LEVEL
#endif

namespace geomx::kernels {
namespace {

const Loops& Of(Level level) {
#if GEOMX_X86
  if (level == Level::kAvx2) return avx2::kLoops;
  if (level == Level::kAvx512) return avx512::kLoops;
#endif
  (void)level;
  return portable::kLoops;
}

struct Choice {
  std::atomic<Level> level{Levels().back()};
  std::atomic<const Loops*> loops{&Of(Levels().back())};
};

Choice& TheChoice() {
  static Choice choice;
  return choice;
}

}  // namespace

const char* Name(Level level) {
  switch (level) {
    case Level::kAvx2: return "avx2";
    case Level::kAvx512: return "avx512";
    default: return "portable";
  }
}

const std::vector<Level>& Levels() {
  static const std::vector<Level> levels = [] {
    std::vector<Level> found = {Level::kPortable};
#if GEOMX_X86
    __builtin_cpu_init();
    unsigned a = 0, b = 0, c = 0, d = 0;
    const bool half = __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
    const bool common = half && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
                        __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt");
    if (common) found.push_back(Level::kAvx2);
    if (common && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
      found.push_back(Level::kAvx512);
    }
#endif
    return found;
  }();
  return levels;
}

Level Current() { return TheChoice().level.load(std::memory_order_relaxed); }

void Use(Level level) {
  TheChoice().level.store(level, std::memory_order_relaxed);
  TheChoice().loops.store(&Of(level), std::memory_order_relaxed);
}

const Loops& TheLoops() { return *TheChoice().loops.load(std::memory_order_relaxed); }

}  // namespace geomx::kernels
