#include "io/loop_thread.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <utility>

#include "core/types.h"

namespace geomx::io {
namespace {

constexpr Time kSlice = kMillisecond / 10;  // the shortest that Linux grants
constexpr std::uint64_t kResetOnFork = 1;   // SCHED_FLAG_RESET_ON_FORK: not for threads started by this one

// Asks for short time slices. When a thread wakes, Linux 6.12 and later let it interrupt one with longer
// slices, and give it no more time in all. Without that, what a script pushes while scripts compute on all
// cores would leave at the end of a slice, which lasts milliseconds. Where it is refused, nothing changes.
void AskForShortSlices() {
  // A process that was started under another scheduling policy (real-time, batch) keeps it.
  if (sched_getscheduler(0) != SCHED_OTHER) return;
  const SchedulingAttributes wanted{.policy = SCHED_OTHER,
                                    .flags = kResetOnFork,
                                    .nice = getpriority(PRIO_PROCESS, 0),
                                    .runtime = static_cast<std::uint64_t>(kSlice)};
  syscall(SYS_sched_setattr, 0, &wanted, 0);
}

}  // namespace

std::thread StartLoopThread(std::function<void()> body) {
  // The application's threads handle signals: a new thread inherits the mask.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread([body = std::move(body)] {
    pthread_setname_np(pthread_self(), "geomx-loop");
    AskForShortSlices();
    body();
  });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace geomx::io
