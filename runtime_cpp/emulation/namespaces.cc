#include "emulation/namespaces.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <net/route.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <exception>
#include <fstream>
#include <stdexcept>
#include <thread>

namespace geomx::emulation {
namespace {

constexpr char kDevice[] = "wan";
constexpr int kDeviceQueue = 10'000;  // packets; the limits are the underlay's queues
constexpr int kMtu = 1500;

[[noreturn]] void Fail(const std::string& what) {
  throw std::runtime_error("cannot " + what + ": " + io::ErrorText(errno));
}

ifreq Named(const std::string& name) {
  ifreq request{};
  if (name.size() >= sizeof request.ifr_name) throw std::invalid_argument("an interface's name");
  std::memcpy(request.ifr_name, name.data(), name.size());
  return request;
}

void SetAddress(sockaddr& field, std::uint32_t address) {
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_addr.s_addr = htonl(address);
  std::memcpy(&field, &in, sizeof in);
}

void Up(int fd, const std::string& name) {
  ifreq request = Named(name);
  if (ioctl(fd, SIOCGIFFLAGS, &request) != 0) Fail("ask for the state of " + name);
  request.ifr_flags |= IFF_UP;
  if (ioctl(fd, SIOCSIFFLAGS, &request) != 0) Fail("switch on " + name);
}

io::Fd MakeDevice() {
  io::Fd tun(open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (!tun) Fail("open /dev/net/tun");
  ifreq request = Named(kDevice);
  request.ifr_flags = IFF_TUN | IFF_NO_PI;
  if (ioctl(tun.get(), TUNSETIFF, &request) != 0) Fail("make a TUN device");
  return tun;
}

void Configure(const std::vector<std::uint32_t>& addresses) {
  const io::Fd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd) Fail("open a socket");
  Up(fd.get(), "lo");
  ifreq queue = Named(kDevice);
  queue.ifr_qlen = kDeviceQueue;
  if (ioctl(fd.get(), SIOCSIFTXQLEN, &queue) != 0) Fail("set the queue of a device");
  ifreq mtu = Named(kDevice);
  mtu.ifr_mtu = kMtu;
  if (ioctl(fd.get(), SIOCSIFMTU, &mtu) != 0) Fail("set the MTU of a device");
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    ifreq request = Named(i == 0 ? kDevice : std::string(kDevice) + ":" + std::to_string(i));
    SetAddress(request.ifr_addr, addresses[i]);
    if (ioctl(fd.get(), SIOCSIFADDR, &request) != 0) Fail("set an address");
    SetAddress(request.ifr_netmask, 0xffffffff);
    if (ioctl(fd.get(), SIOCSIFNETMASK, &request) != 0) Fail("set a netmask");
  }
  Up(fd.get(), kDevice);
  rtentry everything{};
  SetAddress(everything.rt_dst, 0);
  SetAddress(everything.rt_genmask, 0);
  everything.rt_flags = RTF_UP;
  std::string device = kDevice;
  everything.rt_dev = device.data();
  if (ioctl(fd.get(), SIOCADDRT, &everything) != 0) Fail("set a route");
}

// Runs on a thread of its own, so the caller's namespace does not change.
template <class Work>
void Elsewhere(Work&& work) {
  std::exception_ptr error;
  std::thread([&] {
    try {
      work();
    } catch (...) {
      error = std::current_exception();
    }
  }).join();
  if (error) std::rethrow_exception(error);
}

}  // namespace

Site MakeSite(const std::vector<std::uint32_t>& addresses,
              const std::map<std::string, std::string>& settings) {
  Site site;
  Elsewhere([&] {
    if (unshare(CLONE_NEWNET) != 0) Fail("make a network namespace");
    site.ns = io::Fd(open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
    if (!site.ns) Fail("open a network namespace");
    for (const auto& [name, value] : settings) {
      std::ofstream file("/proc/sys/net/" + name);
      if (!(file << value << std::flush)) Fail("set " + name + " to " + value);
    }
    site.tun = MakeDevice();
    Configure(addresses);
  });
  return site;
}

void EnterNamespace(int fd) {
  if (setns(fd, CLONE_NEWNET) != 0) Fail("enter a network namespace");
}

std::string WhyNoNamespaces() {
  try {
    MakeSite({0x0a000001}, {});
    return "";
  } catch (const std::runtime_error& error) {
    return error.what();
  }
}

}  // namespace geomx::emulation
