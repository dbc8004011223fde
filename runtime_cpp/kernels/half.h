// Half precision: IEEE binary16, rounded to nearest even. Values beyond its range become infinite;
// NaN stays NaN, quiet, with the upper bits of its payload, as in hardware.
#pragma once

#include <cstddef>
#include <cstdint>

namespace geomx::kernels {

void Narrow(const float* in, std::uint16_t* out, std::uint64_t n);

// `in` need not be aligned; `out` is stored into or added to.
void Widen(const std::byte* in, float* out, std::uint64_t n);
void WidenAdd(const std::byte* in, float* out, std::uint64_t n);

}  // namespace geomx::kernels
