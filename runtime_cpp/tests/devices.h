// The devices for tests of kernels: this machine's, and one that runs the GPU's sources on the
// processor (emulated/).
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "kernels/queue.h"

namespace geomx {
namespace kernels::emulated {

std::vector<DeviceInfo> Devices();
std::unique_ptr<Queue> Open(const DeviceInfo& device);

}  // namespace kernels::emulated

namespace check {

using OpenDevice = std::function<std::unique_ptr<kernels::Queue>()>;

inline std::vector<OpenDevice> Devices() {
  std::vector<OpenDevice> devices;
  for (const kernels::DeviceInfo& device : kernels::Devices()) {
    devices.push_back([name = device.name] { return kernels::OpenQueue(name); });
  }
  devices.push_back([] { return kernels::emulated::Open(kernels::emulated::Devices().at(0)); });
  return devices;
}

}  // namespace check
}  // namespace geomx
