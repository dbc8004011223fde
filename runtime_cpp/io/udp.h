// Best-effort messages: one datagram each, nothing is sent again.
//
//     0  keyed hash of all that follows   8  arrival time (ns)   16  header   96  payload
//
// Only a member of the run can make the hash (keyed_hash.h); what does not fit it is dropped and
// counted. Where connections are encrypted, so are datagrams, by the seal (tls.h) of the connection
// between the same two nodes:
//
//     0  node id of the sender   8  counter   16  sealed: arrival time, header, payload   tag
//
// Then nothing else is sent or taken. Channels carry a DSCP mark of one class with rising drop precedence (AF11, AF12, AF13), so
// that a network that looks at it loses the least important first.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "io/keyed_hash.h"
#include "io/socket.h"
#include "io/tcp.h"

namespace geomx::io {

class Datagrams {
 public:
  static constexpr std::size_t kMaxBytes = 65'000;  // and a seal's
  // An emulated link's datagrams say when they arrive, and wait here until then: at most so many bytes
  // of one peer, and of all together. What is more is refused.
  struct Bounds {
    std::size_t of_one = std::size_t{128} << 20;
    std::size_t of_all = std::size_t{512} << 20;
  };

  struct Counts {
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
    std::uint64_t refused = 0;  // strangers', damaged, or more than may wait
    std::uint64_t unsent = 0;   // the kernel did not take them
  };

  Datagrams(Fd fd, std::string_view token, bool sealed) : Datagrams(std::move(fd), token, sealed, {}) {}
  Datagrams(Fd fd, std::string_view token, bool sealed, const Bounds& bounds);

  int fd() const { return fd_.get(); }
  const Counts& counts() const { return counts_; }

  // Larger messages must take the connection.
  static bool Fits(const Message& message) {
    return kPrefixBytes + message.wire_bytes() <= kMaxBytes;
  }

  // How datagrams to and from `peer` are sealed from now on; null: there are none.
  void SetSeal(NodeId peer, std::unique_ptr<Seal> seal);

  // REQUIRES: Fits(message).
  void Send(NodeId peer, const Address& address, const Message& message, Time arrives);

  // Reads what is there, at most `budget` datagrams. What the sink keeps (it returns true) waits, until
  // Release says that it does not any more.
  void Receive(int budget, const std::function<bool(Frame)>& sink);
  void Release(NodeId from, std::size_t bytes);

 private:
  std::uint64_t Check(std::span<const Bytes> pieces) const;
  void SendPieces(const Address& address, std::uint8_t channel, std::span<const Bytes> pieces);
  std::optional<Frame> Open(Bytes bytes);
  std::optional<Frame> Parse(Bytes bytes) const;
  bool MayWait(NodeId from, std::size_t bytes);

  Fd fd_;
  bool v6_, sealed_;
  std::map<NodeId, std::unique_ptr<Seal>> seals_;
  std::vector<std::byte> closed_, opened_;
  KeyedHash::Secret secret_;
  std::vector<std::byte> buffer_;
  Bounds bounds_;
  std::map<NodeId, std::size_t> waiting_;  // bytes
  std::size_t all_waiting_ = 0;
  Counts counts_;
};

}  // namespace geomx::io
