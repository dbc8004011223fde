#include "core/replicator.h"

#include <algorithm>
#include <string>

namespace geomx {
namespace {

constexpr std::size_t kMostSmall = 64 * 1024;  // bytes of records without payload in one message

}  // namespace

void Replicator::Add(std::span<const std::byte> body, const Payload& payload) {
  if (body.size() + payload.size() > kMaxRecordsBytes - kMostSmall - 1024) {
    throw JournalError("a record of " + std::to_string(payload.size()) + " bytes is too long for a standby");
  }
  FieldWriter head;
  head.Put(static_cast<std::uint32_t>(body.size())).Put(static_cast<std::uint32_t>(payload.size()));
  open_->insert(open_->end(), head.body().begin(), head.body().end());
  open_->insert(open_->end(), body.begin(), body.end());
  unfinished_ = true;
  if (payload.size() == 0 && open_->size() < kMostSmall) return;
  Queue(payload);
}

void Replicator::Queue(Payload payload) {
  const std::shared_ptr<const std::vector<std::byte>> head =
      std::exchange(open_, std::make_shared<std::vector<std::byte>>());
  Message message;
  message.header.kind = Kind::kRecords;
  message.header.source = self_;
  message.header.priority = INT32_MAX;
  message.payload = Payload::Behind(*head, head, payload);
  message.header.payload_bytes = static_cast<std::uint32_t>(message.payload.size());
  queue_.push_back(std::move(message));
  news_ = true;
}

void Replicator::Commit() {
  if (!std::exchange(unfinished_, false)) return;
  if (!open_->empty() || queue_.empty() || (queue_.back().header.flags & kLast) != 0) Queue({});
  queue_.back().header.flags |= kLast;
  queue_.back().header.offset = ++committed_;
}

bool Replicator::Confirm(std::uint64_t batch) {
  if (batch > committed_) return false;
  confirmed_ = std::max(confirmed_, batch);
  return true;
}

std::optional<Message> Replicator::Poll() {
  if (queue_.empty()) return std::nullopt;
  Message message = std::move(queue_.front());
  queue_.pop_front();
  return message;
}

}  // namespace geomx
