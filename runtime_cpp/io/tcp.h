// Messages on a TCP connection: parsing them from a stream of bytes, and writing them to one.
//
// A frame is a driver prefix, the message's header and its payload:
//
//     0  magic "GMXT"   4  numbered messages that the sender of this one has received   16  header
//     8  arrival time (ns; 0: on arrival)                                                96  payload
//
// The reader checks magic, header, size and arrival time before it uses a length, and reads each
// payload directly into the memory that its owner has for it, or into its own, which it reuses once
// the message is released. A FrameLink
// outlives its connections: it keeps messages until the other end has received them (core/link.h),
// and never copies a payload.
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
  // `max_payload`: the largest payload to accept, small until the caller is known.
  explicit FrameReader(std::uint32_t max_payload) : max_payload_(max_payload) {}
  void set_max_payload(std::uint32_t bytes) { max_payload_ = bytes; }
  // The place for the payload of a message that begins to arrive; null: the reader has one.
  using Place = std::function<std::shared_ptr<std::byte>(const Header& header, Time arrives)>;
  void set_place(Place place) { place_ = std::move(place); }

  // The buffer for the next bytes of the stream; never empty.
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
  std::shared_ptr<std::byte> NewBlock(std::size_t bytes);

  std::uint32_t max_payload_;
  std::array<std::byte, kFrameHead> head_;
  std::size_t filled_ = 0;  // of head and payload together
  Header header_;
  Time arrives_ = 0;
  std::uint32_t received_ = 0;
  Place place_;
  std::shared_ptr<std::byte> payload_;
  std::array<std::shared_ptr<Block>, 2> kept_;
  std::size_t next_kept_ = 0;
  std::string error_;
};

// Messages to and from one peer, independent of the connection that carries them.
class FrameLink {
 public:
  // Called when the kernel has first taken a complete frame; `started`: when it was pushed.
  using Done = std::function<void(const Message& message, Time started)>;

  // ---- sending ----
  void Push(Message message, Time arrives, Time now);
  bool empty() const { return link_.outbox.unsent() == 0; }   // all messages have left
  bool blocked() const { return link_.ready() == 0; }         // those that have not are held back
  bool settled() const { return empty() && link_.outbox.kept() == 0; }  // and were received
  bool all_received() const { return link_.outbox.AllReceived(); }  // but what tells nothing: heartbeats
  std::size_t pending_bytes() const { return pending_bytes_; }  // of messages that have not left
  // Writes about `limit` bytes at most with one system call, encrypted by `tls` if that is not null.
  // Returns the number of bytes taken; 0 if the socket is full; -1 if the connection is
  // broken (errno).
  long Write(int fd, TlsStream* tls, std::size_t limit, const Done& done);

  // ---- what is held back until a standby has its records (core/gate.h) ----
  void CloseGate() { link_.gate.Close(link_.arrivals.received()); }
  void OpenGate() { link_.gate.Open(); }
  void Mark(std::uint64_t batch) { link_.gate.Mark(batch, link_.arrivals.received()); }
  bool Release(std::uint64_t batch) { return link_.gate.Release(batch); }
  bool gated() const { return link_.gate.closed(); }

  // ---- receiving ----
  enum class Arrival {
    kNew,
    kRepeat,    // arrived on an earlier connection before: to be dropped
    kMismatch,  // its sender counts messages that were never sent
  };
  Arrival Take(const Frame& frame);
  // Bytes of messages that were received but not acknowledged.
  std::size_t unacknowledged() const { return unacknowledged_; }

  // ---- from a journal; see core/link.h ----
  void Begin(std::uint32_t sent, std::uint32_t received);
  void Restore(Message message);  // one that may have left
  void Exchange(Archive& archive);
  bool Arrived() { return link_.arrivals.Take(); }
  bool Acknowledge(std::uint32_t received) { return link_.outbox.Acknowledge(received); }
  std::uint32_t acknowledged() const { return link_.outbox.acknowledged(); }

  // ---- a new connection; see core/link.h ----
  using Outcome = LinkOutcome;
  Greeting Call() { return link_.Call(); }
  Outcome Answered(const Greeting& answer) { return Restart(link_.Answered(answer)); }
  Outcome Answer(const Greeting& call, Greeting& answer) { return Restart(link_.Answer(call, answer)); }
  std::uint32_t received() const { return link_.arrivals.received(); }
  // Sets the incarnation of this process, for links where this end calls.
  void SetIncarnation(std::uint32_t number) { link_.incarnation = number; }

 private:
  struct Outgoing {
    std::array<std::byte, kFrameHead> head;
    Message message;
    Time started = 0;
    std::size_t size = 0;
    bool told = false;  // `Done` was called
  };

  static Outgoing MakeFrame(Message message, Time arrives, Time now);
  static Outgoing Restored(Message message);
  Outcome Restart(Outcome outcome);
  void Adapt(std::size_t taken, std::size_t offered);

  geomx::Link<Outgoing> link_;
  std::size_t written_ = 0;  // bytes of the first message that has not left
  std::size_t pending_bytes_ = 0;
  std::size_t write_bytes_ = 0;  // to offer the kernel at a time
  std::size_t taken_ = 0;        // by the kernel since it was last full
  std::size_t unacknowledged_ = 0;
};

// Writes one message on a connection that carries no link (yet). Returns false unless the kernel
// took all of it.
bool WriteAlone(int fd, TlsStream* tls, Message message);

}  // namespace geomx::io
