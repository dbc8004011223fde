// Shards as Python gives them: (offset, elements, global server, priority).
#pragma once

#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <tuple>
#include <vector>

#include "core/types.h"

namespace geomx {

using ShardTuples =
    std::vector<std::tuple<std::uint64_t, std::uint32_t, std::uint32_t, std::int32_t>>;

inline std::vector<ShardInfo> Shards(const ShardTuples& list) {
  std::vector<ShardInfo> shards;
  for (const auto& [offset, elements, server, priority] : list) {
    shards.push_back({.offset = offset, .elements = elements, .server = server, .priority = priority});
  }
  return shards;
}

}  // namespace geomx
