// File descriptors, addresses and socket options: the POSIX sockets of the rest of io/.
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <optional>
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

// "host:port", with brackets around an IPv6 address. May block on the name service, so must not be
// called on the loop's thread. Throws std::runtime_error that names a host that cannot be resolved.
Address Resolve(const std::string& host_port);

// The same for an address whose host is a number. It does not block. Nothing if it is none.
std::optional<Address> ParseAddress(const std::string& host_port);

std::string Format(const Address& address);
// Equal for addresses of one host: an IPv4 address, or the network of an IPv6 address (64 bits).
std::string HostOf(const Address& address);

// The address of this end of a connection.
Address LocalAddress(int fd);

// Returns true for an address that means every interface, which other hosts cannot use.
bool IsWildcard(const Address& address);

// The host of one address with the port of another.
Address WithPort(Address host, const Address& port);

// One port for connections and datagrams.
struct Port {
  Fd listener;
  Fd datagrams;
  Address address;
};

// `port` 0: any port free for both. Throws std::runtime_error, also if `host` is reachable from other
// machines and `beyond` is false.
Port Bind(const std::string& host, int port, bool beyond = false);

// Starts a connection; returns an empty Fd if that failed at once (errno). Connects from the host
// `from` unless that is a loopback address: a node that listens on one of several interfaces also
// calls from it.
Fd Connect(const Address& address, const Address& from);

// Sets a connection's options: small writes leave at once, and the kernel's unsent data is kept
// short, so that the next message is chosen late. Congestion control is not changed for this
// machine's own addresses. The kernel gives up after twice `silence` without a reply from the other
// end, with or without data under way.
void TuneConnection(int fd, const std::string& congestion, Time silence);

// Keeps the kernel's unsent data as short as it can be: what leaves within the time that it may take
// until this process runs again. Call it now and then while the connection is full; it leaves those to
// this machine's own addresses as they are. With less, the kernel often has nothing to send for an
// instant; bbr then takes the connection for one with little to say, never ends its start-up, and
// keeps three times what the path holds under way, in the queues of the network.
void LimitUnsent(int fd);

// The progress of the data written to a connection.
struct Progress {
  double delivered = 0.0;  // bytes/s, lately; 0 if unknown
  double standing = 0.0;   // bytes queued here or in the network, beyond those in flight
};

Progress ProgressOf(int fd);

// The round trip of a connection as the kernel estimates it; 0 if unknown.
Time RoundTripOf(int fd);

// How long the path is busy with what has been written to a connection beyond what keeps it full: what
// waits in queues of the network or here, at the connection's rate. 0 under other congestion controls than BBR,
// as on loopback, and where a rate above 1 Gbit/s makes it short.
Time BusyFor(int fd);

std::string ErrorText(int error);

}  // namespace geomx::io
