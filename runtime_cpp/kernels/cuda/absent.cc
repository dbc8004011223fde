// Replaces the GPU's queues in a build without CUDA.
#include "kernels/queue.h"

namespace geomx::kernels::cuda {

std::vector<DeviceInfo> Devices() { return {}; }

std::string Build() { return "no_cuda"; }

std::unique_ptr<Queue> Open(const DeviceInfo&) { return nullptr; }

}  // namespace geomx::kernels::cuda
