// The largest entries of every chunk of an array, selected while a term is added to the array.
//
// Magnitudes are ordered as in sparse.h: NaN is larger than every number. Among entries of equal
// magnitude, the first are selected.
#pragma once

#include <cstdint>

#include "kernels/sparse.h"

namespace geomx::kernels {

inline constexpr std::uint64_t kLongestSpan = 65536;

struct ChunkTerm {
  const float* added = nullptr;  // may be null
  float decay = 1;               // of what is in the array
};

namespace internal {
using ChunkFunction = void (*)(const void* context, std::uint64_t chunk, const Entries& chosen);
void RunChunks(const ChunkTerm& term, float* sum, std::uint64_t n, std::uint64_t span,
               std::uint64_t kept, ChunkFunction function, const void* context);
}  // namespace internal

// sum <- decay sum + added. Then calls take(chunk, entries) once for every chunk of `span` elements,
// on any thread: the `kept` largest entries of the new sum, with indices from the chunk's beginning in
// ascending order; all of them where the last chunk has no more.
// REQUIRES: 0 < kept <= span <= kLongestSpan.
template <class Take>
void TakeLargest(const ChunkTerm& term, float* sum, std::uint64_t n, std::uint64_t span,
                 std::uint64_t kept, const Take& take) {
  internal::RunChunks(
      term, sum, n, span, kept,
      [](const void* context, std::uint64_t chunk, const Entries& chosen) {
        (*static_cast<const Take*>(context))(chunk, chosen);
      },
      &take);
}

}  // namespace geomx::kernels
