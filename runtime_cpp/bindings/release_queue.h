// Holds Python objects that native threads have released until a thread with the interpreter lock
// can destroy them. Keep may be called, and its result dropped, on any thread; Release only with
// that lock.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace geomx {

class ReleaseQueue {
 public:
  // Keeps `kept` until the returned pointer is dropped and Release is called after that.
  template <class Kept>
  std::shared_ptr<const void> Keep(Kept kept) {
    return {new Kept(std::move(kept)), [this](const void* memory) {
              std::shared_ptr<const void> gone(static_cast<const Kept*>(memory));
              const std::lock_guard lock(mutex_);
              released_.push_back(std::move(gone));
            }};
  }
  void Release() {
    std::vector<std::shared_ptr<const void>> gone;
    const std::lock_guard lock(mutex_);
    gone.swap(released_);
  }
  static ReleaseQueue& Instance() {
    static ReleaseQueue* const queue = new ReleaseQueue;  // outlives the interpreter
    return *queue;
  }

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<const void>> released_;
};

}  // namespace geomx
