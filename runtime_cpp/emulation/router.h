// The router between network namespaces: reads the packets of every site from its TUN device, sends
// them over the underlay, and writes them to the device of their destination site.
//
// One thread, in real time. It forwards packets between known pairs of addresses and drops all others.
// TUN delivers packets of at most the MTU, so the bytes counted on an edge are those of a real wire.
#pragma once

#include <sys/epoll.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "emulation/namespaces.h"
#include "emulation/underlay.h"
#include "io/socket.h"

namespace geomx::emulation {

class Router {
 public:
  struct Counts {
    Underlay::Counts underlay;
    std::uint64_t strangers = 0;   // packets between addresses that have no route
    std::uint64_t refused = 0;     // packets that a site's device did not take
    Time late = 0;                 // the largest delay of a packet beyond its time
  };

  explicit Router(std::uint64_t seed);
  ~Router() { Stop(); }

  // ---- before Start ----
  // Creates a namespace with these addresses. Returns its descriptor, which the router owns. Throws
  // std::runtime_error.
  int AddSite(const std::vector<std::uint32_t>& addresses,
              const std::map<std::string, std::string>& settings);
  EdgeId AddEdge(Underlay::Edge edge) { return underlay_.AddEdge(std::move(edge)); }
  // Sets the path of packets between two addresses of sites. Throws std::invalid_argument.
  void AddRoute(std::uint32_t source, std::uint32_t target, std::vector<EdgeId> edges);

  void Start();

  // ---- from any thread ----
  // Sets the start of the run on the monotonic clock.
  void SetOrigin(Time origin) { origin_.store(origin); }
  // See Underlay::Set; takes effect at once.
  void Set(EdgeId edge, std::optional<Time> delay, std::optional<double> loss);
  void Stop();

  // After Stop.
  Counts counts() const;

 private:
  static constexpr std::size_t kSlot = 2048;  // one packet
  static constexpr std::size_t kSlab = 1024;  // packets allocated together

  struct Change {
    EdgeId edge = 0;
    std::optional<Time> delay;
    std::optional<double> loss;
  };

  void Loop();
  void Wake();
  void Watch(int fd, std::uint64_t id);
  void Take(std::size_t site);
  void Deliver(const Underlay::Packet& packet);
  std::byte* Slot(PacketId id) { return slabs_[id / kSlab].get() + id % kSlab * kSlot; }
  PacketId NewPacket();

  Underlay underlay_;
  std::vector<Site> sites_;
  std::unordered_map<std::uint32_t, std::size_t> site_of_;  // by address
  std::unordered_map<std::uint64_t, RouteId> routes_;       // by source and target
  std::vector<std::size_t> site_at_end_;                    // by route
  std::vector<std::unique_ptr<std::byte[]>> slabs_;
  std::vector<PacketId> free_;
  io::Fd epoll_, wake_;
  std::array<epoll_event, 64> events_;
  std::atomic<Time> origin_{kNever};
  std::atomic<bool> stopping_{false};
  std::mutex changing_;
  std::vector<Change> changes_;  // that the thread has not made yet
  Counts counts_;
  std::thread thread_;
};

}  // namespace geomx::emulation
