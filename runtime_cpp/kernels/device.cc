#include "kernels/device.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/sums.h"

namespace geomx::kernels {

const DeviceContext& Host() {
  static const std::unique_ptr<Queue> queue = OpenQueue("cpu");
  static const auto memory = std::make_shared<BufferPool>(OpenQueue("cpu"), BufferPool::Kind::kHost, 0);
  static const DeviceContext host{*queue, *memory};
  return host;
}

Device::Device(const std::function<std::unique_ptr<Queue>()>& open,
                   std::uint64_t least_elements, std::size_t most_kept)
    : queue_(open()),
      memory_(std::make_shared<BufferPool>(open(), BufferPool::Kind::kDevice, most_kept)),
      pinned_(std::make_shared<BufferPool>(open(), BufferPool::Kind::kPinned, most_kept)),
      least_(least_elements) {}

std::shared_ptr<std::byte> Device::Upload(const void* values, std::size_t bytes) {
  // From pinned memory: a copy from other memory would block until earlier work is done.
  const std::shared_ptr<std::byte> passing = pinned_->Acquire(bytes);
  if (bytes > 0) std::memcpy(passing.get(), values, bytes);
  std::shared_ptr<std::byte> there = memory_->Acquire(bytes);
  queue_->Copy(there.get(), passing.get(), bytes);
  Keep(passing);
  Keep(there);
  return there;
}

std::shared_ptr<std::byte> Device::Download(const std::byte* there, std::size_t bytes) {
  std::shared_ptr<std::byte> here = pinned_->Acquire(bytes);
  queue_->Copy(here.get(), there, bytes);
  Keep(here);
  return here;
}

std::byte* Resident::BytesAt(const DeviceContext& device, std::size_t bytes) {
  if (pool_.get() != &device.memory || bytes_ < bytes) {
    const std::shared_ptr<std::byte> buffer = device.memory.Acquire(bytes);
    std::vector<std::byte> passing(std::min(bytes_, bytes));
    if (!passing.empty()) {
      pool_->Fetch(passing.data(), buffer_.get(), passing.size());
      device.queue.Copy(buffer.get(), passing.data(), passing.size());
      device.queue.Wait();
    }
    device.queue.Clear(buffer.get() + passing.size(), bytes - passing.size());
    buffer_ = buffer;
    pool_ = device.memory.shared_from_this();
    bytes_ = bytes;
  }
  return buffer_.get();
}

std::vector<std::byte> Resident::Fetch() const {
  std::vector<std::byte> bytes(bytes_);
  if (!bytes.empty()) pool_->Fetch(bytes.data(), buffer_.get(), bytes.size());
  return bytes;
}

double Resident::SumOfSquares() const {
  if (empty()) return 0;
  if (pool_.get() == &Host().memory) {
    return kernels::SumOfSquares(reinterpret_cast<const float*>(buffer_.get()), bytes_ / sizeof(float));
  }
  const std::vector<std::byte> values = Fetch();
  return kernels::SumOfSquares(reinterpret_cast<const float*>(values.data()), values.size() / sizeof(float));
}

}  // namespace geomx::kernels
