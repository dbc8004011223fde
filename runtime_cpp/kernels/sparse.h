// Finding the large entries of an array while it is being computed.
//
// Values are ordered by magnitude: their bits without the sign, as an integer. That orders finite
// values and infinities as their absolute values do, and puts NaN above all, so that NaN is chosen,
// sent and noticed.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace geomx::kernels {

inline std::uint32_t Magnitude(float value) {
  return std::bit_cast<std::uint32_t>(value) & 0x7fffffffu;
}

// Entries of an array: ascending indices, and values.
struct Entries {
  std::vector<std::uint32_t> indices;
  std::vector<float> values;

  std::size_t size() const { return indices.size(); }
};

// The term that Accumulate adds: scale * term, plus a velocity if there is one.
struct Accumulation {
  float scale = 1;
  float momentum = 0;

  // The step of one entry. Decaying velocities would end as subnormal numbers, which are slow: they
  // become zero instead.
  float Step(float term) const { return scale * term; }
  float Step(float term, float velocity) const {
    const float step = scale * term + momentum * velocity;
    return Magnitude(step) < 0x00800000u ? 0.0f : step;
  }
};

// Memory between calls.
struct FindScratch {
  std::vector<Entries> blocks;
};

// In one pass: velocity <- Step(term, velocity) if `velocity` is not null, sum <- sum + step, and
// into `found` all entries of the new sum whose magnitude is `threshold` or more.
// REQUIRES: n <= 2^32, 1 <= threshold < 2^31.
void Accumulate(const Accumulation& accumulation, const float* term, float* velocity, float* sum,
                std::uint64_t n, std::uint32_t threshold, FindScratch& scratch, Entries& found);

// The same for values that do not change.
void Find(const float* values, std::uint64_t n, std::uint32_t threshold, FindScratch& scratch,
          Entries& found);

// The magnitude of rank `rank` among `values`, 0 being the largest. REQUIRES: rank < n.
std::uint32_t MagnitudeOfRank(const float* values, std::uint64_t n, std::uint64_t rank,
                              std::vector<std::uint32_t>& scratch);

// Of `entries` the `count` largest, in their order; among equals, the first.
// REQUIRES: 0 < count <= entries.size().
void KeepLargest(Entries& entries, std::uint64_t count, std::vector<std::uint32_t>& scratch);

// out[i] = from[rows[i]], and to[rows[i]] = values[i]; no row twice.
void Gather(const float* from, const std::uint32_t* rows, std::uint64_t count, float* out);
void Scatter(const float* values, const std::uint32_t* rows, std::uint64_t count, float* to);

// out[indices[i]] += the float32 at values + 4 i, for 32-bit indices at indices + 4 i; neither need
// be aligned. False, and nothing is added, if an index is `elements` or more.
bool ScatterAdd(const std::byte* values, const std::byte* indices, std::uint64_t count,
                std::uint64_t elements, float* out);

}  // namespace geomx::kernels
