// The thread of a loop: it takes no signals, and runs soon after it wakes.
#pragma once

#include <cstdint>
#include <functional>
#include <thread>

namespace geomx::io {

// What sched_setattr(2) takes and sched_getattr(2) tells, its first version: the C library declares it
// from glibc 2.41 on only, and the kernel's header conflicts with older ones.
struct SchedulingAttributes {
  std::uint32_t size = sizeof(SchedulingAttributes);
  std::uint32_t policy = 0;
  std::uint64_t flags = 0;
  std::int32_t nice = 0;
  std::uint32_t priority = 0;
  std::uint64_t runtime = 0;  // of a thread with the usual policy: its time slice, in nanoseconds
  std::uint64_t deadline = 0;
  std::uint64_t period = 0;
};

// Starts a thread that runs `body`.
std::thread StartLoopThread(std::function<void()> body);

}  // namespace geomx::io
