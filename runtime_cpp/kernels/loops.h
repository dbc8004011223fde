// The inner loops of the kernels, once for every level of vector instructions. Private to this
// folder: the public headers beside it cut arrays into blocks and call these functions with one
// block at a time, on any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cosines.h"
#include "kernels/integers.h"
#include "kernels/level.h"
#include "kernels/sparse.h"
#include "kernels/steps.h"
#include "kernels/sums.h"
#include "kernels/ternary.h"

namespace geomx::kernels {

// What cosines.h multiplies by; `first` and `others` are scales, by the size of a transform.
struct CosineFactors {
  float halves[kLongestSide];  // 1 / (2 cos(pi (i + 1/2) / n)) at n / 2 + i
  float first[kLongestSide + 1], others[kLongestSide + 1];
};

struct Loops {
  // half.h
  void (*narrow)(const float* in, std::uint16_t* out, std::uint64_t n);
  void (*widen)(const std::byte* in, float* out, std::uint64_t n);
  void (*widen_add)(const std::byte* in, float* out, std::uint64_t n);

  // bfloat.h
  void (*narrow_bfloat)(const float* in, std::uint16_t* out, std::uint64_t n);
  void (*widen_bfloat)(const std::byte* in, float* out, std::uint64_t n);
  void (*widen_bfloat_add)(const std::byte* in, float* out, std::uint64_t n);

  // cosines.h
  void (*cosines)(const CosineFactors& factors, const Tile& tile, float* values);
  void (*cosines_back)(const CosineFactors& factors, const Tile& tile, float* values);

  // integers.h; blocks of whole chunks
  void (*encode_integers)(const Integers& format, const float* added, float* residual,
                          std::byte* codes, float* scales, std::uint64_t n);
  void (*decode_integers)(const Integers& format, const std::byte* codes, const std::byte* scales,
                          float* out, std::uint64_t n);
  void (*decode_integers_add)(const Integers& format, const std::byte* codes,
                              const std::byte* scales, float* out, std::uint64_t n);

  // sums.h; 1 to 4 terms, at most kRun elements for the sums over elements
  void (*add)(float* sum, const float* const* terms, std::size_t count, std::uint64_t n);
  void (*add_bytes)(const std::byte* in, float* out, std::uint64_t n);
  double (*squares)(const float* values, std::uint64_t n);
  double (*magnitudes)(const float* values, std::uint64_t n);
  bool (*finite)(const float* values, std::uint64_t n);  // any number of elements
  Norms (*norms)(const float* a, const float* b, std::uint64_t n);

  // sparse.h; `first` is the index of entry 0. The output needs room for n + kFindRoom entries.
  // Returns how many were found.
  std::uint64_t (*accumulate)(const Accumulation& accumulation, const float* term, float* velocity,
                              float* sum, std::uint64_t n, std::uint32_t threshold,
                              std::uint32_t first, std::uint32_t* indices, float* values);
  std::uint64_t (*find)(const float* values, std::uint64_t n, std::uint32_t threshold,
                        std::uint32_t first, std::uint32_t* indices, float* found);
  bool (*all_below)(const std::byte* indices, std::uint64_t n, std::uint64_t bound);

  // ternary.h
  void (*quantise)(const Ternary& ternary, const float* added, float* residual, std::byte* codes,
                   std::uint64_t n);
  void (*worth)(float scale, const std::byte* codes, float* out, std::uint64_t n);
  void (*worth_add)(float scale, const std::byte* codes, float* out, std::uint64_t n);

  // steps.h
  decltype(&Sgd) sgd;
  decltype(&Momentum) momentum;
  decltype(&Nesterov) nesterov;
  decltype(&Adam) adam;
  decltype(&AdamW) adamw;
  decltype(&RmsPropPlain) rmsprop;
  decltype(&RmsPropCentered) rmsprop_centered;
  decltype(&AdaGrad) adagrad;
  decltype(&DcAsgd) dcasgd;
};

inline constexpr std::uint64_t kFindRoom = 16;

// The loops of the current level.
const Loops& TheLoops();

}  // namespace geomx::kernels
