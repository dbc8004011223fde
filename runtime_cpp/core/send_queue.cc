#include "core/send_queue.h"

#include <algorithm>
#include <utility>

namespace geomx {
namespace {

// A simulation has thousands of queues, whose messages would come from memory one after another.
void Prefetch(const Message& message) {
  constexpr std::size_t kLine = 64;
  const auto* const bytes = reinterpret_cast<const char*>(&message);
  for (std::size_t at = 0; at < sizeof(Message); at += kLine) __builtin_prefetch(bytes + at);
}

}  // namespace

void SendQueue::Push(Message&& message) {
  queued_bytes_ += message.wire_bytes();
  const Header& header = message.header;
  const bool beat = header.kind == Kind::kHeartbeat;
  const auto urgency = static_cast<std::uint32_t>(std::int64_t{INT32_MAX} - header.priority);
  auto& queue = heap(header.channel == 0 ? Lane::kReliable : Lane::kBestEffort);
  if (header.channel != 0) CountIn(header);
  Entry entry{beat ? 0 : (std::uint64_t{header.channel} << 32 | urgency) + 1, sequence_++,
              static_cast<std::uint32_t>(messages_.size())};
  if (free_.empty()) {
    messages_.push_back(std::move(message));
  } else {
    entry.place = free_.back();
    free_.pop_back();
    messages_[entry.place] = std::move(message);
  }
  queue.push_back(entry);
  std::push_heap(queue.begin(), queue.end());
}

Message& SendQueue::Take(std::uint32_t place) {
  queued_bytes_ -= messages_[place].wire_bytes();
  free_.push_back(place);
  return messages_[place];
}

void SendQueue::CountIn(const Header& header) {
  std::vector<Waiting>& rounds = waiting_[ShardOf(header)];
  if (rounds.empty() || rounds.back().round != header.round) rounds.push_back({header.round, 0});
  ++rounds.back().messages;
}

void SendQueue::CountOut(const Header& header) {
  std::vector<Waiting>& rounds = waiting_[ShardOf(header)];
  const auto found = std::find_if(rounds.begin(), rounds.end(),
                                  [&](const Waiting& each) { return each.round == header.round; });
  if (--found->messages == 0) rounds.erase(found);
}

bool SendQueue::Pop(Lane lane, Message& message) {
  auto& queue = heap(lane);
  if (queue.empty()) return false;
  std::pop_heap(queue.begin(), queue.end());
  const std::uint32_t place = queue.back().place;
  queue.pop_back();
  message = std::move(Take(place));
  if (lane == Lane::kBestEffort) CountOut(message.header);
  if (!queue.empty()) Prefetch(messages_[queue.front().place]);
  return true;
}

void SendQueue::Describe(Digest& digest, Digest::Level level) const {
  for (const auto* queue : {&reliable_, &best_effort_}) {
    std::vector<Entry> leaving = *queue;
    std::sort(leaving.rbegin(), leaving.rend());
    digest.Add(std::uint64_t{leaving.size()});
    for (const Entry& entry : leaving) digest.Add(messages_[entry.place], level);
  }
}

// Messages are written in the order in which they leave, and queued again: equal priorities keep it.
void SendQueue::Exchange(Archive& archive) {
  for (auto* queue : {&reliable_, &best_effort_}) {
    std::uint64_t count = queue->size();
    archive(count);
    if (archive.loading()) {
      for (std::uint64_t i = 0; i < count; ++i) {
        Message message;
        archive(message);
        Push(std::move(message));
      }
      continue;
    }
    std::vector<Entry> leaving = *queue;
    std::sort(leaving.rbegin(), leaving.rend());
    for (const Entry& entry : leaving) archive(messages_[entry.place]);
  }
}

bool SendQueue::HasStale(Key key, std::uint32_t shard, Round round) const {
  const auto rounds = waiting_.find(std::uint64_t{key} << 32 | shard);
  return rounds != waiting_.end() && std::any_of(rounds->second.begin(), rounds->second.end(),
                                                 [round](const Waiting& each) { return each.round < round; });
}

std::size_t SendQueue::DropStale(Key key, std::uint32_t shard, Round round) {
  if (!HasStale(key, shard, round)) return 0;
  std::erase_if(waiting_[std::uint64_t{key} << 32 | shard],
                [round](const Waiting& each) { return each.round < round; });
  const std::size_t dropped = std::erase_if(best_effort_, [&](const Entry& entry) {
    const Header& header = messages_[entry.place].header;
    if (header.key != key || header.shard != shard || header.round >= round) return false;
    Take(entry.place).payload = {};  // releases its owner
    return true;
  });
  if (dropped > 0) std::make_heap(best_effort_.begin(), best_effort_.end());
  return dropped;
}

}  // namespace geomx
