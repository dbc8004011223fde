// Network namespaces without a name, and the device by which packets leave them.
//
// A namespace made here lives as long as somebody has it open or a process is in it, and a TUN device
// as long as its descriptor: when the process that made them ends, however it ends, the kernel takes
// all of it away. Nothing is ever left to be cleaned up, two runs cannot meet, and their addresses may
// be the same.
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

// Takes the calling thread to a namespace. Throws std::runtime_error.
void EnterNamespace(int fd);

// Why MakeSite would not work here; empty if it would.
std::string WhyNoNamespaces();

}  // namespace geomx::emulation
