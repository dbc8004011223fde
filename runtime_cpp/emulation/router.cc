#include "emulation/router.h"

#include <pthread.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "io/clock.h"

namespace geomx::emulation {
namespace {

constexpr std::uint64_t kWake = UINT64_MAX - 1;
constexpr int kBudget = 64;  // packets of one site, then others get their turn
constexpr Time kGrain = kMillisecond / 8;  // packets closer than this are handled together
constexpr std::size_t kIpHeader = 20;

std::uint32_t AddressAt(const std::byte* packet, std::size_t offset) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    value = value << 8 | std::to_integer<std::uint32_t>(packet[offset + i]);
  }
  return value;
}

std::uint64_t Pair(std::uint32_t source, std::uint32_t target) {
  return std::uint64_t{source} << 32 | target;
}

// Other processes on this machine must not delay packets. The work of this thread is short.
void AskForPrecision() {
  prctl(PR_SET_TIMERSLACK, 1);
  const sched_param lowest{.sched_priority = 1};
  pthread_setschedparam(pthread_self(), SCHED_RR, &lowest);
}

void Sleep(Time time) {
  const timespec length{.tv_sec = 0, .tv_nsec = time};
  nanosleep(&length, nullptr);
}

}  // namespace

Router::Router(std::uint64_t seed)
    : underlay_(seed),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!epoll_ || !wake_) throw std::runtime_error("cannot make an epoll: " + io::ErrorText(errno));
  Watch(wake_.get(), kWake);
}

void Router::Watch(int fd, std::uint64_t id) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = id;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    throw std::runtime_error("cannot watch a device: " + io::ErrorText(errno));
  }
}

int Router::AddSite(const std::vector<std::uint32_t>& addresses,
                    const std::map<std::string, std::string>& settings) {
  Site site = MakeSite(addresses, settings);
  for (const std::uint32_t address : addresses) {
    if (!site_of_.emplace(address, sites_.size()).second) {
      throw std::invalid_argument("two nodes with one address");
    }
  }
  Watch(site.tun.get(), sites_.size());
  sites_.push_back(std::move(site));
  return sites_.back().ns.get();
}

void Router::AddRoute(std::uint32_t source, std::uint32_t target, std::vector<EdgeId> edges) {
  const auto end = site_of_.find(target);
  if (end == site_of_.end()) throw std::invalid_argument("a route to no site");
  const RouteId route = underlay_.AddRoute(std::move(edges));
  routes_[Pair(source, target)] = route;
  site_at_end_.push_back(end->second);
}

void Router::Start() {
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "geomx-router");
    AskForPrecision();
    Loop();
  });
}

void Router::Set(EdgeId edge, std::optional<Time> delay, std::optional<double> loss) {
  {
    const std::scoped_lock lock(changing_);
    changes_.push_back({edge, delay, loss});
  }
  Wake();
}

void Router::Wake() {
  const std::uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof one);
}

void Router::Stop() {
  stopping_.store(true);
  Wake();
  if (thread_.joinable()) thread_.join();
}

Router::Counts Router::counts() const {
  Counts counts = counts_;
  counts.underlay = underlay_.counts();
  return counts;
}

void Router::Loop() {
  bool begun = false;
  while (!stopping_.load()) {
    // While there is traffic the clock ticks; a system call per packet to sleep would cost more than
    // the packet.
    const Time next = underlay_.NextEvent();
    if (next != kNever) Sleep(kGrain);
    const int ready = epoll_wait(epoll_.get(), events_.data(), static_cast<int>(events_.size()),
                                 next == kNever ? -1 : 0);
    if (!begun && origin_.load() != kNever) {
      begun = true;
      underlay_.SetOrigin(origin_.load());
    }
    for (int i = 0; i < ready; ++i) {
      if (events_[i].data.u64 != kWake) {
        Take(events_[i].data.u64);
        continue;
      }
      std::uint64_t wakes = 0;
      (void)!read(wake_.get(), &wakes, sizeof wakes);
      const std::scoped_lock lock(changing_);
      for (const Change& change : std::exchange(changes_, {})) {
        underlay_.Set(change.edge, change.delay, change.loss);
      }
    }
    const Time now = io::Now();
    if (next <= now) counts_.late = std::max(counts_.late, now - next);
    underlay_.Advance(
        now, [&](const Underlay::Packet& packet) { Deliver(packet); },
        [&](PacketId id) { free_.push_back(id); });
  }
}

void Router::Take(std::size_t site) {
  for (int left = kBudget; left > 0; --left) {
    const PacketId id = NewPacket();
    std::byte* packet = Slot(id);
    const ssize_t size = read(sites_[site].tun.get(), packet, kSlot);
    const bool is_ip = size >= static_cast<ssize_t>(kIpHeader) && (packet[0] >> 4) == std::byte{4};
    const auto route = is_ip ? routes_.find(Pair(AddressAt(packet, 12), AddressAt(packet, 16)))
                             : routes_.end();
    if (route != routes_.end()) {
      underlay_.Enter({id, static_cast<std::uint32_t>(size), route->second}, io::Now());
      continue;
    }
    free_.push_back(id);
    if (size < 0) return;
    ++counts_.strangers;
  }
}

void Router::Deliver(const Underlay::Packet& packet) {
  const Site& site = sites_[site_at_end_[packet.route]];
  const ssize_t taken = write(site.tun.get(), Slot(packet.id), packet.bytes);
  if (taken < 0) ++counts_.refused;
  free_.push_back(packet.id);
}

PacketId Router::NewPacket() {
  if (free_.empty()) {
    const auto first = static_cast<PacketId>(slabs_.size() * kSlab);
    slabs_.push_back(std::make_unique<std::byte[]>(kSlab * kSlot));
    for (PacketId i = kSlab; i > 0; --i) free_.push_back(first + i - 1);
  }
  const PacketId id = free_.back();
  free_.pop_back();
  return id;
}

}  // namespace geomx::emulation
