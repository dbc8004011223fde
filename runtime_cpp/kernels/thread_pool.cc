#include "kernels/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace geomx::kernels {
namespace {

// One array. Each participating thread claims blocks until there are none.
struct Job {
  std::uint64_t n;
  internal::BlockFunction function;
  const void* context;
  std::atomic<std::uint64_t> next{0};
  std::atomic<bool> failed{false};
  std::exception_ptr error{};  // of the first that failed

  void Work() noexcept {
    try {
      for (;;) {
        const std::uint64_t first = next.fetch_add(1, std::memory_order_relaxed) * kBlock;
        if (first >= n) return;
        function(context, first, std::min(kBlock, n - first));
      }
    } catch (...) {
      if (!failed.exchange(true)) error = std::current_exception();
      next.store(Blocks(n), std::memory_order_relaxed);
    }
  }
};

class Pool {
 public:
  // Never destroyed: its threads may sleep until the process ends.
  static Pool& Instance() {
    static Pool* const pool = new Pool;
    return *pool;
  }

  void Resize(unsigned threads) {
    const std::lock_guard busy(busy_);
    if (std::max(threads, 1u) == helpers_.size() + 1) return;
    Stop();
    try {
      while (helpers_.size() + 1 < threads) {
        helpers_.emplace_back([this] { Help(); });
        threads_.store(static_cast<unsigned>(helpers_.size()) + 1, std::memory_order_relaxed);
      }
    } catch (...) {
      Stop();
      throw;
    }
  }

  unsigned threads() const { return threads_.load(std::memory_order_relaxed); }

  // Returns false and does nothing if the threads are busy.
  bool Run(Job& job) {
    const std::unique_lock busy(busy_, std::try_to_lock);
    if (!busy) return false;
    {
      const std::lock_guard lock(mutex_);
      job_ = &job;
      ++jobs_;
    }
    wake_.notify_all();
    job.Work();
    // Waits only for helpers that have begun: one that wakes up later finds no work, and a forked
    // process has none.
    std::unique_lock lock(mutex_);
    job_ = nullptr;
    idle_.wait(lock, [this] { return working_ == 0; });
    return true;
  }

 private:
  void Help() {
    std::unique_lock lock(mutex_);
    std::uint64_t seen = 0;
    for (;;) {
      wake_.wait(lock, [&] { return stopping_ || (job_ != nullptr && jobs_ != seen); });
      if (stopping_) return;
      seen = jobs_;
      Job& job = *job_;
      ++working_;
      lock.unlock();
      job.Work();
      lock.lock();
      if (--working_ == 0) idle_.notify_one();
    }
  }

  void Stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    for (std::thread& helper : helpers_) helper.join();
    helpers_.clear();
    stopping_ = false;
    threads_.store(1, std::memory_order_relaxed);
  }

  std::mutex busy_;   // one array at a time
  std::mutex mutex_;  // guards the members below
  std::condition_variable wake_, idle_;
  Job* job_ = nullptr;
  std::uint64_t jobs_ = 0;
  unsigned working_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> helpers_;     // guarded by busy_
  std::atomic<unsigned> threads_{1};
};

}  // namespace

void SetThreads(unsigned threads) { Pool::Instance().Resize(threads); }

unsigned Threads() { return Pool::Instance().threads(); }

namespace internal {

void RunBlocks(std::uint64_t n, BlockFunction function, const void* context) {
  constexpr std::uint64_t kWorthWaking = 4;  // blocks; a megabyte
  Job job{.n = n, .function = function, .context = context};
  Pool& pool = Pool::Instance();
  if (Blocks(n) < kWorthWaking || pool.threads() == 1 || !pool.Run(job)) job.Work();
  if (job.failed.load()) std::rethrow_exception(job.error);
}

}  // namespace internal
}  // namespace geomx::kernels
