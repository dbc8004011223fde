// Access to what the threads of one process serve.
#pragma once

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

namespace geomx::io {

// The number of forks that led to this process since the first call: it differs between parent and child.
inline unsigned Forks() {
  static std::atomic<unsigned> forks{0};
  static const int registered = pthread_atfork(nullptr, nullptr, [] { ++forks; });
  (void)registered;
  return forks.load(std::memory_order_relaxed);
}

// A pointer that only the process which made it may dereference. A fork copies the calling thread alone: in the
// child, a wait for any other thread would not end, and a mutex which that held at the fork stays locked.
template <class T>
class OwnProcess {
 public:
  explicit OwnProcess(std::shared_ptr<T> pointer = nullptr) : pointer_(std::move(pointer)) {}

  bool here() const { return forks_ == Forks(); }
  std::weak_ptr<T> weak() const { return pointer_; }  // for threads of the process

  // Throws std::runtime_error in a forked process.
  T* operator->() const {
    if (!here()) {
      throw std::runtime_error("process " + std::to_string(getpid()) + " was forked from process " +
                               std::to_string(process_) +
                               ", whose store it cannot use: create the store in the process that uses it");
    }
    return pointer_.get();
  }

 private:
  std::shared_ptr<T> pointer_;
  unsigned forks_ = Forks();
  pid_t process_ = getpid();
};

}  // namespace geomx::io
