// One thread's wait: for readiness of file descriptors, until a moment on the monotonic clock.
//
// Level-triggered epoll, and a timerfd because epoll's own timeout counts in milliseconds. Every
// descriptor has an id that its owner chose and never reuses, so an event of a closed descriptor is
// not mistaken for another's.
#pragma once

#include <sys/epoll.h>
#include <sys/timerfd.h>

#include <array>
#include <cerrno>
#include <span>
#include <stdexcept>
#include <string>

#include "core/types.h"
#include "io/clock.h"
#include "io/socket.h"

namespace geomx::io {

class Poller {
 public:
  Poller()
      : epoll_(epoll_create1(EPOLL_CLOEXEC)),
        timer_(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)) {
    if (!epoll_ || !timer_) Fail("cannot make an epoll and a timer");
    Add(timer_.get(), kTimer, EPOLLIN);
  }

  // Add and Change throw std::runtime_error if the kernel refuses.
  void Add(int fd, std::uint64_t id, std::uint32_t events) { Control(EPOLL_CTL_ADD, fd, id, events); }
  void Change(int fd, std::uint64_t id, std::uint32_t events) {
    Control(EPOLL_CTL_MOD, fd, id, events);
  }
  void Remove(int fd) { epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr); }

  // Sleeps until a descriptor is ready or `until` has passed. The result is valid until the next
  // call.
  std::span<const epoll_event> Wait(Time until) {
    if (until != armed_) Arm(until);
    int count = epoll_wait(epoll_.get(), events_.data(), static_cast<int>(events_.size()), -1);
    if (count < 0) {
      if (errno != EINTR) Fail("cannot wait for sockets");
      count = 0;
    }
    int kept = 0;
    for (int i = 0; i < count; ++i) {
      if (events_[i].data.u64 == kTimer) {
        armed_ = kUnarmed;  // it has fired: the next wait must arm it again
        std::uint64_t expirations = 0;
        (void)!read(timer_.get(), &expirations, sizeof expirations);
      } else {
        events_[kept++] = events_[i];
      }
    }
    return {events_.data(), static_cast<std::size_t>(kept)};
  }

 private:
  static constexpr std::uint64_t kTimer = UINT64_MAX;
  static constexpr Time kUnarmed = -1;  // no time to wait until, as 0 is one

  void Control(int operation, int fd, std::uint64_t id, std::uint32_t events) {
    epoll_event event{};
    event.events = events;
    event.data.u64 = id;
    if (epoll_ctl(epoll_.get(), operation, fd, &event) == 0) return;
    Fail(errno == ENOSPC ? "cannot watch a socket (see the system's fs.epoll.max_user_watches)"
                         : "cannot watch a socket");
  }

  [[noreturn]] static void Fail(const char* what) {
    throw std::runtime_error(std::string(what) + ": " + ErrorText(errno));
  }

  void Arm(Time until) {
    itimerspec when{};
    if (until != kNever) {
      const Time at = until > clock_ahead ? until - clock_ahead : 1;  // zero would disarm it
      when.it_value.tv_sec = at / kSecond;
      when.it_value.tv_nsec = at % kSecond;
    }
    if (timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &when, nullptr) != 0) {
      Fail("cannot set a timer");
    }
    armed_ = until;
  }

  Fd epoll_, timer_;
  Time armed_ = kNever;
  std::array<epoll_event, 256> events_;
};

}  // namespace geomx::io
