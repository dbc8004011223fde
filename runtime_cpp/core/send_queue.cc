#include "core/send_queue.h"

#include <algorithm>

namespace geomx {

struct SendQueue::LeavesLater {
  bool operator()(const Entry& a, const Entry& b) const {
    const Header& left = a.message.header;
    const Header& right = b.message.header;
    if (left.channel != right.channel) return left.channel > right.channel;
    if (left.priority != right.priority) return left.priority < right.priority;
    return a.sequence > b.sequence;
  }
};

void SendQueue::Push(Message message) {
  queued_bytes_ += message.wire_bytes();
  auto& queue = heap(message.header.channel == 0 ? Lane::kReliable : Lane::kBestEffort);
  queue.push_back({std::move(message), sequence_++});
  std::push_heap(queue.begin(), queue.end(), LeavesLater{});
}

std::optional<Message> SendQueue::Pop(Lane lane) {
  auto& queue = heap(lane);
  if (queue.empty()) return std::nullopt;
  std::pop_heap(queue.begin(), queue.end(), LeavesLater{});
  Message message = std::move(queue.back().message);
  queue.pop_back();
  queued_bytes_ -= message.wire_bytes();
  return message;
}

std::size_t SendQueue::DropStale(Key key, std::uint32_t shard, Round round) {
  const auto kept = std::remove_if(best_effort_.begin(), best_effort_.end(), [&](Entry& entry) {
    const Header& header = entry.message.header;
    if (header.key != key || header.shard != shard || header.round >= round) return false;
    queued_bytes_ -= entry.message.wire_bytes();
    return true;
  });
  const auto dropped = static_cast<std::size_t>(best_effort_.end() - kept);
  if (dropped > 0) {
    best_effort_.erase(kept, best_effort_.end());
    std::make_heap(best_effort_.begin(), best_effort_.end(), LeavesLater{});
  }
  return dropped;
}

}  // namespace geomx
