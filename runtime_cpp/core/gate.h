// What one end of a link holds back until it is safe elsewhere: messages, and the news of how many
// have arrived.
//
// A node whose journal goes to a standby (replicator.h) may send nothing that depends on records
// which the standby does not have. Records are counted in batches. The driver marks each link with
// the batch that covers what was added to it so far; when the standby has confirmed that batch, the
// messages leave, and the other end hears that its own have arrived. An open gate holds nothing back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

namespace geomx {

class Gate {
 public:
  bool closed() const { return closed_; }

  // Holds back everything from now on. `received`: messages that have arrived on this link so far.
  void Close(std::uint32_t received) {
    closed_ = true;
    safe_ = received;
  }
  // Holds nothing back any more.
  void Open() { *this = {}; }

  // A message was added to the outbox, behind all others.
  void Added() {
    if (!closed_) return;
    ++unmarked_;
    ++held_;
  }
  // What was added since the last call, and the count of the messages that have arrived, depend on
  // the records up to `batch`.
  void Mark(std::uint64_t batch, std::uint32_t received) {
    if (!closed_ || (unmarked_ == 0 && received == marked_)) return;
    marked_ = received;
    if (marks_.empty() || marks_.back().batch != batch) marks_.push_back({batch, 0, 0});
    marks_.back().messages += unmarked_;
    marks_.back().received = received;
    unmarked_ = 0;
  }
  // The records up to `batch` are safe. Returns whether something may leave that was held back.
  bool Release(std::uint64_t batch) {
    bool released = false;
    for (; !marks_.empty() && marks_.front().batch <= batch; marks_.pop_front()) {
      held_ -= marks_.front().messages;
      safe_ = marks_.front().received;
      released = true;
    }
    return released;
  }

  // The newest messages of the outbox, which may not leave.
  std::size_t held() const { return held_; }
  // How many of `received` messages the other end may be told of.
  std::uint32_t Receipt(std::uint32_t received) const { return closed_ ? safe_ : received; }

 private:
  struct Held {
    std::uint64_t batch;
    std::size_t messages;
    std::uint32_t received;
  };

  bool closed_ = false;
  std::size_t held_ = 0, unmarked_ = 0;
  std::uint32_t safe_ = 0, marked_ = 0;  // counts of messages that have arrived
  std::deque<Held> marks_;
};

}  // namespace geomx
