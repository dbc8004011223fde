#include "core/worker.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "core/optimizer_states.h"
#include "kernels/sums.h"

namespace geomx {
namespace {

constexpr std::uint64_t kNonFiniteTold = 3;  // pushes of a worker that are reported individually

}  // namespace

Worker::SharedShards Worker::Cut(Key key, std::uint64_t elements, std::vector<ShardInfo> shards, std::uint32_t name) {
  std::uint64_t covered = 0;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    ShardInfo& shard = shards[i];
    shard.key = key;
    shard.index = static_cast<std::uint32_t>(i);
    shard.name = name;
    if (shard.offset != covered || shard.elements == 0) {
      throw std::invalid_argument("shards of key " + std::to_string(key) + " do not cover it");
    }
    covered += shard.elements;
  }
  if (covered != elements || elements == 0) {
    throw std::invalid_argument("shards of key " + std::to_string(key) + " do not cover it");
  }
  return std::make_shared<const std::vector<ShardInfo>>(std::move(shards));
}

void Worker::Declare(Key key, std::uint64_t elements, SharedShards shards) {
  const auto [tensor, fresh] = tensors_.TryEmplace(key);
  if (fresh) {
    tensor->shards = std::move(shards);
  } else if (tensor->elements() != elements) {
    throw std::invalid_argument("key " + std::to_string(key) + " already has " +
                                std::to_string(tensor->elements()) + " elements, not " +
                                std::to_string(elements));
  }
}

Worker::Tensor& Worker::tensor(Key key) {
  if (Tensor* found = tensors_.Find(key)) return *found;
  throw std::invalid_argument("key " + std::to_string(key) + " was never initialised");
}

void Worker::Init(Key key, const float* value, std::shared_ptr<const void> owner, Time now) {
  Tensor& tensor = this->tensor(key);
  const NodeId server = node_.config().parents.front();
  for (const ShardInfo& shard : *tensor.shards) {
    const float* part = value == nullptr ? nullptr : value + shard.offset;
    node_.Send({&server, 1}, {InitialHeader(shard), part, owner}, now);
  }
}

void Worker::Await(Tensor& tensor) {
  tensor.waiting = true;
  tensor.absent = true;
  tensor.missing = static_cast<std::uint32_t>(tensor.shards->size());
  tensor.arrived = SliceSet(tensor.missing);
}

Round Worker::Submit(Key key, Push push, Time now) {
  Tensor& tensor = this->tensor(key);
  const Round round = tensor.submitted + 1;
  if (!Acceptable(key, tensor, push)) return round;
  if (tensor.complete == tensor.submitted) ++unanswered_;
  tensor.submitted = round;
  if (tensor.waiting) {
    tensor.Contents().queue.push_back(std::move(push));
  } else {
    Send(tensor, push, now);
  }
  return round;
}

// Checks the values on the host before they are encoded: a NaN in a sum would reach every replica.
// Returns false if the push must not be sent.
bool Worker::Acceptable(Key key, const Tensor& tensor, const Push& push) {
  const NonFinite rule = node_.config().non_finite;
  if (rule == NonFinite::kIgnore || push.value == nullptr || push.device || push.finite) return true;
  if (kernels::AllFinite(push.value, tensor.elements())) return true;
  const bool refuse = rule == NonFinite::kRefuse;
  if (++node_.counts().non_finite_pushes <= kNonFiniteTold || refuse) {
    const auto bad = std::count_if(push.value, push.value + tensor.elements(),
                                   [](float value) { return !std::isfinite(value); });
    node_.Emit({.kind = Event::Kind::kNonFinite,
                .key = key,
                .round = tensor.submitted + 1,
                .text = std::to_string(bad) + " of " + std::to_string(tensor.elements()) +
                        " values NaN or infinite"});
  }
  return !refuse;
}

std::string NonFiniteText(const std::string& worker, const std::string& key, Round round,
                          const std::string& what, bool refused) {
  const std::string text =
      worker + " pushed round " + std::to_string(round) + " of " + key + " with " + what;
  return text + (refused ? ": runtime.non_finite=refuse ends the run before others take it over"
                         : ", which all replicas take over: runtime.non_finite=refuse ends the "
                           "run instead, ignore says nothing");
}

void Worker::Send(Tensor& tensor, const Push& push, Time now) {
  Await(tensor);
  ++tensor.sent;
  const std::uint32_t steps = push.made > tensor.made ? push.made - tensor.made : 1;
  tensor.made = std::max(tensor.made, push.made);
  const NodeId server = node_.config().parents.front();
  for (const ShardInfo& shard : *tensor.shards) {
    Header header = ShardHeader(Kind::kPush, shard);
    header.flags = (push.last ? kLast : 0) | (push.absent ? kAbsent : 0) | (told_ ? kTold : 0);
    header.merge_count = 1;
    header.round = tensor.sent;
    header.steps = steps;
    header.loss = push.loss;
    const float* value = push.value == nullptr ? nullptr : push.value + shard.offset;
    node_.Send({&server, 1}, {header, value, push.owner, push.device.get()}, now);
  }
}

