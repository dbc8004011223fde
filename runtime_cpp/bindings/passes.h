// Python's names of what a step pushes.
#pragma once

#include <stdexcept>
#include <string>

#include "core/worker_loop.h"

namespace geomx {

inline WorkerLoop::Push PushNamed(const std::string& name) {
  if (name == "nothing") return WorkerLoop::Push::kNothing;
  if (name == "gradients") return WorkerLoop::Push::kGradients;
  if (name == "parameters") return WorkerLoop::Push::kParameters;
  throw std::invalid_argument("a step pushes nothing, gradients or parameters");
}

}  // namespace geomx
