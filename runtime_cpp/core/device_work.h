// Work that a node has queued on its device, and the continuations that run when it is done.
//
// Message handlers never wait for a device. A handler queues work, registers a continuation (Then)
// and returns; the node goes on with other messages. The driver takes the markers of such work
// (Take), waits for them on another thread, and resumes the node after each, in order (Resume). A
// node without a device never has any.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <utility>
#include <vector>

#include "core/types.h"
#include "kernels/device.h"

namespace geomx {

class DeviceWork {
 public:
  using Next = std::function<void(Time now)>;
  using Ends = std::vector<std::shared_ptr<kernels::Mark>>;

  // `device` may be null.
  explicit DeviceWork(std::shared_ptr<kernels::Device> device) : device_(std::move(device)) {}

  // Returns the device, or null if there is none or `elements` are too few to be worth the
  // transfer.
  kernels::Device* For(std::uint64_t elements) const {
    return device_ && device_->Suits(elements) ? device_.get() : nullptr;
  }
  // Calls `next` when all work that was queued so far is done. REQUIRES: there is a device.
  void Then(Next next) {
    kernels::Device::End end = device_->Finish();
    ends_.push_back(std::move(end.mark));
    pending_.push_back({std::move(next), std::move(end.memory)});
  }
  bool idle() const { return pending_.empty(); }

  // Markers of the work since the last call, oldest first.
  Ends Take() { return std::exchange(ends_, {}); }
  // Runs the oldest continuation. REQUIRES: its marker was taken and has been waited for.
  void Resume(Time now) {
    const Pending done = std::move(pending_.front());
    pending_.pop_front();
    done.next(now);
  }

 private:
  struct Pending {
    Next next;
    std::vector<std::shared_ptr<const void>> memory;  // in use until then
  };

  std::shared_ptr<kernels::Device> device_;
  Ends ends_;
  std::list<Pending> pending_;
};

}  // namespace geomx
