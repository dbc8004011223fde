// A thread that waits for the work of devices, so that other threads need not.
//
// Watch may be called from any thread. Actions are called on this thread, one at a time, in the order
// of the calls of Watch; the destructor returns when all of them have been called.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "kernels/queue.h"

namespace geomx::io {

class CompletionThread {
 public:
  // Called with the error of the work, or null.
  using Action = std::function<void(std::exception_ptr)>;

  CompletionThread() = default;
  CompletionThread(const CompletionThread&) = delete;
  CompletionThread& operator=(const CompletionThread&) = delete;
  ~CompletionThread();

  // Calls `action` when `mark` has passed.
  void Watch(std::shared_ptr<kernels::Mark> mark, Action action);

 private:
  struct Item {
    std::shared_ptr<kernels::Mark> mark;
    Action action;
  };
  void Run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> items_;
  bool ending_ = false;
  std::thread thread_;  // from the first item on
};

}  // namespace geomx::io
