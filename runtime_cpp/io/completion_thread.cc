#include "io/completion_thread.h"

#include <utility>

namespace geomx::io {

CompletionThread::~CompletionThread() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void CompletionThread::Watch(std::shared_ptr<kernels::Mark> mark, Action action) {
  const std::lock_guard lock(mutex_);
  items_.push_back({std::move(mark), std::move(action)});
  if (!thread_.joinable()) thread_ = std::thread(&CompletionThread::Run, this);
  changed_.notify_one();
}

void CompletionThread::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ending_ || !items_.empty(); });
    if (items_.empty()) return;
    Item item = std::move(items_.front());
    items_.pop_front();
    lock.unlock();
    std::exception_ptr failure;
    try {
      item.mark->Wait();
    } catch (...) {
      failure = std::current_exception();
    }
    item.action(failure);
    item = {};  // releases its resources before the next wait
    lock.lock();
  }
}

}  // namespace geomx::io
