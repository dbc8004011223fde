// A part that a plugin brought broke a rule: it raised, answered with something else than it must, or
// took too long. The text names plugin, hook and method, and is meant for whoever runs the experiment.
#pragma once

#include <stdexcept>

namespace geomx {

class PluginFailure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace geomx
