#include "io/socket.h"

#include <linux/inet_diag.h>
#include <linux/sockios.h>
#include <linux/tcp.h>  // tcp_info with the delivery rate
#include <netdb.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/types.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <system_error>

#include "io/clock.h"
#include "net/hold.h"

namespace geomx::io {
namespace {

constexpr int kUnsentBytes = 16 * 1024;         // TCP_NOTSENT_LOWAT, at least
constexpr int kMostUnsentBytes = 256 * 1024;
constexpr double kUnsentSeconds = 3e-3;
constexpr double kGainUnit = 256.0;             // of tcp_bbr_info
constexpr int kDatagramBuffer = 8 * 1024 * 1024;
constexpr int kBacklog = 1024;
constexpr int kBindTries = 64;                  // for a port that is free in both families

struct FreeInfo {
  void operator()(addrinfo* info) const { freeaddrinfo(info); }
};

// What the kernel knows of the data written to a connection.
struct Written {
  tcp_info info{};
  int unacknowledged = 0;  // bytes, sent or not
};

std::optional<Written> WrittenTo(int fd) {
  Written written;
  socklen_t length = sizeof written.info;
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &written.info, &length) != 0) return std::nullopt;
  if (ioctl(fd, SIOCOUTQ, &written.unacknowledged) != 0) return std::nullopt;
  return written;
}

Address LookupHost(const std::string& host, const std::string& port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | flags;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
  const std::unique_ptr<addrinfo, FreeInfo> owner(found);
  if (error != 0 || found == nullptr) {
    throw std::runtime_error("cannot resolve " + host + ":" + port + ": " + gai_strerror(error));
  }
  Address address;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  address.length = found->ai_addrlen;
  return address;
}

Address Lookup(const std::string& host_port, int flags) {
  const std::size_t colon = host_port.rfind(':');
  if (colon == std::string::npos || colon + 1 == host_port.size()) {
    throw std::runtime_error("'" + host_port + "' is not an address of the form host:port");
  }
  std::string host = host_port.substr(0, colon);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  return LookupHost(host, host_port.substr(colon + 1), flags);
}

void SetOption(int fd, int level, int name, int value) {
  setsockopt(fd, level, name, &value, sizeof value);
}

Fd BindSocket(const Address& address, int type) {
  Fd fd(socket(address.storage.ss_family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return fd;
  if (type == SOCK_STREAM) SetOption(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (bind(fd.get(), address.get(), address.length) != 0) return Fd();
  return fd;
}

// Binds to `host` with any port, which the kernel chooses on connect.
void CallFrom(int fd, Address host) {
  SetOption(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
  host = WithPort(host, Address{});
  (void)!bind(fd, host.get(), host.length);  // on failure the system chooses
}

bool IsLoopback(const Address& address) {
  if (address.storage.ss_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&address.storage);
    return (ntohl(v4->sin_addr.s_addr) >> 24) == 127;
  }
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&address.storage);
  return IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

}  // namespace

Address Resolve(const std::string& host_port) { return Lookup(host_port, 0); }

std::optional<Address> ParseAddress(const std::string& host_port) {
  try {
    return Lookup(host_port, AI_NUMERICHOST);
  } catch (const std::runtime_error&) {
    return std::nullopt;
  }
}

std::string Format(const Address& address) {
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  if (getnameinfo(address.get(), address.length, host, sizeof host, port, sizeof port,
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "unknown address";
  }
  const bool v6 = address.storage.ss_family == AF_INET6;
  return (v6 ? "[" + std::string(host) + "]" : std::string(host)) + ":" + port;
}

std::string HostOf(const Address& address) {
  if (address.storage.ss_family == AF_INET) {
    const auto& host = reinterpret_cast<const sockaddr_in*>(&address.storage)->sin_addr;
    return {reinterpret_cast<const char*>(&host), sizeof host};
  }
  const auto& host = reinterpret_cast<const sockaddr_in6*>(&address.storage)->sin6_addr;
  const auto* bytes = reinterpret_cast<const char*>(&host);
  if (IN6_IS_ADDR_V4MAPPED(&host)) return {bytes + sizeof host - sizeof(in_addr), sizeof(in_addr)};
  return {bytes, 8};
}

Address LocalAddress(int fd) {
  Address address;
  address.length = sizeof address.storage;
  getsockname(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.length);
  return address;
}

bool IsWildcard(const Address& address) {
  if (address.storage.ss_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in*>(&address.storage)->sin_addr.s_addr == INADDR_ANY;
  }
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&address.storage);
  return IN6_IS_ADDR_UNSPECIFIED(&v6->sin6_addr);
}

Address WithPort(Address host, const Address& port) {
  // The port is at the same place in both families' addresses.
  static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));
  reinterpret_cast<sockaddr_in*>(&host.storage)->sin_port =
      reinterpret_cast<const sockaddr_in*>(&port.storage)->sin_port;
  return host;
}

