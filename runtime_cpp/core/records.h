// The records of a node's journal: the calls made to a node and the order in which its messages
// left, so that another process can repeat them on its own node and continue (recorded_node.h,
// replay.h).
//
// A record is a body of a few bytes (its kind, then its fields, little-endian) and, for a message,
// the payload. The fields are in docs/journal.md, the file format in io/journal_file.h.
#pragma once

#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/fields.h"
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
  // A worker's verbs (worker.h), and what its application notes.
  kDeclare,
  kInit,
  kSubmit,
  kRequest,
  kBarrier,
  kCommand,
  kState,        // a part of the state that the next note is about
  kNote,
  kSnapshot,     // the state of the node, in the records of states before it: the second record of a journal
  kIteration,    // a worker's: BeginIteration
};

// The fate of a message that was taken from the node's queues.
enum class Fate : std::uint8_t {
  kLinked,    // on its link: numbered, and kept until it has been received
  kUnderWay,  // in the emulated network; linked or dropped later
  kDropped,   // sent as a datagram, or not at all
};

// Another process takes the place of a peer's.
struct Renewal {
  std::uint32_t incarnation = 0;
  bool anew = false;       // the old link is dropped and a new one begins
  std::uint32_t mark = 0;  // of the process in its calls to the scheduler, which gave it the number; 0 at others
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

class RecordWriter : public FieldWriter {
 public:
  explicit RecordWriter(RecordKind kind) { Put(kind); }
};

using RecordReader = FieldReader<JournalError>;

// Returns the time at which a record was made, or nothing if it has none. Throws JournalError.
std::optional<Time> TimeOf(Bytes body);

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
  bool snapshot = false;   // one follows; without it the journal is cut short

  void Write(JournalOut& out) const;
  // Throws JournalError.
  static JournalBegin Read(std::span<const std::byte> body);
};

}  // namespace geomx
