// SHA-256 (FIPS 180-4) and HMAC (RFC 2104) with it, for a few hundred bytes at a time.
//
// Builds without OpenSSL need them too.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace geomx::io {

using Hash = std::array<std::byte, 32>;

Hash Sha256(std::string_view bytes);
Hash HmacSha256(std::string_view key, std::string_view bytes);

}  // namespace geomx::io