Port Bind(const std::string& host, int port, bool beyond) {
  const Address wanted = LookupHost(host, std::to_string(port), AI_PASSIVE);
  if (!beyond && !IsLoopback(wanted)) {
    throw std::runtime_error(
        "cannot listen on " + host + " without TLS: others than this machine could read and change what "
        "is sent. Give certificates (`geomx certs` makes them), or choose insecure");
  }
  int error = 0;
  for (int tries = 0; tries < (port == 0 ? kBindTries : 1); ++tries) {
    Port bound;
    bound.listener = BindSocket(wanted, SOCK_STREAM);
    if (bound.listener) {
      bound.address = LocalAddress(bound.listener.get());
      bound.datagrams = BindSocket(bound.address, SOCK_DGRAM);
    }
    if (!bound.listener || !bound.datagrams || listen(bound.listener.get(), kBacklog) != 0) {
      error = errno;
      continue;
    }
    SetOption(bound.datagrams.get(), SOL_SOCKET, SO_RCVBUF, kDatagramBuffer);
    SetOption(bound.datagrams.get(), SOL_SOCKET, SO_SNDBUF, kDatagramBuffer);
    return bound;
  }
  const char* remedy = error == EADDRINUSE ? "; choose another port, or end what has this one" : "";
  throw std::runtime_error("cannot listen on " + host + ":" + std::to_string(port) + ": " +
                           ErrorText(error) + remedy);
}

Fd Connect(const Address& address, const Address& from) {
  Fd fd(socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return fd;
  const bool same_family = from.storage.ss_family == address.storage.ss_family;
  if (same_family && !IsWildcard(from) && !IsLoopback(from)) CallFrom(fd.get(), from);
  if (connect(fd.get(), address.get(), address.length) != 0 && errno != EINPROGRESS) {
    const int error = errno;
    fd.Reset();
    errno = error;
  }
  return fd;
}

void TuneConnection(int fd, const std::string& congestion, Time silence) {
  SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, kUnsentBytes);
  if (silence != kNever) {
    const auto seconds = static_cast<int>(std::max<Time>(1, silence / kSecond));
    SetOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 2000 * seconds);
    SetOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    SetOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, seconds);
    SetOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, seconds);
  }
  const bool local = IsLoopback(LocalAddress(fd));
  const std::string& name = local ? "reno" : congestion;  // no congestion to control; avoids pacing
  if (!name.empty()) {
    setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(), static_cast<socklen_t>(name.size()));
  }
}

void LimitUnsent(int fd) {
  tcp_info info{};
  socklen_t length = sizeof info;
  if (IsLoopback(LocalAddress(fd))) return;
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return;
  const double wanted = kUnsentSeconds * static_cast<double>(info.tcpi_pacing_rate);
  const double bytes = std::clamp<double>(wanted, kUnsentBytes, kMostUnsentBytes);
  SetOption(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, static_cast<int>(bytes));
}

Time RoundTripOf(int fd) {
  const std::optional<Written> written = WrittenTo(fd);
  return written ? kMicrosecond * written->info.tcpi_rtt : 0;
}

Progress ProgressOf(int fd) {
  const std::optional<Written> written = WrittenTo(fd);
  if (!written) return {};
  const auto delivered = static_cast<double>(written->info.tcpi_delivery_rate);
  const double on_the_way = delivered * Seconds(kMicrosecond * written->info.tcpi_min_rtt);
  return {.delivered = delivered, .standing = std::max(0.0, written->unacknowledged - on_the_way)};
}

// BBR's pace is the bandwidth times a gain, which is above 2 while it starts, and between 0.75 and 1.25 later.
Time BusyFor(int fd) {
  tcp_bbr_info path{};
  socklen_t length = sizeof path;
  if (getsockopt(fd, IPPROTO_TCP, TCP_CC_INFO, &path, &length) != 0) return 0;
  if (length < sizeof path || path.bbr_pacing_gain == 0) return 0;
  const std::optional<Written> written = WrittenTo(fd);
  if (!written) return 0;
  const double gain = path.bbr_pacing_gain / kGainUnit;
  const double rate = static_cast<double>(written->info.tcpi_pacing_rate) / std::min(gain, 1.0);
  if (rate <= 0.0 || rate > net::kFastRate) return 0;
  const double on_the_way = net::OnTheWay(rate, Seconds(kMicrosecond * path.bbr_min_rtt));
  return Nanoseconds(std::max(0.0, written->unacknowledged - on_the_way) / rate);
}

std::string ErrorText(int error) { return std::generic_category().message(error); }

}  // namespace geomx::io
