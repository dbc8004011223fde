// Exactly-once delivery between two nodes over connections that break.
//
// A link lasts as long as its two nodes; one connection after another carries it. Each end numbers
// its messages from 0 and keeps those that have left until the other end acknowledges them: views
// of the encoded messages, no copies, and nothing is encoded a second time. After a connection has
// broken, the two ends exchange on the next one how many messages they have received, and both
// continue from there. Numbered messages of every kind are therefore delivered once and in order.
// Numbers and counts are modulo 2^32.
//
// One end calls, always the same; the other answers:
//
//     calling                                         called
//     Greeting call = link.Call();       ---->        answer = link.Answer(call);
//     link.Answered(answer);             <----        // messages may follow at once
//     // messages may follow
//
// An end ignores older connections once it has answered on a newer one, or received the answer
// there. Calls are counted, and at both ends the latest answered call carries the link, for any
// number of calls under way and any order of arrival.
//
// A process that continues after another was killed has a larger incarnation, and restores its end
// of the link from a journal (replay.h): every message that may have left before is kept as if it
// had left. Its calls are counted from 0 again. Calls of a process that was replaced are not
// answered.
//
// What must be safe elsewhere before it leaves is held back by a gate (gate.h); an end may then say
// that it has received fewer messages than it has, and drops the others when they arrive again.
//
// The messages kept are bounded by those under way between two acknowledgements. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "core/archive.h"
#include "core/gate.h"
#include "core/message.h"

namespace geomx {

// Best-effort messages may be lost, and messages about one connection mean nothing on the next.
inline bool IsNumbered(const Header& header) {
  const Kind kind = header.kind;
  return header.channel == 0 && kind != Kind::kHello && kind != Kind::kChallenge &&
         kind != Kind::kProof && kind != Kind::kHeartbeat && kind != Kind::kClosing;
}

// How long a link stays silent after a cut of its path, on average. TCP retransmits at intervals that
// double, so half of what the cut lasted is left of the last one; of calls, which overlap, two are made
// per `redial` by then. Either takes two round trips. docs/faults.md compares it with a kernel's.
inline Time SilenceAfterCut(Time lasted, Time redial, Time round_trip) {
  return std::min(lasted, redial / 2) / 2 + 2 * round_trip;
}

// The first message in either direction of a new connection.
struct Greeting {
  std::uint32_t incarnation = 0;  // of the calling process, as the scheduler counts; 0: unknown
  std::uint32_t attempt = 0;      // calls that the caller has made on this link, this one included
  std::uint32_t received = 0;     // numbered messages that this end has received
  // Of an answer: number of the first message that follows it. Of a call: a number drawn by the calling
  // process, which tells its calls from those of another process before it knows its incarnation.
  std::uint32_t first = 0;
  bool late = false;  // of a call: from a process that joins only a run that has started
};

// Stores a greeting in the header of a `hello`.
inline void PutGreeting(const Greeting& greeting, Header& header) {
  header.key = greeting.incarnation;
  header.shard = greeting.attempt;
  header.round = greeting.received;
  header.slice = greeting.first;
  header.merge_count = greeting.late ? 1 : 0;
}
inline Greeting GreetingOf(const Header& header) {
  return {header.key, header.shard, header.round, header.slice, header.merge_count != 0};
}

// Messages to the other end that it may not have received, oldest first.
template <class Item>
class Outbox {
 public:
  void Add(Item item, bool numbered) { entries_.push_back({std::move(item), numbered}); }
  // Adds a message before the newest `behind` ones. REQUIRES: these have not left.
  void AddBefore(std::size_t behind, Item item, bool numbered) {
    entries_.insert(entries_.end() - static_cast<std::ptrdiff_t>(behind), {std::move(item), numbered});
  }

  // Messages that have not left on the present connection: At(0) is next.
  std::size_t unsent() const { return entries_.size() - left_; }
  Item& At(std::size_t index) { return entries_[left_ + index].item; }
  bool NumberedAt(std::size_t index) const { return entries_[left_ + index].numbered; }
  // At(0) has left. It is kept if it is numbered.
  void Leave() {
    if (!entries_[left_].numbered) {
      entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(left_));
      return;
    }
    ++left_;
    if (IsAfter(base_ + Left(), reached_)) reached_ = base_ + Left();
  }

  // The other end has received the first `received` messages. Returns false if fewer have ever
  // left. Messages that it has received on an earlier connection, and that this connection repeats,
  // still leave: it expects them.
  bool Acknowledge(std::uint32_t received) {
    if (IsAfter(received, reached_)) return false;
    if (!IsAfter(received, base_)) return true;  // older than what is known already
    const std::uint32_t known = std::min(received - base_, Left());
    entries_.erase(entries_.begin(), entries_.begin() + known);
    left_ -= known;
    base_ += known;
    return true;
  }

  // Starts a new connection to an end that has received so many messages; all others will leave
  // again. Returns the number of the first of them; nothing if fewer have ever left.
  std::optional<std::uint32_t> Restart(std::uint32_t received) {
    if (IsAfter(received, reached_)) return std::nullopt;
    left_ = 0;
    while (IsAfter(received, base_)) {
      ++base_;
      entries_.pop_front();
    }
    return base_;
  }

  // Returns true if the other end has acknowledged more messages before than the `received` that it
  // reports now.
  bool HasForgotten(std::uint32_t received) const { return IsAfter(base_, received); }

