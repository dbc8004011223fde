// Values as signed integers of 8 or 4 bits, with one scale per chunk of an array:
//
//   scale = largest magnitude of the chunk / most,  code = nearest integer to value / scale,
//
// where `most` is 127 or 7, so a value is off by at most half a scale. The difference to the exact
// value is kept as a residual. A chunk whose scale would be subnormal is sent as zeros; one that
// contains NaN or an infinity consists of that, and keeps no residual.
//
// Codes of 4 bits: a chunk of n values takes (n + 1) / 2 bytes. Their low halves hold the first
// (n + 1) / 2 codes, and their high halves the others.
#pragma once

#include <cstddef>
#include <cstdint>

namespace geomx::kernels {

struct Integers {
  unsigned bits = 8;        // 8 or 4
  std::uint64_t chunk = 0;  // values with a common scale; a power of two, 16 to kLargestChunk
};

inline constexpr std::uint64_t kLargestChunk = 4096;

// residual <- residual + added (if not null), encodes it, and subtracts the codes' values. Writes a
// code per value, and a float32 per chunk, of which the last may be shorter, to `scales`.
void EncodeIntegers(const Integers& format, const float* added, float* residual, std::byte* codes,
                    float* scales, std::uint64_t n);

// Stores the values of `n` codes into `out`, or adds them to it. `scales`: float32 at any address.
void DecodeIntegers(const Integers& format, const std::byte* codes, const std::byte* scales,
                    float* out, std::uint64_t n);
void DecodeIntegersAdd(const Integers& format, const std::byte* codes, const std::byte* scales,
                       float* out, std::uint64_t n);

}  // namespace geomx::kernels