void Worker::Request(Key key, Time) {
  Tensor& tensor = this->tensor(key);
  if (tensor.waiting) return;  // an answer is on its way
  if (tensor.has_value) {
    node_.Emit({.kind = Event::Kind::kValueReady, .key = key, .round = tensor.complete});
    return;
  }
  Await(tensor);
  const NodeId server = node_.config().parents.front();
  for (const ShardInfo& shard : *tensor.shards) {
    node_.Send(server, Message{.header = ShardHeader(Kind::kPullRequest, shard)});
  }
}

void Worker::Barrier(Time) {
  node_.Send(*node_.config().scheduler, ControlMessage(Kind::kBarrier, {}, ++barriers_));
  TellServer(barriers_);
}

void Worker::TellServer(Round barrier) {
  if (!node_.config().rounds.early) return;
  Message message = ControlMessage(Kind::kBarrier, {}, barrier);
  message.header.priority = INT32_MIN;  // after queued pushes, which the server must count first
  node_.Send(node_.config().parents.front(), std::move(message));
}

void Worker::Command(const std::string& text, Time, bool unless_given) {
  asks_states_ = asks_states_ || text == kAskVerb;
  told_ = told_ || !IsAboutStates(text);
  if (text.empty()) return;
  node_.Send(node_.config().parents.front(), ControlMessage(Kind::kCommand, {text}, unless_given ? kUnlessGiven : 0));
}

std::span<const float> Worker::Value(Key key) {
  Tensor* tensor = tensors_.Find(key);
  if (tensor == nullptr || !tensor->content) return {};
  Content& content = *tensor->content;
  const NodeId server = node_.config().parents.front();
  for (const auto& [index, kept] : std::exchange(content.encoded, {})) {
    const auto& [round, encoded] = kept;
    const ShardInfo& shard = (*tensor->shards)[index];
    const Buffer value = node_.flows().Decoder(server, shard).Decoded(*encoded, shard.elements, round);
    content.value.resize(tensor->elements(), 0.0f);
    std::copy(value.begin(), value.end(), content.value.begin() + shard.offset);
  }
  for (const auto& [index, rows] : std::exchange(content.borrowed, {})) {
    content.value.resize(tensor->elements(), 0.0f);
    float* const shard = content.value.data() + (*tensor->shards)[index].offset;
    for (const BorrowedRows& each : rows) {
      std::vector<std::byte> scratch;
      const Bytes bytes = each.payload.Contiguous(scratch);
      std::memcpy(shard + each.first_row, bytes.data(), bytes.size());
    }
  }
  return content.value;
}

void Worker::KeepEncoded(Key key) {
  for (const ShardInfo& shard : *tensor(key).shards) {
    node_.flows().KeepEncoded(node_.config().parents.front(), shard);
  }
}

std::vector<Worker::Encoded> Worker::EncodedValue(Key key) {
  const Tensor& tensor = this->tensor(key);
  if (!tensor.content || tensor.content->encoded.size() != tensor.shards->size()) return {};
  std::vector<Encoded> shards;
  for (const auto& [index, kept] : tensor.content->encoded) {
    const auto& [round, encoded] = kept;
    const ShardInfo& shard = (*tensor.shards)[index];
    const CodecChain& decoder = node_.flows().Decoder(node_.config().parents.front(), shard);
    shards.push_back({shard.offset,
                      decoder.View(shard.elements, round, encoded->data(), encoded), &decoder});
  }
  return shards;
}

std::vector<Key> Worker::Keys() const {
  std::vector<Key> keys;
  for (const auto& [key, tensor] : tensors_) keys.push_back(key);
  return keys;
}

std::string Worker::Objection(NodeId, const Header& header) const {
  const Tensor* tensor = tensors_.Find(header.key);
  if (tensor == nullptr || header.shard >= tensor->shards->size()) {
    return std::string("an unasked ") + KindName(header.kind);
  }
  const bool same = (*tensor->shards)[header.shard].elements == header.shard_elements;
  return same ? "" : std::string("a ") + KindName(header.kind) + " of the wrong size";
}

void Worker::CountOn(Tensor& tensor, Round round) {
  const bool earlier = node_.config().rounds.early && tensor.missing < tensor.shards->size();
  if (earlier ? round >= tensor.sent : round <= tensor.sent) return;
  const Round missed = round - tensor.sent;  // modulo 2^32
  for (Round* each : {&tensor.sent, &tensor.submitted, &tensor.complete}) *each += missed;
}

