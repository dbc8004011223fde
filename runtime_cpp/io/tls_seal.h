// The seal of a connection's datagrams (tls.h), made with OpenSSL.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "io/tls.h"

namespace geomx::io {

inline constexpr std::size_t kSealSecretBytes = 32;

// `mine` and `theirs`: the secrets of both directions, kSealSecretBytes each. Each key protects
// `datagrams_per_key` datagrams. Throws std::runtime_error if OpenSSL has no memory.
std::unique_ptr<Seal> MakeSeal(std::string_view mine, std::string_view theirs, std::uint64_t datagrams_per_key);

}  // namespace geomx::io
