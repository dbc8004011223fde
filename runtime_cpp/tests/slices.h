// Values as they arrive over a network, for tests of codecs: in slices, in any order.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "core/codec.h"
#include "tests/seeds.h"

namespace geomx::check {

// Decodes slices of `step` rows in a random order into `out`, which has all elements: adds to it, or
// replaces it.
inline std::vector<float> DecodeSlices(const CodecChain& chain, const Parts& parts,
                                       std::uint64_t step, std::vector<float> out, bool overwrite,
                                       Random& random) {
  std::vector<std::uint64_t> starts;
  for (std::uint64_t first = 0; first < parts.rows; first += step) starts.push_back(first);
  std::shuffle(starts.begin(), starts.end(), random);
  for (const std::uint64_t first : starts) {
    const std::uint64_t count = std::min(step, parts.rows - first);
    std::vector<std::byte> slice(1);  // payloads need not be aligned
    for (const Part& part : parts.parts) {
      if (!part.IsIn(first)) continue;
      const std::byte* start = part.data + (part.whole ? 0 : part.BytesFor(first));
      slice.insert(slice.end(), start, start + part.BytesFor(count));
    }
    const char* reason = chain.DecodeInto(Bytes(slice).subspan(1), parts.elements, first, count,
                                          parts.rows, overwrite, out.data());
    CHECK_EQ(std::string(reason == nullptr ? "" : reason), "");
  }
  return out;
}

}  // namespace geomx::check
