// Python's names of what a step pushes.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/worker_loop.h"

namespace geomx {

// Whether something is pushed. The core does not distinguish gradients from parameters.
inline bool PushNamed(const std::string& name) {
  if (name == "nothing") return false;
  if (name == "gradients" || name == "parameters") return true;
  throw std::invalid_argument("a step pushes nothing, gradients or parameters");
}

// The keys that a step pushes, and those whose answers the next step needs.
using KeyLists = std::pair<std::vector<Key>, std::vector<Key>>;

inline std::optional<WorkerLoop::Part> PartOf(std::optional<KeyLists> lists) {
  if (!lists) return std::nullopt;
  return WorkerLoop::Part{std::move(lists->first), std::move(lists->second)};
}

}  // namespace geomx
