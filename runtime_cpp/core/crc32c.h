// CRC-32C (Castagnoli), as iSCSI and ext4 use it: RFC 3720, appendix B.4.
#pragma once

#include <cstdint>

#include "core/payload.h"

namespace geomx {

// The CRC of `bytes`, appended to data whose CRC is `before`.
std::uint32_t Crc32c(Bytes bytes, std::uint32_t before = 0);

}  // namespace geomx
