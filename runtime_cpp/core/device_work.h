// Work that a node gave its device, and what the node does when that is done.
//
// No message waits for a device. A handler queues work there, says what comes next (Then) and returns;
// the node goes on with other messages. The driver takes the ends of such work (Take), has them waited
// for outside of the node's thread, and resumes the node after each, in order (Resume). A node without
// a device never has any.
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

  // The device, if there is one and work on so many elements is worth the way there; otherwise null.
  kernels::Device* For(std::uint64_t elements) const {
    return device_ && device_->Suits(elements) ? device_.get() : nullptr;
  }
  // Calls `next` when everything that the device was given so far is done. REQUIRES: there is a device.
  void Then(Next next) {
    kernels::Device::End end = device_->Finish();
    ends_.push_back(std::move(end.mark));
    pending_.push_back({std::move(next), std::move(end.memory)});
  }
  bool idle() const { return pending_.empty(); }

  // Ends of work since the last call, oldest first.
  Ends Take() { return std::exchange(ends_, {}); }
  // Goes on after the oldest end. REQUIRES: it was taken and waited for.
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
