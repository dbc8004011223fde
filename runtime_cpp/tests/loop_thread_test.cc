// The thread of a loop: its signals and time slices, and those of threads that it starts.
#include "io/loop_thread.h"

#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

#include "core/types.h"
#include "tests/check.h"

namespace geomx::io {
namespace {

// This thread's slice in nanoseconds; 0 where it cannot be chosen: before Linux 6.12, or in a sandbox.
std::int64_t SliceLength() {
  SchedulingAttributes told;
  if (syscall(SYS_sched_getattr, 0, &told, sizeof told, 0) != 0) return 0;
  if (syscall(SYS_sched_setattr, 0, &told, 0) != 0) return 0;
  return static_cast<std::int64_t>(told.runtime);
}

TEST(the_thread_of_a_loop_takes_no_signals_and_has_short_slices) {
  const std::int64_t usual = SliceLength();
  std::int64_t length = 0, started = 0;
  bool blocked = false;
  StartLoopThread([&] {
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    blocked = sigismember(&mask, SIGINT) == 1 && sigismember(&mask, SIGTERM) == 1;
    length = SliceLength();
    std::thread([&] { started = SliceLength(); }).join();
  }).join();
  CHECK(blocked);
  CHECK_EQ(length, usual == 0 ? 0 : kMillisecond / 10);
  CHECK_EQ(started, usual);
  sigset_t here;
  pthread_sigmask(SIG_SETMASK, nullptr, &here);
  CHECK_EQ(sigismember(&here, SIGINT), 0);
}

}  // namespace
}  // namespace geomx::io
