// What a device takes to move a tensor to the host and back, to encode and to update one: what `geomx calibrate`
// asks the queue of every device.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/queue.h"

namespace geomx::kernels {

// Seconds by the clock, one of each for every repeat, each from an idle queue until all is done.
struct Timings {
  std::vector<double> to_host, to_device;  // of the tensor's bytes, through pinned memory
  std::vector<double> encode;              // to half precision, on the device
  std::vector<double> update;              // by momentum, likewise
};

// Of a tensor of `elements` float32 values; a first repeat does not count.
Timings TimeQueue(Queue& queue, std::uint64_t elements, std::uint64_t repeats);

}  // namespace geomx::kernels
