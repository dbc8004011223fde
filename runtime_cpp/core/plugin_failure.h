// A plugin's part failed: it raised, returned an invalid result, or took too long. The text names
// plugin, hook and method, and is meant for users.
#pragma once

#include <stdexcept>

namespace geomx {

class PluginFailure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Thrown by a codec's `Decode` for bytes that its `Encode` cannot have produced. Where the sender
// is known, that peer has violated the protocol; elsewhere it is handled as a failure of the
// plugin.
class Refusal : public PluginFailure {
 public:
  using PluginFailure::PluginFailure;
};

}  // namespace geomx
