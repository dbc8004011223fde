#include "kernels/sparse.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "kernels/loops.h"
#include "kernels/thread_pool.h"

namespace geomx::kernels {
namespace {

constexpr std::uint64_t kFew = 2048;  // entries that a stack has room for

void Append(Entries& entries, const std::uint32_t* indices, const float* values,
            std::uint64_t count) {
  entries.indices.insert(entries.indices.end(), indices, indices + count);
  entries.values.insert(entries.values.end(), values, values + count);
}

// look(first, count, indices, values): a few entries at a time, found per block and then joined.
template <class Look>
void FindInBlocks(std::uint64_t n, FindScratch& scratch, Entries& found, const Look& look) {
  found.indices.clear();
  found.values.clear();
  const auto in_block = [&](std::uint64_t first, std::uint64_t count, Entries& entries) {
    std::uint32_t indices[kFew + kFindRoom];
    float values[kFew + kFindRoom];
    for (std::uint64_t at = first; at < first + count; at += kFew) {
      const std::uint64_t hits = look(at, std::min(kFew, first + count - at), indices, values);
      Append(entries, indices, values, hits);
    }
  };
  if (n <= kBlock || Threads() == 1) {
    for (std::uint64_t first = 0; first < n; first += kBlock) {
      in_block(first, std::min(kBlock, n - first), found);
    }
    return;
  }
  scratch.blocks.resize(Blocks(n));
  ForBlocks(n, [&](std::uint64_t first, std::uint64_t count) {
    Entries& entries = scratch.blocks[first / kBlock];
    entries.indices.clear();
    entries.values.clear();
    in_block(first, count, entries);
  });
  for (const Entries& entries : scratch.blocks) {
    Append(found, entries.indices.data(), entries.values.data(), entries.size());
  }
}

// Copies to `scratch` the magnitudes of `values` that share their upper bits (the exponent, and
// some of the mantissa) with the one of rank `rank`, and sets `rank` to its rank among them.
template <int kBits>
void SharingUpperBits(const float* values, std::uint64_t n, std::uint64_t& rank,
                      std::vector<std::uint32_t>& scratch) {
  constexpr int kShift = 31 - kBits;
  constexpr std::size_t kBuckets = std::size_t{1} << kBits;
  // Neighbours often have the same upper bits, and consecutive increments of one counter are slow.
  std::uint32_t even[kBuckets] = {}, odd[kBuckets] = {};
  for (std::uint64_t i = 0; i + 2 <= n; i += 2) {
    ++even[Magnitude(values[i]) >> kShift];
    ++odd[Magnitude(values[i + 1]) >> kShift];
  }
  if (n % 2 != 0) ++even[Magnitude(values[n - 1]) >> kShift];
  std::size_t bucket = kBuckets - 1;
  std::uint64_t count;
  for (; (count = std::uint64_t{even[bucket]} + odd[bucket]) <= rank; --bucket) rank -= count;
  scratch.resize(count + 1);  // and one to overwrite
  std::size_t kept = 0;
  for (std::uint64_t i = 0; i < n; ++i) {
    const std::uint32_t magnitude = Magnitude(values[i]);
    scratch[kept] = magnitude;
    kept += magnitude >> kShift == bucket;
  }
  scratch.resize(kept);
}

}  // namespace

void Accumulate(const Accumulation& accumulation, const float* term, float* velocity, float* sum,
                std::uint64_t n, std::uint32_t threshold, FindScratch& scratch, Entries& found) {
  const Loops& loops = TheLoops();
  FindInBlocks(n, scratch, found,
               [&](std::uint64_t first, std::uint64_t count, std::uint32_t* indices,
                   float* values) {
                 return loops.accumulate(accumulation, term + first,
                                         velocity == nullptr ? nullptr : velocity + first,
                                         sum + first, count, threshold,
                                         static_cast<std::uint32_t>(first), indices, values);
               });
}

void Find(const float* values, std::uint64_t n, std::uint32_t threshold, FindScratch& scratch,
          Entries& found) {
  const Loops& loops = TheLoops();
  FindInBlocks(n, scratch, found,
               [&](std::uint64_t first, std::uint64_t count, std::uint32_t* indices,
                   float* large) {
                 return loops.find(values + first, count, threshold,
                                   static_cast<std::uint32_t>(first), indices, large);
               });
}

std::uint32_t MagnitudeOfRank(const float* values, std::uint64_t n, std::uint64_t rank,
                              std::vector<std::uint32_t>& scratch) {
  if (n <= 4096) {
    SharingUpperBits<9>(values, n, rank, scratch);
  } else {
    SharingUpperBits<12>(values, n, rank, scratch);
  }
  const auto at = scratch.begin() + static_cast<std::ptrdiff_t>(rank);
  std::nth_element(scratch.begin(), at, scratch.end(), std::greater<>());
  return *at;
}

void KeepLargest(Entries& entries, std::uint64_t count, std::vector<std::uint32_t>& scratch) {
  const Loops& loops = TheLoops();
  const std::uint64_t n = entries.size();
  std::uint32_t* indices = entries.indices.data();
  float* values = entries.values.data();
  const std::uint32_t least = MagnitudeOfRank(values, n, count - 1, scratch);
  std::uint64_t reach = least == 0 ? n : 0;  // how many reach the last kept magnitude
  for (std::uint64_t first = 0; reach < n && first < n; first += kFew) {
    std::uint32_t places[kFew + kFindRoom];
    float large[kFew + kFindRoom];
    const std::uint64_t hits = loops.find(values + first, std::min(kFew, n - first), least,
                                          static_cast<std::uint32_t>(first), places, large);
    for (std::uint64_t hit = 0; hit < hits; ++hit, ++reach) {
      indices[reach] = indices[places[hit]];
      values[reach] = large[hit];
    }
  }
  if (reach > count) {  // several are equal to it: keep the first of those
    std::uint64_t equal = count;
    for (std::uint64_t i = 0; i < reach; ++i) equal -= Magnitude(values[i]) > least;
    std::uint64_t kept = 0;
    for (std::uint64_t i = 0; i < reach; ++i) {
      const bool equals = Magnitude(values[i]) == least;
      if (equals && equal == 0) continue;
      equal -= equals;
      indices[kept] = indices[i];
      values[kept++] = values[i];
    }
  }
  entries.indices.resize(count);
  entries.values.resize(count);
}

void Gather(const float* from, const std::uint32_t* rows, std::uint64_t count, float* out) {
  for (std::uint64_t i = 0; i < count; ++i) out[i] = from[rows[i]];
}

void Scatter(const float* values, const std::uint32_t* rows, std::uint64_t count, float* to) {
  for (std::uint64_t i = 0; i < count; ++i) to[rows[i]] = values[i];
}

bool ScatterAdd(const std::byte* values, const std::byte* indices, std::uint64_t count,
                std::uint64_t elements, float* out) {
  if (!TheLoops().all_below(indices, count, elements)) return false;
  for (std::uint64_t i = 0; i < count; ++i) {
    std::uint32_t index;
    float value;
    std::memcpy(&index, indices + i * sizeof index, sizeof index);
    std::memcpy(&value, values + i * sizeof value, sizeof value);
    out[index] += value;
  }
  return true;
}

}  // namespace geomx::kernels
