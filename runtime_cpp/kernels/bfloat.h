// bfloat16, the upper half of a float32, rounded to nearest even: the range of float32 with 8 bits of
// precision. Values that round beyond that range become infinite; NaN stays NaN, quiet, with the
// upper bits of its payload.
#pragma once

#include <cstddef>
#include <cstdint>

namespace geomx::kernels {

void NarrowBfloat(const float* in, std::uint16_t* out, std::uint64_t n);

// `in` need not be aligned; `out` is stored into or added to.
void WidenBfloat(const std::byte* in, float* out, std::uint64_t n);
void WidenBfloatAdd(const std::byte* in, float* out, std::uint64_t n);

}  // namespace geomx::kernels
