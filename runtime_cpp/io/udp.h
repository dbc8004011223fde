// Best-effort messages: one datagram each, without retransmission.
//
//     0  keyed hash of all that follows   8  arrival time (ns)   16  header   96  payload
//
// Only a member of the run can compute the hash (keyed_hash.h); other datagrams are dropped and
// counted. Where connections are encrypted, so are datagrams, by the seal (tls.h) of the connection
// between the same two nodes:
//
//     0  node id of the sender   8  counter   16  sealed: arrival time, header, payload   tag
//
// Plain datagrams are then neither sent nor accepted. Channels carry DSCP marks of one class with
// rising drop precedence (AF11, AF12, AF13), so that a network that evaluates them drops the least
// important first.
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
  static constexpr std::size_t kMaxBytes = 65'000;  // without the seal's
  // Datagrams of an emulated link carry their arrival time and wait here until then: at most this
  // many bytes of one peer, and of all together. Further ones are refused.
  struct Bounds {
    std::size_t of_one = std::size_t{128} << 20;
    std::size_t of_all = std::size_t{512} << 20;
  };

  struct Counts {
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
    std::uint64_t refused = 0;  // of strangers, damaged, or beyond the bounds
    std::uint64_t unsent = 0;   // not taken by the kernel
  };

  Datagrams(Fd fd, std::string_view token, bool sealed) : Datagrams(std::move(fd), token, sealed, {}) {}
  Datagrams(Fd fd, std::string_view token, bool sealed, const Bounds& bounds);

  int fd() const { return fd_.get(); }
  const Counts& counts() const { return counts_; }

  // Returns false for messages too large for a datagram, which use the connection instead.
  static bool Fits(const Message& message) {
    return kPrefixBytes + message.wire_bytes() <= kMaxBytes;
  }

  // Sets the seal of datagrams to and from `peer`; null: none are exchanged.
  void SetSeal(NodeId peer, std::unique_ptr<Seal> seal);

  // REQUIRES: Fits(message).
  void Send(NodeId peer, const Address& address, const Message& message, Time arrives);

  // Reads at most `budget` datagrams. Those that the sink keeps (it returns true) count as waiting
  // until Release.
  void Receive(int budget, const std::function<bool(Frame)>& sink);
  // REQUIRES: the sink has kept as many bytes `from` this node.
  void Release(NodeId from, std::size_t bytes);
  std::size_t senders_waiting() const { return waiting_.size(); }

 private:
  std::uint64_t Check(std::span<const Bytes> pieces) const;
  void SendPieces(const Address& address, std::uint8_t channel, std::span<const Bytes> pieces);
  std::optional<Frame> Open(Bytes bytes);
  std::optional<Frame> Parse(Bytes bytes) const;
  bool MayWait(NodeId from, std::size_t bytes) const;

  Fd fd_;
  bool v6_, sealed_;
  std::map<NodeId, std::unique_ptr<Seal>> seals_;
  std::vector<std::byte> closed_, opened_;
  KeyedHash::Secret secret_;
  std::vector<std::byte> buffer_;
  Bounds bounds_;
  std::map<NodeId, std::size_t> waiting_;  // bytes, of senders with any: a name may be forged
  std::size_t all_waiting_ = 0;
  Counts counts_;
};

}  // namespace geomx::io
