// The records of a node's journal: the calls made to a node and the order in which its messages
// left, so that another process can repeat them on its own node and continue (recorded_node.h,
// replay.h).
//
// A record is a body of a few bytes (its kind, then its fields, little-endian) and, for a message,
// the payload. The fields are in docs/journal.md, the file format in io/journal_file.h.
#pragma once

#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/message.h"

namespace geomx {

enum class RecordKind : std::uint8_t {
  kBegin = 1,    // the node, its peers and its experiment; the first record, and no other
  kRestart,      // another process continues from here
  kMessage,      // a message arrived and was handled
  kHold,         // a message arrived that counts as arrived at a later time
  kRelease,      // the first of these was handled
  kSends,        // messages were taken from the node, and left it
  kTimeout,
  kHear,
  kLinkLost,
  kLinkMade,
  kLinkDown,
  kReady,
  kResume,
  kReport,
  kInitialise,
  kInstruct,
  kLeave,
  kReceived,     // how many messages the other end of a link has received
  kIncarnation,  // of a peer's process
};

// The fate of a message that was taken from the node's queues.
enum class Fate : std::uint8_t {
  kLinked,    // on its link: numbered, and kept until it has been received
  kUnderWay,  // in the emulated network; linked or dropped later
  kDropped,   // sent as a datagram, or not at all
};

// A journal cannot be read or written, or contradicts the node.
class JournalError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The output of records, in order. Records are durable once Commit has returned.
class JournalOut {
 public:
  virtual ~JournalOut() = default;
  // Copies `body`; shares the memory of `payload`.
  virtual void Add(std::span<const std::byte> body, const Payload& payload) = 0;
  // Throws JournalError.
  virtual void Commit() = 0;
};

class RecordWriter {
 public:
  explicit RecordWriter(RecordKind kind) { Put(kind); }

  template <class Number>
    requires std::is_trivially_copyable_v<Number>
  RecordWriter& Put(const Number& number) {
    const auto* const bytes = reinterpret_cast<const std::byte*>(&number);
    body_.insert(body_.end(), bytes, bytes + sizeof number);
    return *this;
  }
  RecordWriter& Text(std::string_view text) {
    Put(static_cast<std::uint32_t>(text.size()));
    const auto* const bytes = reinterpret_cast<const std::byte*>(text.data());
    body_.insert(body_.end(), bytes, bytes + text.size());
    return *this;
  }
  std::span<const std::byte> body() const { return body_; }

 private:
  std::vector<std::byte> body_;
};

// Reads the fields that a RecordWriter wrote. Throws JournalError at the end of the body.
class RecordReader {
 public:
  explicit RecordReader(std::span<const std::byte> body) : rest_(body) {}

  template <class Number>
    requires std::is_trivially_copyable_v<Number>
  Number Get() {
    if constexpr (std::is_same_v<Number, bool>) {
      const auto byte = Get<std::uint8_t>();
      if (byte > 1) throw JournalError("a record has " + std::to_string(byte) + " for yes or no");
      return byte == 1;
    } else {
      Number number;
      std::memcpy(&number, Take(sizeof number).data(), sizeof number);
      return number;
    }
  }
  std::string Text() {
    const Bytes bytes = Take(Get<std::uint32_t>());
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  bool empty() const { return rest_.empty(); }
  void End() const {
    if (!rest_.empty()) throw JournalError("a record is too long");
  }
  Bytes Take(std::size_t count) {
    if (count > rest_.size()) throw JournalError("a record is too short");
    const Bytes taken = rest_.first(count);
    rest_ = rest_.subspan(count);
    return taken;
  }

 private:
  std::span<const std::byte> rest_;
};

// The first record: what a process needs to build the node, and the messages exchanged before that.
struct JournalBegin {
  struct Member {
    std::string name, address;
    std::uint32_t incarnation = 0;
  };
  struct Counts {
    NodeId peer = 0;
    std::uint32_t sent = 0, received = 0;  // numbered messages
  };

  std::string name;        // of the node
  std::string address;     // where it listens
  std::string experiment;  // as the scheduler tells members that join
  std::vector<Member> roster;
  std::vector<Counts> links;

  void Write(JournalOut& out) const;
  // Throws JournalError.
  static JournalBegin Read(std::span<const std::byte> body);
};

}  // namespace geomx
