// A worker's value that lies on a device, on its way to the wire.
//
// Codecs with device kernels encode there; the result is copied to the host in pieces, while the
// next value is being encoded and earlier pieces are being sent. The node never waits: it is called
// back when rows have arrived, as for a message.
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
  // `parts` in host memory, of which the first `rows` rows and all whole parts have arrived. Called
  // on the node's thread, in order; the last call has all rows.
  using Arrival =
      std::function<void(const std::shared_ptr<Parts>& parts, std::uint64_t rows, Time now)>;
  using Encode = std::function<void(kernels::DeviceContext& device, Parts& parts)>;

  virtual ~DeviceValue() = default;

  // Calls `encode` once the value is complete on the device, with `parts` that point to it, and
  // copies the parts that `encode` leaves to the host.
  virtual void Fetch(Parts parts, const Encode& encode, Arrival arrival) = 0;
};

}  // namespace geomx