  // Messages that have left and are not known to have been received.
  std::size_t kept() const { return left_; }
  // Whether the other end has received all numbered messages.
  bool AllReceived() const {
    return std::none_of(entries_.begin(), entries_.end(), [](const Entry& entry) { return entry.numbered; });
  }
  // The numbered messages that the other end may not have received, oldest first.
  std::vector<const Item*> Numbered() const {
    std::vector<const Item*> numbered;
    for (const Entry& entry : entries_) {
      if (entry.numbered) numbered.push_back(&entry.item);
    }
    return numbered;
  }
  // How many of all messages ever added the other end has received.
  std::uint32_t acknowledged() const { return base_; }

  // ---- from a journal ----
  // `sent` messages have left and were received. REQUIRES: no message was added.
  void Begin(std::uint32_t sent) { base_ = reached_ = sent; }
  // Adds a numbered message that may have left. REQUIRES: unsent() == 0.
  void AddLeft(Item item) {
    Add(std::move(item), true);
    Leave();
  }

 private:
  struct Entry {
    Item item;
    bool numbered;
  };

  static bool IsAfter(std::uint32_t one, std::uint32_t other) {
    return one != other && one - other <= UINT32_MAX / 2;
  }
  std::uint32_t Left() const { return static_cast<std::uint32_t>(left_); }

  std::deque<Entry> entries_;  // numbered ones only before that of number `reached_`
  std::size_t left_ = 0;       // on the present connection
  std::uint32_t base_ = 0;     // number of the first message that may not have been received
  std::uint32_t reached_ = 0;  // number of the first message that has never left, on any connection
};

// Counts messages from the other end and recognises repeats.
class Arrivals {
 public:
  std::uint32_t received() const { return received_; }

  // Counts a numbered message. Returns false if it is a repeat, to be dropped.
  bool Take() {
    if (repeats_ > 0) {
      --repeats_;
      return false;
    }
    ++received_;
    return true;
  }

  // Continues after `received` messages, the count of a journal.
  void Begin(std::uint32_t received) { received_ = received; }

  // The next message to arrive has number `first`. Returns false if messages before it were never
  // received.
  bool Restart(std::uint32_t first) {
    repeats_ = received_ - first;
    return repeats_ <= UINT32_MAX / 2;
  }

 private:
  std::uint32_t received_ = 0;
  std::uint32_t repeats_ = 0;  // still to come
};

enum class LinkOutcome {
  kCarried,   // the connection carries the link from now on
  kLate,      // a later one does; close this one
  kMismatch,  // the other end counts messages that were never sent
  kForgot,    // one of the two ends has lost its count of received messages
};

template <class Item>
class Link {
 public:
  Outbox<Item> outbox;
  Arrivals arrivals;
  Gate gate;
  std::uint32_t incarnation = 0;  // of the process at the calling end; 0: unknown

  // Adds a message. One that tells nothing (`empty`: a heartbeat) is not held back.
  void Add(Item item, bool numbered, bool empty = false) {
    if (empty) return outbox.AddBefore(gate.held(), std::move(item), numbered);
    outbox.Add(std::move(item), numbered);
    gate.Added();
  }
  // Messages that have not left on the present connection and may leave.
  std::size_t ready() const { return outbox.unsent() - gate.held(); }
  // How many messages the other end may be told that this one has received.
  std::uint32_t receipt() const { return gate.Receipt(arrivals.received()); }

  // Writes this end's counts and messages to a snapshot, or reads them into a fresh link: as if every
  // message had left. `message_of` returns the message of an item, `item_of` makes an item of one.
  template <class MessageOf, class ItemOf>
  void Exchange(Archive& archive, MessageOf message_of, ItemOf item_of) {
    std::uint32_t sent = outbox.acknowledged(), received = arrivals.received();
    std::vector<Message> messages;
    for (const Item* item : outbox.Numbered()) messages.push_back(message_of(*item));
    archive(sent, received, messages);
    if (!archive.loading()) return;
    outbox.Begin(sent);
    arrivals.Begin(received);
    for (Message& message : messages) outbox.AddLeft(item_of(std::move(message)));
  }

  // ---- the end that calls ----
  Greeting Call() {
    return {.incarnation = incarnation, .attempt = ++calls_, .received = receipt()};
  }
  LinkOutcome Answered(const Greeting& answer) {
    if (answer.attempt <= answered_ || answer.attempt > calls_) return LinkOutcome::kLate;
    if (outbox.HasForgotten(answer.received)) return LinkOutcome::kForgot;
    if (!outbox.Restart(answer.received)) return LinkOutcome::kMismatch;
    if (!arrivals.Restart(answer.first)) return LinkOutcome::kForgot;
    answered_ = answer.attempt;
    incarnation = answer.incarnation;
    return LinkOutcome::kCarried;
  }

  // ---- the end that is called ----
  // Fills in `answer` if the connection carries the link. Call it after the last message was taken
  // from the previous connection.
  LinkOutcome Answer(const Greeting& call, Greeting& answer) {
    if (call.incarnation < incarnation) return LinkOutcome::kLate;
    if (call.incarnation > incarnation) answered_ = 0;  // a new process counts from 0
    if (call.attempt <= answered_) return LinkOutcome::kLate;
    const auto first = outbox.Restart(call.received);
    if (!first) return LinkOutcome::kMismatch;
    answered_ = call.attempt;
    incarnation = call.incarnation;
    arrivals.Restart(receipt());  // the others will arrive again
    answer = {.incarnation = incarnation,
              .attempt = call.attempt,
              .received = receipt(),
              .first = *first};
    return LinkOutcome::kCarried;
  }

 private:
  std::uint32_t calls_ = 0;     // made by this end
  std::uint32_t answered_ = 0;  // the latest call that was answered
};

}  // namespace geomx
