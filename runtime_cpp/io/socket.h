// File descriptors, addresses and socket options: what the rest of io/ needs of POSIX sockets.
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "core/types.h"

namespace geomx::io {

// Owns a file descriptor.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd() { Reset(); }
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) {
      Reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void Reset() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }

 private:
  int fd_ = -1;
};

struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

// "host:port", with brackets around an IPv6 address. May ask the name service, so not on the loop's
// thread. Throws std::runtime_error that names what cannot be resolved.
Address Resolve(const std::string& host_port);

std::string Format(const Address& address);

// The address of this end of a connection.
Address LocalAddress(int fd);

// True for an address that means every interface, and so says nothing to others.
bool IsWildcard(const Address& address);

// The host of one address with the port of another.
Address WithPort(Address host, const Address& port);

// One port for connections and datagrams.
struct Port {
  Fd listener;
  Fd datagrams;
  Address address;
};

// `port` 0: any that is free for both. Throws std::runtime_error, also where others than this machine
// could connect and not `beyond`.
Port Bind(const std::string& host, int port, bool beyond = false);

// A connection being made. Nothing if that failed at once (errno). It comes from the host `from`, if
// that names one beyond this machine: who listens on one of several interfaces calls from there too.
Fd Connect(const Address& address, const Address& from);

// Small writes leave at once, and what has been written but not sent stays short, so that the next
// message is chosen late. Congestion control is left alone on this machine's own addresses. The kernel
// gives up after twice `silence` without a sign of the other end, be there data under way or not.
void TuneConnection(int fd, const std::string& congestion, Time silence);

// How far a connection is with what was written to it.
struct Progress {
  double delivered = 0.0;  // bytes/s, lately; 0 if unknown
  double standing = 0.0;   // bytes in queues, here or on the way: more than is in flight without any
};

Progress ProgressOf(int fd);

std::string ErrorText(int error);

}  // namespace geomx::io
