// A worker's value that lies on a device, on its way to the wire.
//
// Codecs that have kernels for the device encode there; what they leave crosses the bus, piece by
// piece, while the next value is being encoded and the pieces before are being sent. Nobody waits: the
// node hears when rows are there, as it hears of a message.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "core/codec.h"
#include "core/types.h"
#include "kernels/device.h"

namespace geomx {

class DeviceValue {
 public:
  // `parts` in the host's memory, of which the first `rows` are there, with all whole parts. Called
  // on the node's thread, in order, the last time with all rows.
  using Arrival =
      std::function<void(const std::shared_ptr<Parts>& parts, std::uint64_t rows, Time now)>;
  using Encode = std::function<void(kernels::DeviceContext& device, Parts& parts)>;

  virtual ~DeviceValue() = default;

  // Calls `encode` where the value is complete, to turn `parts`, which lie there, into others, and
  // brings those to the host.
  virtual void Fetch(Parts parts, const Encode& encode, Arrival arrival) = 0;
};

}  // namespace geomx
