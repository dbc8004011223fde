// The time that a device takes to copy a tensor to the host and back, to encode it and to update
// it; `geomx calibrate` measures every device with it.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/queue.h"

namespace geomx::kernels {

// Wall-clock seconds, one entry per repeat, each from an idle queue until all work is done.
struct Timings {
  std::vector<double> to_host, to_device;  // of the tensor's bytes, through pinned memory
  std::vector<double> encode;              // to half precision, on the device
  std::vector<double> update;              // by momentum, likewise
};

// Times a tensor of `elements` float32 values; an additional first repeat does not count.
Timings TimeQueue(Queue& queue, std::uint64_t elements, std::uint64_t repeats);

}  // namespace geomx::kernels
