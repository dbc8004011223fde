#include "kernels/chunks.h"

#include <algorithm>
#include <bit>

#include "kernels/loops.h"
#include "kernels/thread_pool.h"

namespace geomx::kernels {
namespace {

// The scratch memory of one thread's chunks, and a threshold that enough entries of the next chunk
// probably reach: by a margin below the least magnitude that the chunk before has kept. Of a normal
// distribution, 15 % below are twice as many entries; of the remainders of earlier selections, which
// end steeply, many more. Only the time depends on it.
struct Selection {
  Entries found;
  FindScratch scratch;
  std::vector<std::uint32_t> magnitudes;
  std::uint32_t threshold = 0x7f800000u;
  float margin = 0.15f;

  void Adapt(std::uint64_t found_first, std::uint64_t wanted) {
    if (threshold >= 0x7f800000u) return;  // the first chunk has no threshold
    if (found_first < wanted) margin = std::min(0.5f, 2 * margin);
    if (found_first > 3 * wanted) margin = std::max(0.01f, margin / 2);
  }
};

// Appends zeros to entries that are all there is besides zeros.
void FillUp(const float* values, std::uint64_t n, std::uint64_t wanted, Entries& found) {
  const std::uint64_t nonzero = found.size();
  std::uint64_t next = 0;
  for (std::uint64_t i = 0; i < n && found.size() < wanted; ++i) {
    if (next < nonzero && found.indices[next] == i) {
      ++next;
    } else if (Magnitude(values[i]) == 0) {
      found.indices.push_back(static_cast<std::uint32_t>(i));
      found.values.push_back(values[i]);
    }
  }
  std::sort(found.indices.begin(), found.indices.end());
  for (std::uint64_t i = 0; i < found.size(); ++i) found.values[i] = values[found.indices[i]];
}

void Select(const float* values, std::uint64_t n, std::uint64_t kept, Selection& selection) {
  Entries& found = selection.found;
  const std::uint64_t wanted = std::min(kept, n);
  selection.Adapt(found.size(), wanted);
  if (found.size() < wanted) {
    const std::uint32_t least = MagnitudeOfRank(values, n, wanted - 1, selection.magnitudes);
    Find(values, n, std::max(least, 1u), selection.scratch, found);
    if (found.size() < wanted) FillUp(values, n, wanted, found);
  }
  if (found.size() > wanted) KeepLargest(found, wanted, selection.magnitudes);
  std::uint32_t least = 0x7f800000u;
  for (const float value : found.values) least = std::min(least, Magnitude(value));
  const float threshold = (1 - selection.margin) * std::bit_cast<float>(least);
  selection.threshold = std::max(1u, std::min(least, Magnitude(threshold)));
}

}  // namespace

void internal::RunChunks(const ChunkTerm& term, float* sum, std::uint64_t n, std::uint64_t span,
                         std::uint64_t kept, ChunkFunction function, const void* context) {
  const std::uint64_t chunks = (n + span - 1) / span;
  const std::uint64_t together = std::max<std::uint64_t>(1, kBlock / span);
  const auto run = [&](std::uint64_t first, std::uint64_t last) {
    Selection selection;
    for (std::uint64_t chunk = first; chunk < last; ++chunk) {
      const std::uint64_t at = chunk * span;
      const std::uint64_t count = std::min(span, n - at);
      float* here = sum + at;
      if (term.decay != 1) {
        for (std::uint64_t i = 0; i < count; ++i) here[i] *= term.decay;
      }
      selection.found.indices.clear();
      selection.found.values.clear();
      if (term.added != nullptr) {
        Accumulate({}, term.added + at, nullptr, here, count, selection.threshold,
                   selection.scratch, selection.found);
      } else {
        Find(here, count, selection.threshold, selection.scratch, selection.found);
      }
      Select(here, count, kept, selection);
      function(context, chunk, selection.found);
    }
  };
  // Each of the pool's blocks stands for some chunks.
  const std::uint64_t tasks = (chunks + together - 1) / together;
  ForBlocks(tasks * kBlock, [&](std::uint64_t first, std::uint64_t) {
    const std::uint64_t from = first / kBlock * together;
    run(from, std::min(chunks, from + together));
  });
}

}  // namespace geomx::kernels
