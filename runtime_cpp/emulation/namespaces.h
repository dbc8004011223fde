// Network namespaces without a name, and the device by which packets leave them.
//
// A namespace exists as long as a descriptor or a process refers to it, and a TUN device as long as
// its descriptor. When the creating process ends for any reason, the kernel removes them. Nothing has
// to be cleaned up, runs cannot interfere, and they may use the same addresses.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "io/socket.h"

namespace geomx::emulation {

struct Site {
  io::Fd ns;   // setns(2) takes a thread there
  io::Fd tun;  // reads and writes IPv4 packets, non-blocking
};

// A namespace with these IPv4 addresses (host byte order), which reach each other through its
// loopback and everything else through the TUN device `wan`. `settings` are written below
// /proc/sys/net of the namespace. Throws std::runtime_error that says what is missing: this needs
// CAP_SYS_ADMIN and CAP_NET_ADMIN, a kernel with network namespaces, and /dev/net/tun.
Site MakeSite(const std::vector<std::uint32_t>& addresses,
              const std::map<std::string, std::string>& settings);

// Moves the calling thread to a namespace. Throws std::runtime_error.
void EnterNamespace(int fd);

// The reason why MakeSite would fail here; empty if it would not.
std::string WhyNoNamespaces();

}  // namespace geomx::emulation
