// Where threads without the interpreter lock leave what keeps Python's objects alive.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace geomx {

class Graveyard {
 public:
  // Keeps `held`. Whoever lets go of what this returns, on any thread, buries it.
  template <class Held>
  std::shared_ptr<const void> Keep(Held held) {
    return {new Held(std::move(held)), [this](const void* memory) {
              std::shared_ptr<const void> gone(static_cast<const Held*>(memory));
              const std::lock_guard lock(mutex_);
              buried_.push_back(std::move(gone));
            }};
  }
  // With the interpreter lock.
  void Release() {
    std::vector<std::shared_ptr<const void>> gone;
    const std::lock_guard lock(mutex_);
    gone.swap(buried_);
  }
  static Graveyard& Instance() {
    static Graveyard* const graveyard = new Graveyard;  // outlives the interpreter
    return *graveyard;
  }

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<const void>> buried_;
};

}  // namespace geomx
