// Random tests that can be repeated: when a check fails while a SeedNote is alive, the seed is
// printed, and `GEOMX_SEED=n geomx_tests [substring]` runs every such test with that seed alone.
// `GEOMX_SEEDS=n` runs each with its first n seeds at most, for builds that are slow.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <random>
#include <string>

#include "tests/check.h"

namespace geomx::check {

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

// A number that a variable of the environment gives, or `otherwise`.
inline std::uint64_t Given(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// Calls body(seed) for seeds 1..count.
template <class Body>
void ForSeeds(std::uint64_t count, Body body) {
  const std::uint64_t first = Given("GEOMX_SEED", 1);
  count = std::getenv("GEOMX_SEED") ? 1 : std::min(count, Given("GEOMX_SEEDS", count));
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    const SeedNote note(seed);
    body(seed);
  }
}

// Uniform over [low, high], the same on every platform.
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
