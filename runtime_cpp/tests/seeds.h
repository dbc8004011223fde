// Reproducible random tests: if a check fails while a SeedNote exists, the seed is printed, and
// `GEOMX_SEED=n geomx_tests [substring]` runs all random tests with that seed only.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>

#include "tests/check.h"

extern "C" [[gnu::weak]] void __asan_init();

namespace geomx::check {

// Returns the number of draws of a test: `count`, or a quarter with sanitizers, which are five times
// slower; that is sufficient to cover each path.
inline std::uint64_t Draws(std::uint64_t count) {
  return __asan_init == nullptr ? count : (count + 3) / 4;
}

using Random = std::mt19937_64;

class SeedNote {
 public:
  explicit SeedNote(std::uint64_t seed) : seed_(seed), failures_(Failures()) {}
  ~SeedNote() {
    if (Failures() != failures_) std::cerr << "  with seed " << seed_ << "\n";
  }
  SeedNote(const SeedNote&) = delete;
  SeedNote& operator=(const SeedNote&) = delete;

 private:
  std::uint64_t seed_;
  int failures_;
};

// Calls body(seed) for seeds 1..Draws(count).
template <class Body>
void ForSeeds(std::uint64_t count, Body body) {
  std::uint64_t first = 1;
  count = Draws(count);
  if (const char* chosen = std::getenv("GEOMX_SEED")) {
    first = std::strtoull(chosen, nullptr, 10);
    count = 1;
  }
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    const SeedNote note(seed);
    body(seed);
  }
}

// Uniform over [low, high], with equal results on every platform.
inline std::uint64_t Between(Random& random, std::uint64_t low, std::uint64_t high) {
  return low + random() % (high - low + 1);
}

inline bool Chance(Random& random, double probability) {
  return static_cast<double>(random() >> 11) * 0x1p-53 < probability;
}

inline float Uniform(Random& random, float low, float high) {
  return low + (high - low) * static_cast<float>(static_cast<double>(random() >> 11) * 0x1p-53);
}

}  // namespace geomx::check
