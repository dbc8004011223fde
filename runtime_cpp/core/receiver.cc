#include "core/receiver.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "core/plugin_failure.h"

namespace geomx {
namespace {

// What a kept message takes.
std::uint64_t BytesOf(const Message& message) {
  return sizeof(Message) + (message.payload.phantom() ? 0 : message.payload.size());
}

}  // namespace

void Receiver::Accept(NodeId from, const Message& message, Time now) {
  const Header& header = message.header;
  const FlowId id = FlowOf(from, header);
  Flow* known = flows_.Find(id);
  if (known == nullptr || !known->inbox.begun()) {
    if (overlay_ && overlay_->MayComeFirst(from, header) && !role_->Knows(header)) return Keep(id, message);
    std::string objection = role_->Objection(from, header);
    if (!objection.empty()) return state_.Refuse(from, header, std::move(objection));
  }
  if ((header.flags & kTold) != 0 && !role_->IsTold(header)) return Keep(id, message);
  Flow& flow = known != nullptr ? *known : flows_.Get(id, header.shard_info());
  Pipeline& pipeline = flows_.PipelineOf(flow);
  if (!pipeline.chain.Dense() && !pipeline.chain.Linear()) {
    state_.work.decode.Add(std::uint64_t{header.rows} * sizeof(float), message.frames);
  }
  std::string error;
  Inbox::Outcome outcome = Inbox::Outcome::kError;
  try {
    const bool again = state_.config.continues && id.plain && header.kind == Kind::kValue;
    const bool borrow = state_.config.borrow_values && !overlay_ && !pipeline.sums &&
                        header.kind == Kind::kValue;
    outcome = flow.inbox.Accept(header, message.payload, pipeline.chain, error,
                                {.keep = pipeline.keep, .again = again, .borrow = borrow,
                                 .scattered = overlay_.has_value()});
  } catch (const Refusal& refusal) {
    error = refusal.what();
  }
  const bool taken = outcome != Inbox::Outcome::kError && outcome != Inbox::Outcome::kRefused;
  if (overlay_ && !id.plain && taken) {
    if (pipeline.bytes == 0) pipeline.began = now;
    pipeline.bytes += message.wire_bytes();
    if (overlay_->Relays(header)) pipeline.messages.push_back(message);
  }
  switch (outcome) {
    case Inbox::Outcome::kError: return state_.Refuse(from, header, std::move(error));
    case Inbox::Outcome::kComplete: return Close(id, flow, now);
    case Inbox::Outcome::kReliable: {
      const Time grace = pipeline.link->grace;
      if (grace <= 0) {
        Close(id, flow, now);
      } else if (pipeline.close_at == kNever) {
        pipeline.close_at = now + grace;
        closing_.emplace(std::pair{pipeline.close_at, closing_sequence_++}, id);
      }
      return;
    }
    case Inbox::Outcome::kPartial:
    case Inbox::Outcome::kLate:
    case Inbox::Outcome::kRefused:
      return;
  }
}

void Receiver::Keep(const FlowId& id, const Message& message) {
  const Header& header = message.header;
  const ShardId shard{id.key, id.shard};
  if (early_.size() >= kMostEarly && !early_.contains(shard)) {
    return state_.Refuse(id.peer, header, "contributions to too many keys that were never initialised");
  }
  std::vector<Message>& messages = early_[shard][id];
  if (!messages.empty() && messages.size() >= messages.front().header.slices) {
    return state_.Refuse(id.peer, header, "more slices of a contribution than it has");
  }
  messages.push_back(message);
  early_bytes_[id.peer] += BytesOf(message);
  const auto add = [](std::uint64_t sum, const auto& each) { return sum + each.second; };
  const std::uint64_t most = state_.config.most_early_bytes;
  if (std::accumulate(early_bytes_.begin(), early_bytes_.end(), std::uint64_t{0}, add) <= most) return;
  const auto bytes = [](const auto& each) { return each.second; };
  const NodeId largest = std::ranges::max_element(early_bytes_, {}, bytes)->first;
  Forget(largest);
  state_.Fail(largest, "contributions that cannot be used yet, of keys that were never initialised or before the "
                       "optimizer is known: all of these may take " + std::to_string(most) +
                       " bytes here, half of the memory that was free");
}

void Receiver::Forget(NodeId peer) {
  if (early_bytes_.erase(peer) == 0) return;
  for (auto& each : early_) {
    std::erase_if(each.second, [peer](const auto& flow) { return flow.first.peer == peer; });
  }
  std::erase_if(early_, [](const auto& each) { return each.second.empty(); });
}

void Receiver::Resume(ShardId shard, Time now) {
  const auto found = early_.find(shard);
  if (found == early_.end()) return;
  const std::map<FlowId, std::vector<Message>> kept = std::move(found->second);
  early_.erase(found);
  for (const auto& [id, messages] : kept) {
    for (const Message& message : messages) early_bytes_[id.peer] -= BytesOf(message);
  }
  for (const auto& [id, messages] : kept) {
    for (const Message& message : messages) Accept(id.peer, message, now);
  }
}

void Receiver::ResumeAll(Time now) {
  std::vector<ShardId> shards;
  for (const auto& [shard, messages] : early_) shards.push_back(shard);
  for (const ShardId& shard : shards) Resume(shard, now);
}

std::shared_ptr<std::byte> Receiver::Room(NodeId from, const Header& header) {
  Flow* const flow = overlay_ ? nullptr : flows_.Find(FlowOf(from, header));
  return flow != nullptr && flows_.PipelineOf(*flow).chain.Dense() ? flow->inbox.Room(header) : nullptr;
}

void Receiver::CloseDue(Time now) {
  while (NextTimeout() <= now && waiting()) {
    const auto [when, id] = *closing_.begin();
    closing_.erase(closing_.begin());
    Flow* flow = flows_.Find(id);
    if (flow != nullptr && flows_.PipelineOf(*flow).close_at == when.first) Close(id, *flow, now);
  }
}

void Receiver::CloseWaiting(NodeId peer, Time now) {
  std::vector<FlowId> waiting;
  std::erase_if(closing_, [&](const auto& each) {
    if (each.second.peer != peer) return false;
    waiting.push_back(each.second);
    return true;
  });
  for (const FlowId& id : waiting) {
    Flow* const flow = flows_.Find(id);
    if (flow != nullptr && flows_.PipelineOf(*flow).close_at != kNever) Close(id, *flow, now);
  }
}

void Receiver::Close(const FlowId& id, Flow& flow, Time now) {
  Pipeline& pipeline = flows_.PipelineOf(flow);
  pipeline.close_at = kNever;
  Header header = flow.inbox.current();
  header.source = id.peer;
  header.key = id.key;
  header.shard = id.shard;
  if (std::isfinite(header.loss)) {
    state_.losses.Report(id.peer, header.loss, state_.peers.PresentChildren());
  }
  Buffer value = flow.inbox.Close();
  if (overlay_ && !id.plain) {
    const Arrival arrival{std::exchange(pipeline.bytes, 0), now - pipeline.began};
    std::vector<Message> messages = std::exchange(pipeline.messages, {});
    if (header.kind == Kind::kPush && overlay_->Merge(id.peer, header, value, arrival, now)) return;
    if (header.kind == Kind::kValue) {
      overlay_->Hold(id.peer, header, std::move(messages), arrival, now);
    }
  }
  if (flow.inbox.borrowed()) return role_->OnBorrowed(id.peer, header, flow.inbox.TakeBorrowed(), now);
  if (flow.inbox.kept()) return role_->OnEncoded(id.peer, header, std::move(value), now);
  std::optional<Buffer> taken;
  try {
    taken = Value(pipeline, header, std::move(value));
  } catch (const Refusal& refusal) {
    return state_.Fail(id.peer, refusal.what());
  }
  if (!taken) return state_.Fail(id.peer, "an unasked sum");
  role_->OnValue(id.peer, header, std::move(*taken), now);
  if ((id.plain || header.kind == Kind::kInit) && early_.contains({id.key, id.shard})) Resume({id.key, id.shard}, now);
}

std::optional<Buffer> Receiver::Value(const Pipeline& pipeline, const Header& header,
                                      Buffer value) {
  if (header.kind != Kind::kValue) return value;
  if (pipeline.sums) return sums_.Settled(header, value);
  if (pipeline.chain.Linear()) return sums_.Decoded(header, std::move(value));
  return value;
}

}  // namespace geomx
