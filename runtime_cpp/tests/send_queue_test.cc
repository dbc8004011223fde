// The send queue compared with a reference, a list that is searched for the best message.
#include "core/send_queue.h"

#include <algorithm>

#include "tests/seeds.h"

namespace geomx {
namespace {

using check::Between;

Message Make(std::uint8_t channel, std::int32_t priority, std::uint32_t tag, Round round = 1,
             Key key = 0, std::uint32_t shard = 0, std::size_t bytes = 10) {
  Message message;
  message.header.kind = Kind::kPush;
  message.header.channel = channel;
  message.header.priority = priority;
  message.header.slice = tag;
  message.header.round = round;
  message.header.key = key;
  message.header.shard = shard;
  message.payload = Payload::Phantom(bytes);
  return message;
}

std::optional<Message> Next(SendQueue& queue, Lane lane) {
  std::optional<Message> message(std::in_place);
  if (!queue.Pop(lane, *message)) message.reset();
  return message;
}

TEST(LargestPriorityFirstThenOldest) {
  SendQueue queue;
  const std::int32_t priorities[] = {0, 5, -3, 5, 0, INT32_MAX, INT32_MIN, 5};
  for (std::uint32_t i = 0; i < std::size(priorities); ++i) queue.Push(Make(0, priorities[i], i));
  for (const std::uint32_t expected : {5u, 1u, 3u, 7u, 0u, 4u, 2u, 6u}) {
    CHECK_EQ(Next(queue, Lane::kReliable)->header.slice, expected);
  }
  CHECK(!Next(queue, Lane::kReliable));
}

TEST(LanesAreSeparateAndLowChannelsAreSentFirst) {
  SendQueue queue;
  queue.Push(Make(3, 100, 0));
  queue.Push(Make(1, -100, 1));
  queue.Push(Make(0, 0, 2));
  queue.Push(Make(1, 7, 3));
  CHECK_EQ(Next(queue, Lane::kReliable)->header.slice, 2u);
  CHECK(queue.Empty(Lane::kReliable));
  for (const std::uint32_t expected : {3u, 1u, 0u}) {
    CHECK_EQ(Next(queue, Lane::kBestEffort)->header.slice, expected);
  }
  CHECK(queue.Empty(Lane::kBestEffort));
}

TEST(QueueAgreesWithItsSpecification) {
  check::ForSeeds(60, [](std::uint64_t seed) {
    check::Random random(seed);
    SendQueue queue;
    std::vector<Message> model;  // in order of submission
    const auto lane_of = [](const Message& message) {
      return message.header.channel == 0 ? Lane::kReliable : Lane::kBestEffort;
    };
    for (std::uint32_t i = 0; i < 400; ++i) {
      const std::uint64_t action = Between(random, 0, 9);
      if (action < 5) {
        Message message = Make(static_cast<std::uint8_t>(Between(random, 0, 3)),
                               static_cast<std::int32_t>(Between(random, 0, 3)), i,
                               static_cast<Round>(Between(random, 1, 4)),
                               static_cast<Key>(Between(random, 0, 1)),
                               static_cast<std::uint32_t>(Between(random, 0, 1)),
                               Between(random, 0, 100));
        queue.Push(Message(message));
        model.push_back(std::move(message));
      } else if (action < 9) {
        const Lane lane = action < 7 ? Lane::kReliable : Lane::kBestEffort;
        auto best = model.end();
        for (auto at = model.begin(); at != model.end(); ++at) {
          if (lane_of(*at) != lane) continue;
          const bool better =
              best == model.end() || at->header.channel < best->header.channel ||
              (at->header.channel == best->header.channel &&
               at->header.priority > best->header.priority);
          if (better) best = at;
        }
        CHECK_EQ(queue.Empty(lane), best == model.end());
        const auto popped = Next(queue, lane);
        CHECK_EQ(popped.has_value(), best != model.end());
        if (!popped || best == model.end()) continue;
        CHECK_EQ(popped->header.slice, best->header.slice);
        model.erase(best);
      } else {
        const auto key = static_cast<Key>(Between(random, 0, 1));
        const auto shard = static_cast<std::uint32_t>(Between(random, 0, 1));
        const auto round = static_cast<Round>(Between(random, 1, 5));
        const auto stale = [&](const Message& message) {
          const Header& header = message.header;
          return header.channel != 0 && header.key == key && header.shard == shard &&
                 header.round < round;
        };
        CHECK_EQ(queue.HasStale(key, shard, round), std::any_of(model.begin(), model.end(), stale));
        const std::size_t dropped = std::erase_if(model, stale);
        CHECK_EQ(queue.DropStale(key, shard, round), dropped);
      }
      std::size_t bytes = 0;
      for (const Message& message : model) bytes += message.wire_bytes();
      CHECK_EQ(queue.queued_bytes(), bytes);
    }
  });
}

}  // namespace
}  // namespace geomx
