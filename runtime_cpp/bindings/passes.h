// Python's names of what a step pushes.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/worker_loop.h"

namespace geomx {

inline WorkerLoop::Push PushNamed(const std::string& name) {
  if (name == "nothing") return WorkerLoop::Push::kNothing;
  if (name == "gradients") return WorkerLoop::Push::kGradients;
  if (name == "parameters") return WorkerLoop::Push::kParameters;
  throw std::invalid_argument("a step pushes nothing, gradients or parameters");
}

// The keys that a step pushes, and those whose answers the next step needs.
using KeyLists = std::pair<std::vector<Key>, std::vector<Key>>;

inline std::optional<WorkerLoop::Part> PartOf(std::optional<KeyLists> lists) {
  if (!lists) return std::nullopt;
  return WorkerLoop::Part{std::move(lists->first), std::move(lists->second)};
}

}  // namespace geomx
