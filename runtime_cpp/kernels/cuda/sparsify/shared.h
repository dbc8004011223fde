// The state that the kernels of one sparsification share. Like the other headers of this folder,
// part of sparsify.cu only.
#pragma once

#include "kernels/cuda/elements.h"
#include "kernels/cuda/twins.h"

namespace geomx::kernels::GEOMX_CUDA {
namespace {

constexpr unsigned kSteps = 4;                           // that a block takes through a tile
constexpr std::uint64_t kStepElements = 4 * kThreads;    // four a thread
constexpr std::uint64_t kTile = kSteps * kStepElements;  // 4096
constexpr unsigned kGroup = 32;  // tiles that are counted together
constexpr std::uint64_t kNoBound = ~std::uint64_t{0};

// A rank is found digit by digit of the magnitude, from the top: 11, 10 and 10 bits.
struct Digit {
  unsigned shift, bits;
};
constexpr Digit kDigits[] = {{20, 11}, {10, 10}, {0, 10}};
constexpr unsigned kBuckets = 1u << 11;

// Parts of the pass's progress, which one atomic operation advances.
constexpr unsigned kTilesAt = 40;  // the bit from which on tiles are counted
constexpr std::uint64_t kFound = (std::uint64_t{1} << kTilesAt) - 1;

// Results of kernels for later ones.
struct Control {
  float scale;
  std::uint32_t threshold;
  unsigned ended;               // blocks of the running kernel
  unsigned long long progress;  // of the pass: entries that reached the threshold, and tiles
  // Selecting: the magnitude of rank `rank` among `items`.
  std::uint32_t selecting;
  std::uint32_t prefix;  // its digits so far
  std::uint64_t items, rank;
  std::uint32_t everything;  // the items are the whole sum
  // The choice: larger than `least`, and of its equals the first `ties`.
  std::uint32_t least;
  std::uint64_t ties, kept;
  // Filling up: `missing` entries, from `start` on around the array for `reach` entries.
  std::uint64_t start, reach;
};

struct Tile {
  std::uint64_t start;                         // among the collected entries
  std::uint32_t count;                         // of the collected entries
  std::uint32_t greater_before, equal_before;  // in earlier tiles of the group
};

struct Group {
  std::uint64_t greater, equal;                // in all of its tiles
  std::uint64_t greater_before, equal_before;  // in earlier groups
};

// The tensor and its buffers.
struct Tensor {
  const float* term;
  float* velocity;  // may be null
  float* sum;
  std::uint64_t n, rows;
  float momentum;
  bool masking, exact;
};

struct Aside {
  std::uint32_t* indices;
  float* values;
  std::uint64_t room;
};

struct Rows {
  std::uint32_t* indices;
  float* values;
};

__device__ inline float StepOf(const Tensor& tensor, float scale, std::uint64_t i) {
  return tensor.velocity != nullptr
             ? MovedBy(scale, tensor.momentum, tensor.term[i], tensor.velocity[i])
             : scale * tensor.term[i];
}

__device__ inline void TakeOut(const Tensor& tensor, std::uint64_t i) {
  tensor.sum[i] = 0;
  if (tensor.velocity != nullptr && tensor.masking) tensor.velocity[i] = 0;
}

}  // namespace
}  // namespace geomx::kernels::GEOMX_CUDA
