// A part that a plugin brought broke a rule: it raised, answered with something else than it must, or
// took too long. The text names plugin, hook and method, and is meant for users.
#pragma once

#include <stdexcept>

namespace geomx {

class PluginFailure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A codec's `Decode` says that these bytes are nothing that its `Encode` makes. Where it is known which
// peer sent them, that peer broke the protocol; elsewhere it is a failure like any other.
class Refusal : public PluginFailure {
 public:
  using PluginFailure::PluginFailure;
};

}  // namespace geomx
