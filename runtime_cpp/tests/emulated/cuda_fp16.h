// The casts of CUDA's header of the same name, by the compiler's half-precision type.
#pragma once

#include <bit>

using __half = _Float16;
inline __half __float2half_rn(float value) { return static_cast<__half>(value); }
inline float __half2float(__half half) { return static_cast<float>(half); }
inline unsigned short __half_as_ushort(__half half) { return std::bit_cast<unsigned short>(half); }
inline __half __ushort_as_half(unsigned short bits) { return std::bit_cast<__half>(bits); }
