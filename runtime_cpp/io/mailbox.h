// A queue of application threads' tasks for the loop's thread, with an eventfd that wakes it.
#pragma once

#include <sys/eventfd.h>

#include <cerrno>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <utility>
#include <vector>

#include "io/socket.h"

namespace geomx::io {

class Mailbox {
 public:
  using Task = std::function<void()>;

  // Throws std::runtime_error if there is no descriptor left.
  Mailbox() : wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    if (!wake_) throw std::runtime_error("cannot make an eventfd: " + ErrorText(errno));
  }

  // Any thread. Returns false and drops the task once the mailbox is closed.
  bool Post(Task task) {
    std::lock_guard lock(mutex_);
    if (closed_) return false;
    tasks_.push_back(std::move(task));
    if (tasks_.size() == 1) eventfd_write(wake_.get(), 1);
    return true;
  }

  // The loop's thread: readable when there are tasks.
  int fd() const { return wake_.get(); }
  std::vector<Task> Take() {
    std::lock_guard lock(mutex_);
    eventfd_t count = 0;
    if (!tasks_.empty()) eventfd_read(wake_.get(), &count);
    return std::exchange(tasks_, {});
  }
  // Takes all tasks and refuses later ones.
  std::vector<Task> Close() {
    std::lock_guard lock(mutex_);
    closed_ = true;
    return std::exchange(tasks_, {});
  }

 private:
  Fd wake_;
  std::mutex mutex_;
  std::vector<Task> tasks_;
  bool closed_ = false;
};

}  // namespace geomx::io
