// A journal whose records go to another node, the standby, instead of a file.
//
// Records leave in messages (Kind::kRecords): consecutive records, each a head of two lengths, a body
// and a payload; only the last record of a message has a payload, which is the memory that was
// received, and not a copy. Commit ends a batch; the last message of a batch says so and carries the
// batch's number, and the standby confirms it (Kind::kReplicated) once it has applied the records
// (standby.h). Until then nothing may leave that depends on them (gate.h). Not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/message.h"
#include "core/records.h"

namespace geomx {

class Replicator final : public JournalOut {
 public:
  // `self` records; `standby` gets the records.
  Replicator(NodeId self, NodeId standby) : self_(self), standby_(standby) {}

  NodeId standby() const { return standby_; }
  void Add(std::span<const std::byte> body, const Payload& payload) override;
  // Ends a batch, if records were added since the last one.
  void Commit() override;

  std::uint64_t committed() const { return committed_; }    // the latest batch
  std::uint64_t confirmed() const { return confirmed_; }    // the latest batch that the standby has
  // Whether the standby has all records.
  bool settled() const { return confirmed_ == committed_ && !unfinished_; }
  // The standby has all batches up to `batch`. Returns false if there is no such batch.
  bool Confirm(std::uint64_t batch);

  // ---- messages for the standby ----
  bool HasMessage() const { return !queue_.empty(); }
  // Whether messages were added since the last call.
  bool TakeNews() { return std::exchange(news_, false); }
  std::optional<Message> Poll();

 private:
  void Queue(Payload payload);

  const NodeId self_, standby_;
  std::shared_ptr<std::vector<std::byte>> open_ = std::make_shared<std::vector<std::byte>>();
  std::deque<Message> queue_;
  bool unfinished_ = false;  // records were added since the last Commit
  bool news_ = false;
  std::uint64_t committed_ = 0, confirmed_ = 0;
};

// Passes the records of a message to `visit`(body, payload), in order. Throws JournalError if the
// message is malformed.
template <class Visit>
void EachRecord(const Message& message, Visit visit);

// The number of the batch that a message ends; nothing if another follows in the same batch.
inline std::optional<std::uint64_t> BatchEnded(const Message& message) {
  if ((message.header.flags & kLast) == 0) return std::nullopt;
  return message.header.offset;
}

// The standby's confirmation of a batch.
inline Message Confirmation(std::uint64_t batch) {
  Message message = ControlMessage(Kind::kReplicated);
  message.header.offset = batch;
  return message;
}

template <class Visit>
void EachRecord(const Message& message, Visit visit) {
  const Payload& all = message.payload;
  std::vector<std::byte> scratch;
  const Bytes start = all.Start(scratch);  // of a phantom payload, all that has bytes
  for (std::size_t at = 0; at < start.size();) {
    RecordReader head(start.subspan(at));
    const auto body_bytes = head.Get<std::uint32_t>();
    const auto payload_bytes = head.Get<std::uint32_t>();
    const Bytes body = head.Take(body_bytes);
    at += 2 * sizeof(std::uint32_t) + body.size();
    if (payload_bytes == 0) {
      visit(body, Payload());
      continue;
    }
    if (all.size() - at != payload_bytes) throw JournalError("a message of records with a wrong length");
    visit(body, all.From(at));
    return;
  }
}

}  // namespace geomx