template <class Store>
void Worker::Arrive(NodeId peer, const Header& header, Store store, Time now) {
  const auto fail = [&](const char* reason) { node_.Fail(peer, reason); };
  Tensor* found = tensors_.Find(header.key);
  if (header.kind != Kind::kValue || found == nullptr) return fail("an unasked value");
  Tensor& tensor = *found;
  if (header.shard >= tensor.shards->size() || !tensor.waiting) return fail("an unasked value");
  const ShardInfo& shard = (*tensor.shards)[header.shard];
  if (shard.elements != header.shard_elements) return fail("a value of the wrong size");
  const bool later = header.round > tensor.sent && node_.config().rounds.early;
  if ((header.flags & kPlain) == 0 && header.round != tensor.sent && !later) {
    return fail("a value of another round");
  }
  if (tensor.arrived.Has(header.shard)) return;
  tensor.arrived.Add(header.shard);
  if ((header.flags & kPlain) != 0) CountOn(tensor, header.round);
  tensor.reached = std::max(tensor.reached, header.round);
  tensor.absent = tensor.absent && (header.flags & kAbsent) != 0;
  store(tensor, shard);
  if (--tensor.missing > 0) return;
  tensor.waiting = false;
  tensor.has_value = true;
  if (tensor.complete < tensor.submitted && tensor.sent == tensor.submitted) --unanswered_;
  tensor.complete = tensor.sent;
  ++node_.counts().rounds;
  node_.Emit({.kind = Event::Kind::kValueReady, .key = header.key, .round = tensor.complete});
  if (tensor.sent == tensor.submitted) return;
  const Push next = std::move(tensor.content->queue.front());
  tensor.content->queue.pop_front();
  Send(tensor, next, now);
}

void Worker::OnValue(NodeId peer, const Header& header, Buffer value, Time now) {
  const auto store = [&](Tensor& tensor, const ShardInfo& shard) {
    if (value.empty() && !tensor.content) return;
    Content& content = tensor.Contents();
    content.encoded.erase(shard.index);
    content.borrowed.erase(shard.index);
    if (!value.empty() && tensor.shards->size() == 1) {
      content.value = std::move(value);
    } else if (!value.empty()) {
      content.value.resize(tensor.elements(), 0.0f);
      std::copy(value.begin(), value.end(), content.value.begin() + shard.offset);
    }
  };
  Arrive(peer, header, store, now);
}

void Worker::OnEncoded(NodeId peer, const Header& header, Buffer encoded, Time now) {
  const auto store = [&](Tensor& tensor, const ShardInfo& shard) {
    tensor.Contents().borrowed.erase(shard.index);
    tensor.Contents().encoded[shard.index] = {header.round,
                                              std::make_shared<const Buffer>(std::move(encoded))};
  };
  Arrive(peer, header, store, now);
}

void Worker::OnBorrowed(NodeId peer, const Header& header, Borrowed rows, Time now) {
  const auto store = [&](Tensor& tensor, const ShardInfo& shard) {
    tensor.Contents().encoded.erase(shard.index);
    tensor.Contents().borrowed[shard.index] = std::move(rows);
  };
  Arrive(peer, header, store, now);
}

bool Worker::Unanswered() const { return unanswered_ > 0; }

void Worker::ListWaits(Waits& waits) const {
  for (const auto& [key, tensor] : tensors_) {
    if (!tensor.waiting) continue;
    const bool initial = tensor.sent == 0;
    waits.Add({.kind = initial ? Wait::Kind::kInitial : Wait::Kind::kAnswer,
               .whom = {node_.config().parents.front()},
               .key = key,
               .round = tensor.sent});
  }
  if (released_ < barriers_) {
    waits.Add({.kind = Wait::Kind::kRelease,
               .whom = {*node_.config().scheduler},
               .round = released_ + 1});
  }
}

void Worker::Describe(Digest& digest) const {
  for (const auto& [key, tensor] : tensors_) {
    digest.Add(std::uint64_t{tensor.missing} << 2 | std::uint64_t{tensor.waiting} << 1 |
               std::uint64_t{tensor.has_value});
    for (const ShardInfo& shard : *tensor.shards) {
      digest.Add(std::uint64_t{tensor.arrived.Has(shard.index)});
    }
    digest.Count(Digest::Level::kParty, tensor.sent);
    digest.Count(Digest::Level::kParty, tensor.submitted);
    digest.Count(Digest::Level::kParty, tensor.complete);
    if (tensor.sent < tensor.submitted) digest.Unknown();
  }
}

// Without its local server a worker cannot take part in the run.
void Worker::OnMember(NodeId member, bool back, Time) {
  if (back || member != node_.config().parents.front() || !node_.started()) return;
  node_.Emit({.kind = Event::Kind::kDead,
              .peer = member,
              .text = node_.FindPeer(member)->name,
              .reason = "the party's local server is lost"});
}

void Worker::OnControl(NodeId peer, const Message& message, Time now) {
  (void)now;
  if (message.header.kind == Kind::kCommand) {
    std::vector<std::byte> scratch;
    const auto text = UnpackStrings(message.payload.Contiguous(scratch), 1);
    if (!text) return node_.Fail(peer, "a malformed state");
    return node_.Emit({.kind = Event::Kind::kState, .peer = peer, .text = text->front()});
  }
  if (message.header.kind == Kind::kRelease) {
    released_ = std::max(released_, message.header.round);
    if (released_ >= barriers_) TellServer(0);
    node_.Emit({.kind = Event::Kind::kBarrier, .round = message.header.round});
  }
}

}  // namespace geomx
