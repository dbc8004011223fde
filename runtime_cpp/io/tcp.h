// Messages on a TCP connection: how they are cut out of a stream of bytes and put into one.
//
// A frame is a driver prefix, the message's header and its payload:
//
//     0  magic "GMXT"   4  numbered messages that the sender of this one has received   16  header
//     8  arrival time (ns; 0: on arrival)                                                96  payload
//
// The reader checks magic, header, size and arrival time before it believes a length, and reads each
// payload straight into memory of its own, which it uses again once nothing holds the message any
// more. A FrameLink outlives its connections: it keeps what it was given until the other end has
// received it (core/link.h), and never copies a payload.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/link.h"
#include "core/message.h"
#include "io/clock.h"
#include "io/tls.h"

namespace geomx::io {

inline constexpr std::uint32_t kFrameMagic = 0x54584d47;  // "GMXT" in memory order
inline constexpr std::size_t kPrefixBytes = 16;
inline constexpr std::size_t kFrameHead = kPrefixBytes + kHeaderBytes;
inline constexpr Time kLongestFlight = 600 * kSecond;  // no emulated path is slower than this

struct Frame {
  Message message;
  Time arrives = 0;
  std::uint32_t received = 0;  // by its sender
};

class FrameReader {
 public:
  // Until it is known who calls, no message may carry more than `max_payload` bytes.
  explicit FrameReader(std::uint32_t max_payload) : max_payload_(max_payload) {}
  void set_max_payload(std::uint32_t bytes) { max_payload_ = bytes; }

  // Where the next bytes of the stream belong; never empty.
  std::span<std::byte> Room();

  enum class Outcome { kMore, kFrame, kError };
  // The first `bytes` of Room() were filled. After kFrame: Take(). After kError: error().
  Outcome Filled(std::size_t bytes);
  Frame Take();
  const std::string& error() const { return error_; }

 private:
  struct Block {
    explicit Block(std::size_t size) : capacity(size), bytes(new std::byte[size]) {}
    std::size_t capacity;
    std::unique_ptr<std::byte[]> bytes;
  };

  bool ParseHead();
  std::shared_ptr<Block> NewBlock(std::size_t bytes);

  std::uint32_t max_payload_;
  std::array<std::byte, kFrameHead> head_;
  std::size_t filled_ = 0;  // of head and payload together
  Header header_;
  Time arrives_ = 0;
  std::uint32_t received_ = 0;
  std::shared_ptr<Block> payload_;
  std::array<std::shared_ptr<Block>, 2> kept_;
  std::size_t next_kept_ = 0;
  std::string error_;
};

// Messages to and from one peer, whatever connection carries them at the moment.
class FrameLink {
 public:
  // A frame that the kernel has taken whole for the first time; `started`: when it was pushed.
  using Done = std::function<void(const Message& message, Time started)>;

  // ---- sending ----
  void Push(Message message, Time arrives, Time now);
  bool empty() const { return link_.outbox.unsent() == 0; }   // all has left
  bool settled() const { return empty() && link_.outbox.kept() == 0; }  // and was received
  std::size_t pending_bytes() const { return pending_bytes_; }  // that have not left
  // Writes at most about `limit` bytes with one system call; one record through `tls`, if there is
  // one. Returns how many were taken; 0 if the socket is full; -1 if the connection is broken (errno).
  long Write(int fd, TlsStream* tls, std::size_t limit, const Done& done);

  // ---- receiving ----
  enum class Arrival {
    kNew,
    kRepeat,    // it came on an earlier connection: to be dropped
    kMismatch,  // its sender has received what was never sent
  };
  Arrival Take(const Frame& frame);
  // Bytes of messages that their sender does not know to have arrived.
  std::size_t unacknowledged() const { return unacknowledged_; }

  // ---- from a journal; see core/link.h ----
  void Begin(std::uint32_t sent, std::uint32_t received);
  void Restore(Message message);  // that may have left
  bool Arrived() { return link_.arrivals.Take(); }
  bool Acknowledge(std::uint32_t received) { return link_.outbox.Acknowledge(received); }
  std::uint32_t acknowledged() const { return link_.outbox.acknowledged(); }

  // ---- a new connection; see core/link.h ----
  using Outcome = LinkOutcome;
  Greeting Call() { return link_.Call(); }
  Outcome Answered(const Greeting& answer) { return Restart(link_.Answered(answer)); }
  Outcome Answer(const Greeting& call, Greeting& answer) { return Restart(link_.Answer(call, answer)); }
  std::uint32_t received() const { return link_.arrivals.received(); }
  // Of this process, as the scheduler counts; where this end calls.
  void SetIncarnation(std::uint32_t number) { link_.incarnation = number; }

 private:
  struct Outgoing {
    std::array<std::byte, kFrameHead> head;
    Message message;
    Time started = 0;
    std::size_t size = 0;
    bool told = false;  // that it has left
  };

  static Outgoing MakeFrame(Message message, Time arrives, Time now);
  Outcome Restart(Outcome outcome);

  geomx::Link<Outgoing> link_;
  std::size_t written_ = 0;  // of the first that has not left
  std::size_t pending_bytes_ = 0;
  std::size_t unacknowledged_ = 0;
};

// One message on a connection that carries no link (yet). False unless the kernel took it whole.
bool WriteAlone(int fd, TlsStream* tls, Message message);

}  // namespace geomx::io
