#include "core/node.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "core/device_value.h"
#include "core/plugin_failure.h"
#include "core/worker.h"
#include "kernels/sums.h"

namespace geomx {
namespace {

std::unique_ptr<RoleLogic> MakeLogic(Node& node, Role role) {
  switch (role) {
    case Role::kWorker: return std::make_unique<Worker>(node);
    case Role::kServer: return MakeServer(node);
    case Role::kGlobalServer: return MakeGlobalServer(node);
    case Role::kScheduler: return MakeScheduler(node);
  }
  throw std::invalid_argument("no such role");
}

const LinkPlan kDensePlan;

// A part that cannot be cut travels in one message.
std::string TooLarge(const Message& message) {
  return "a codec makes " + std::to_string(message.payload.size() >> 20) + " MiB of " +
         std::to_string(message.header.shard_elements) + " elements of key " +
         std::to_string(message.header.key) +
         " that cannot be cut, and a message carries at most " +
         std::to_string(kMaxPayloadBytes >> 20) +
         " MiB: cut the tensor into shards (a partitioner does that), or choose another codec";
}

// No message is larger than a frame, so that an urgent one never waits long for the wire.
std::vector<Slice> IntoFrames(std::span<const Slice> slices, std::uint32_t frame_rows) {
  std::vector<Slice> frames;
  for (Slice rest : slices) {
    while (rest.rows > frame_rows) {
      Slice frame = rest;
      frame.rows = frame_rows;
      frames.push_back(frame);
      rest.first_row += frame.rows;
      rest.rows -= frame.rows;
    }
    frames.push_back(rest);
  }
  return frames;
}

}  // namespace

// Eight keys in a row lie in a row: what is sent together is found together.
std::size_t Node::FlowIdHash::operator()(const FlowId& id) const {
  constexpr std::uint64_t kRow = 7;
  const std::uint64_t within = id.key & kRow;
  std::uint64_t hash = (std::uint64_t{id.key / (kRow + 1)} << 32) ^ id.shard;
  hash ^= (std::uint64_t{id.peer} << 2 | std::uint64_t{id.direction == Direction::kPull} << 1 |
           std::uint64_t{id.plain}) *
          0x9e3779b97f4a7c15u;
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9u;
  hash ^= hash >> 31;
  return ((hash & ~kRow) | within) ^ (within << 32);  // both halves tell keys apart
}

Node::Node(NodeConfig config) : config_(std::move(config)), plainly_{.link = &kDensePlan} {
  std::sort(config_.children.begin(), config_.children.end());
  for (const Peer& peer : config_.peers) peers_.push_back(peer.id);
  std::sort(peers_.begin(), peers_.end());
  peers_.erase(std::unique(peers_.begin(), peers_.end()), peers_.end());
  neighbours_.resize(peers_.size());
  for (const Peer& peer : config_.peers) {
    Neighbour& neighbour = this->neighbour(peer.id);
    neighbour.peer = &peer;
    for (const Direction direction : {Direction::kPush, Direction::kPull}) {
      const auto found = config_.links.find({peer.id, direction});
      neighbour.plans[static_cast<int>(direction)] =
          found == config_.links.end() ? &kDensePlan : &found->second;
    }
    if (IsChild(peer.id)) {
      const auto found = config_.stands_for.find(peer.id);
      neighbour.stands_for = found == config_.stands_for.end() ? 1 : found->second;
    }
    neighbour.parent = std::find(config_.parents.begin(), config_.parents.end(), peer.id) !=
                       config_.parents.end();
  }
  if (config_.frame_bytes == 0) throw std::invalid_argument("frame_bytes must be positive");
  if (!config_.groups.empty()) overlay_.emplace(*this, config_.groups);
  logic_ = MakeLogic(*this, config_.role);
}

Node::~Node() = default;

const Node::Neighbour* Node::FindNeighbour(NodeId id) const {
  const auto found = std::lower_bound(peers_.begin(), peers_.end(), id);
  if (found == peers_.end() || *found != id) return nullptr;
  return &neighbours_[static_cast<std::size_t>(found - peers_.begin())];
}

Node::Neighbour* Node::FindNeighbour(NodeId id) {
  return const_cast<Neighbour*>(static_cast<const Node*>(this)->FindNeighbour(id));
}

Node::Neighbour& Node::neighbour(NodeId id) {
  if (Neighbour* found = FindNeighbour(id)) return *found;
  throw std::logic_error(config_.name + " has no peer " + std::to_string(id));
}

const Peer* Node::FindPeer(NodeId id) const {
  const Neighbour* found = FindNeighbour(id);
  return found == nullptr ? nullptr : found->peer;
}

Worker& Node::worker() {
  if (config_.role != Role::kWorker) throw std::logic_error(config_.name + " is not a worker");
  return static_cast<Worker&>(*logic_);
}

void Node::Initialise(const ShardInfo& shard, Buffer value, Time now) {
  if (config_.role != Role::kGlobalServer || value.size() != shard.elements) {
    throw std::invalid_argument("no initial value for " + config_.name);
  }
  Header header;
  header.kind = Kind::kInit;
  header.flags = kPlain;
  header.merge_count = 1;
  header.key = shard.key;
  header.shard = shard.index;
  header.offset = shard.offset;
  header.shard_elements = shard.elements;
  header.server = shard.server;
  header.priority = INT32_MAX;
  logic_->OnValue(config_.id, header, std::move(value), now);
}

void Node::Instruct(const std::string& text, Time now) {
  if (config_.role != Role::kGlobalServer) {
    throw std::invalid_argument("no instruction for " + config_.name);
  }
  Message message;
  message.header.kind = Kind::kCommand;
  message.payload = Payload::Copy(PackStrings({text}));
  logic_->OnControl(config_.id, message, now);
}

const Buffer* Node::GlobalValue(Key key, std::uint32_t shard) const {
  return config_.role == Role::kGlobalServer ? GlobalValueOf(*logic_, key, shard) : nullptr;
}

// ---- sending ---------------------------------------------------------------------------------

const LinkPlan& Node::plan(NodeId peer, Direction direction) const {
  const Neighbour* found = FindNeighbour(peer);
  return found == nullptr ? kDensePlan : *found->plans[static_cast<int>(direction)];
}

Node::Flow& Node::flow(const FlowId& id, const ShardInfo& shard) {
  const auto [flow, fresh] = flows_.TryEmplace(id);
  if (fresh) flow->handling = MakeHandling(id, shard);
  return *flow;
}

// Null where `plainly_` does as well.
std::unique_ptr<Node::Handling> Node::MakeHandling(const FlowId& id, const ShardInfo& shard) {
  if (id.plain) return nullptr;
  const LinkPlan& link = plan(id.peer, id.direction);
  auto handling = std::make_unique<Handling>(Handling{.link = &link});
  if (AnswersAreSums(id.peer, id.direction)) {
    handling->chain = CodecChain(plan(id.peer, Direction::kPush).codecs, shard);
    handling->sums = handling->chain.Linear();
  }
  if (!handling->sums) handling->chain = CodecChain(link.codecs, shard);
  linear_ = linear_ || handling->chain.Linear();
  for (const auto& factory : link.slicers) handling->slicers.push_back(factory->Make(shard));
  const bool stateless =
      handling->chain.Dense() && link.slicers.empty() && link.grace <= 0 && !overlay_;
  return stateless ? nullptr : std::move(handling);
}

Node::Handling& Node::outgoing(const FlowId& id, const ShardInfo& shard) {
  if (id.plain) return plainly_;
  const LinkPlan& link = plan(id.peer, id.direction);
  const bool may_be_sums = AnswersAreSums(id.peer, id.direction) &&
                           !plan(id.peer, Direction::kPush).codecs.empty();
  const bool plainly = link.codecs.empty() && link.slicers.empty() && !may_be_sums;
  return plainly ? plainly_ : handling(flow(id, shard));
}

// Where updates happen at the parties, global servers answer with sums.
bool Node::AnswersAreSums(NodeId peer, Direction direction) const {
  if (direction != Direction::kPull || !config_.rounds.update_at_party) return false;
  return config_.role == Role::kGlobalServer || (config_.role == Role::kServer && !IsChild(peer));
}

void Node::Queue(NodeId target, Message message) { Queue(neighbour(target), std::move(message)); }

void Node::Queue(Neighbour& target, Message message) {
  message.header.source = config_.id;
  message.header.payload_bytes = static_cast<std::uint32_t>(message.payload.size());
  target.queue.Push(std::move(message));
  if (std::exchange(target.dirty, epoch_) != epoch_) dirty_.push_back(target.peer->id);
}

void Node::SendControl(NodeId target, Kind kind, std::initializer_list<std::string_view> strings,
                       Round round) {
  Message message;
  message.header.kind = kind;
  message.header.round = round;
  message.header.priority = INT32_MAX;
  if (strings.size() > 0) message.payload = Payload::Copy(PackStrings(strings));
  Queue(target, std::move(message));
}

void Node::SendRequest(NodeId target, Header header) {
  header.kind = Kind::kPullRequest;
  Message message;
  message.header = header;
  Queue(target, std::move(message));
}

// The most rows that fit into a frame.
std::uint64_t Node::FrameRows(const Parts& encoded) const {
  const std::uint64_t row_bits = std::max<std::uint64_t>(1, encoded.RowBits());
  return std::max<std::uint64_t>(8, config_.frame_bytes * 8ull / row_bits / 8 * 8);
}

// How many frames of a slice leave as one message. Where nothing would come between the frames of a
// transfer, its last byte arrives when it would anyway; what differs is that receivers begin with
// their work a message later, so transfers are still `kPieces` messages or more. Frames that repeat
// a part of the whole are not alike, and slicers know why they cut.
std::uint64_t Node::Bundle(const Handling& handling, const Parts& encoded) const {
  constexpr std::uint64_t kPieces = 256;
  if (config_.bundle <= 1 || !handling.slicers.empty()) return 1;
  const auto whole = [](const Part& part) { return part.whole; };
  if (std::any_of(encoded.parts.begin(), encoded.parts.end(), whole)) return 1;
  const std::uint64_t frames = encoded.rows / FrameRows(encoded);
  return std::clamp<std::uint64_t>(frames / kPieces, 1, config_.bundle);
}

const std::vector<Slice>& Node::Cut(Handling& handling, const ShardInfo& shard, Round round,
                                    const Parts& encoded, bool plain) {
  std::vector<Slice>& slices = slices_;
  slices.assign(1, {.first_row = 0,
                    .rows = static_cast<std::uint32_t>(encoded.rows),
                    .priority = shard.priority});
  const bool survives_holes = handling.chain.SurvivesHoles();
  if (!plain && !handling.slicers.empty()) {
    const SliceContext context{shard, round, encoded, survives_holes, LossRatio()};
    for (const auto& slicer : handling.slicers) slicer->Cut(context, slices);
  }
  for (const Slice& slice : slices) {
    if (slice.first_row % 8 != 0 && encoded.Packed()) {
      throw std::runtime_error("a slicer cut packed rows at row " +
                               std::to_string(slice.first_row) + ", no multiple of 8");
    }
  }
  const std::uint64_t frame_rows = FrameRows(encoded) * Bundle(handling, encoded);
  const auto too_long = [&](const Slice& slice) { return slice.rows > frame_rows; };
  if (std::any_of(slices.begin(), slices.end(), too_long)) {
    slices = IntoFrames(slices, static_cast<std::uint32_t>(frame_rows));
  }
  // Without a reliable slice the receiver would never know that the round took place.
  const bool any_reliable = std::any_of(slices.begin(), slices.end(),
                                        [](const Slice& slice) { return slice.channel == 0; });
  if (!any_reliable || !survives_holes) {
    for (Slice& slice : slices) {
      slice.channel = 0;
      if (survives_holes) break;
    }
  }
  return slices;
}

// Fills `encoding`, unless what is in there serves this flow too.
void Node::Encode(Handling& handling, const Header& header, const float* value,
                  const std::shared_ptr<const void>& owner, Encoding& encoding) {
  const Handling* before = std::exchange(encoding.handling, &handling);
  if (before != nullptr && before->sums == handling.sums) {
    const bool alike = handling.chain.Stateless() && before->link->codecs == handling.link->codecs;
    if (handling.sums || alike) return;
  }
  if (value == nullptr && handling.chain.Dense()) {
    if (!dense_) dense_ = std::make_shared<Parts>(Parts::Dense(0, nullptr, nullptr));
    encoding.parts = dense_;
    dense_->elements = dense_->rows = header.shard_elements;
    dense_->round = header.round;
    return;
  }
  if (handling.sums) {  // it is encoded
    encoding.parts = std::make_shared<Parts>(
        handling.chain.View(header.shard_elements, header.round, value, owner));
    return;
  }
  encoding.parts = std::make_shared<Parts>(Parts::Dense(header.shard_elements, value, owner));
  encoding.parts->round = header.round;
  if (handling.chain.Dense()) return;
  work_.encode.Add(std::uint64_t{header.shard_elements} * sizeof(float));
  if (value == nullptr) {
    *encoding.parts = handling.chain.Layout(header.shard_elements, header.round);
  } else if (config_.device && config_.device->Suits(header.shard_elements)) {
    handling.chain.EncodeThrough(*config_.device, *encoding.parts);
  } else {
    handling.chain.Encode(*encoding.parts);
  }
}

template <class Take>
void Node::Slices(Handling& handling, Header header, bool phantom,
                  const std::shared_ptr<Parts>& encoded, Take take) {
  const bool plain = (header.flags & kPlain) != 0;
  const std::vector<Slice>& slices =
      Cut(handling, header.shard_info(), header.round, *encoded, plain);
  header.total_rows = static_cast<std::uint32_t>(encoded->rows);
  header.slices = static_cast<std::uint32_t>(slices.size());
  header.reliable = static_cast<std::uint32_t>(std::count_if(
      slices.begin(), slices.end(), [](const Slice& slice) { return slice.channel == 0; }));
  const std::uint64_t frame_rows = FrameRows(*encoded);
  for (std::size_t i = 0; i < slices.size(); ++i) {
    const Slice& slice = slices[i];
    Message message{.header = header, .payload = {}};
    if (config_.bundle > 1 && slice.rows > frame_rows) {
      message.frames = static_cast<std::uint32_t>((slice.rows + frame_rows - 1) / frame_rows);
    }
    message.header.slice = static_cast<std::uint32_t>(i);
    message.header.first_row = slice.first_row;
    message.header.rows = slice.rows;
    message.header.channel = slice.channel;
    message.header.priority = plain ? header.priority : slice.priority;
    if (phantom) {
      message.payload = Payload::Phantom(encoded->SliceBytes(slice.first_row, slice.rows));
    } else {
      std::vector<Bytes> pieces;
      for (const Part& part : encoded->parts) {
        if (!part.IsIn(slice.first_row)) continue;
        const std::uint64_t start = part.whole ? 0 : part.BytesFor(slice.first_row);
        pieces.push_back({part.data + start, part.BytesFor(slice.rows)});
      }
      message.payload = Payload::View(std::move(pieces), encoded);
    }
    if (message.payload.size() > std::uint64_t{message.frames} * kMaxPayloadBytes) {
      throw PluginFailure(TooLarge(message));
    }
    take(std::move(message));
  }
}

std::vector<Message> Node::AllSlices(Handling& handling, const Header& header, bool phantom,
                                     const std::shared_ptr<Parts>& encoded) {
  std::vector<Message> messages;
  Slices(handling, header, phantom, encoded,
         [&](Message message) { messages.push_back(std::move(message)); });
  return messages;
}

void Node::SendValue(std::span<const NodeId> targets, Direction direction, Header header,
                     const float* value, std::shared_ptr<const void> owner, Time now) {
  if (overlay_ && overlay_->Take(targets, direction, header, value, owner, now)) return;
  const ShardInfo shard = header.shard_info();
  const bool plain = (header.flags & kPlain) != 0;
  Encoding encoding;
  for (const NodeId target : targets) {
    Handling& handling = outgoing({target, direction, plain, header.key, header.shard}, shard);
    Encode(handling, header, value, owner, encoding);
    Neighbour& neighbour = this->neighbour(target);
    DropStale(neighbour, header);
    Slices(handling, header, value == nullptr, encoding.parts,
           [&](Message message) { Queue(neighbour, std::move(message)); });
  }
}

void Node::DropStale(Neighbour& target, const Header& header) {
  if (header.round < 2) return;
  stats_.dropped_slices += target.queue.DropStale(header.key, header.shard, header.round - 1);
}

void Node::SendFrom(DeviceValue& device, NodeId target, const Header& header, const float* value,
                    const std::shared_ptr<const void>& owner) {
  struct Leaving {
    std::size_t encoded = 0;  // codecs that are done
    bool cut = false;
    std::vector<Message> messages;  // whose rows are not there yet
  };
  const FlowId id{target, Direction::kPush, false, header.key, header.shard};
  const auto leaving = std::make_shared<Leaving>();
  Parts dense = Parts::Dense(header.shard_elements, value, owner);
  dense.round = header.round;
  const auto encode = [&](kernels::Workplace& place, Parts& parts) {
    if (overlay_) return;  // contributions are added up on their way
    CodecChain& chain = outgoing(id, header.shard_info()).chain;
    if (!chain.Dense()) work_.encode.Add(std::uint64_t{header.shard_elements} * sizeof(float));
    leaving->encoded = chain.EncodeOn(place, parts);
  };
  const auto arrive = [this, id, header, leaving](const std::shared_ptr<Parts>& parts,
                                                  std::uint64_t rows, Time now) {
    const bool all = rows == parts->rows;
    if (overlay_) {
      const auto* there = reinterpret_cast<const float*>(parts->Find("values")->data);
      if (all) SendValue({&id.peer, 1}, id.direction, header, there, parts, now);
      return;
    }
    Handling& handling = outgoing(id, header.shard_info());
    // Other codecs and slicers look at the whole.
    if (!all && (leaving->encoded < handling.chain.size() || !handling.slicers.empty())) return;
    if (!leaving->cut) {
      handling.chain.EncodeFrom(leaving->encoded, *parts);
      leaving->messages = AllSlices(handling, header, false, parts);
      leaving->cut = true;
      DropStale(neighbour(id.peer), header);
    }
    std::vector<Message> later;
    for (Message& message : leaving->messages) {
      const bool there = all || message.header.first_row + message.header.rows <= rows;
      if (there) {
        Queue(id.peer, std::move(message));
      } else {
        later.push_back(std::move(message));
      }
    }
    leaving->messages = std::move(later);
  };
  device.Fetch(std::move(dense), encode, arrive);
}

std::vector<Message> Node::Pack(NodeId peer, Direction direction, const Header& header,
                                const float* value, std::shared_ptr<const void> owner) {
  Handling& handling =
      outgoing({peer, direction, false, header.key, header.shard}, header.shard_info());
  Encoding encoding;
  Encode(handling, header, value, owner, encoding);
  return AllSlices(handling, header, value == nullptr, encoding.parts);
}

void Node::SendMerged(NodeId root, NodeId target, const Header& header, const float* value,
                      std::shared_ptr<const void> owner, Buffer relayed) {
  if (value != nullptr && !relayed.empty()) {
    Handling& handling =
        outgoing({root, Direction::kPush, false, header.key, header.shard}, header.shard_info());
    if (handling.chain.Linear()) {  // the others' are encoded already
      Encoding encoding;
      Encode(handling, header, value, owner, encoding);
      const Buffer mine = CodecChain::Gather(*encoding.parts);
      auto sum = std::make_shared<Buffer>(std::move(relayed));
      const float* const terms[] = {mine.data()};
      kernels::Add(sum->data(), terms, 1, sum->size());
      *encoding.parts =
          handling.chain.View(header.shard_elements, header.round, sum->data(), sum);
      Slices(handling, header, false, encoding.parts,
             [&](Message message) { Queue(target, std::move(message)); });
      return;
    }
    if (!handling.chain.Absorb(relayed)) {
      for (std::size_t i = 0; i < relayed.size(); ++i) relayed[i] += value[i];
      auto sum = std::make_shared<const Buffer>(std::move(relayed));
      value = sum->data();
      owner = std::move(sum);
    }
  }
  for (Message& message : Pack(root, Direction::kPush, header, value, std::move(owner))) {
    Queue(target, std::move(message));
  }
}

std::optional<Message> Node::PollTransmit(NodeId peer, Lane lane) {
  Neighbour* found = FindNeighbour(peer);
  return found == nullptr ? std::nullopt : found->queue.Pop(lane);
}

bool Node::HasMessage(NodeId peer, Lane lane) const {
  const Neighbour* found = FindNeighbour(peer);
  return found != nullptr && !found->queue.Empty(lane);
}

std::optional<Event> Node::PollEvent() {
  if (next_event_ == events_.size()) {
    events_.clear();
    next_event_ = 0;
    return std::nullopt;
  }
  return std::move(events_[next_event_++]);
}

Work Node::TakeWork() { return std::exchange(work_, {}); }

NodeStats Node::stats() const {
  NodeStats stats = stats_;
  for (const auto& [id, flow] : flows_) {
    const Inbox::Stats counts = flow.inbox.stats();
    stats.late_slices += counts.late;
    stats.refused_slices += counts.refused;
    stats.missing_slices += counts.missing;
  }
  return stats;
}

void Node::Describe(Digest& digest) const {
  const auto level = [this](NodeId peer) {
    if (config_.role == Role::kGlobalServer) return Digest::Level::kGlobal;
    const bool up = config_.role == Role::kServer && IsParent(peer);
    return up ? Digest::Level::kGlobal : Digest::Level::kParty;
  };
  for (const auto& [id, flow] : flows_) {
    if (id.plain && !flow.inbox.open()) continue;  // initial values, long gone
    flow.inbox.Describe(digest, level(id.peer));
    if (!flow.handling) continue;
    const Handling& handling = *flow.handling;
    if (!handling.chain.FixedSize()) digest.Unknown();
    for (const auto& slicer : handling.slicers) {
      if (!slicer->Constant()) digest.Unknown();
    }
    digest.Moment(handling.close_at);
  }
  for (const Neighbour& neighbour : neighbours_) {
    neighbour.queue.Describe(digest, level(neighbour.peer->id));
  }
  for (const NodeId peer : dirty_) digest.Add(std::uint64_t{peer});
  for (const Event& event : std::span(events_).subspan(next_event_)) {
    digest.Add(std::uint64_t{static_cast<std::uint8_t>(event.kind)} << 32 | event.key);
    digest.Add(std::uint64_t{event.shard});
    digest.Count(level(config_.id), event.round);
    if (event.kind != Event::Kind::kValueReady && event.kind != Event::Kind::kUpdated) {
      digest.Unknown();
    }
  }
  const bool minds = overlay_ || !config_.coordinators.empty();  // nobody knows what they keep
  if (minds || leaving_ || !closing_.empty() || first_loss_) digest.Unknown();
  logic_->Describe(digest);
}

// ---- receiving -------------------------------------------------------------------------------

void Node::HandleMessage(NodeId from, const Message& message, Time now) {
  if (FindPeer(from) == nullptr) {
    Emit({.kind = Event::Kind::kPeerError, .peer = from, .reason = "not a peer of this node"});
    return;
  }
  if (config_.heartbeat_interval > 0) last_heard_[from] = now;
  const Header& header = message.header;
  const bool about_shard = IsTransfer(header.kind) || header.kind == Kind::kPullRequest;
  std::string refusal;
  if (header.source != from) {
    refusal = "a message in the name of another node";
  } else if (!Expected(from, header)) {
    refusal = std::string("unexpected ") + KindName(header.kind);
  } else if (about_shard && header.shard_elements > config_.max_shard_elements) {
    refusal = "a shard larger than any of this experiment";
  }
  if (!refusal.empty()) return Refuse(from, header, std::move(refusal));
  if (IsTransfer(header.kind)) {
    HandleTransfer(from, message, now);
    return;
  }
  const bool from_scheduler = config_.scheduler == from;
  switch (header.kind) {
    case Kind::kHello:
    case Kind::kHeartbeat:
    case Kind::kRoster:  // the driver read it before this node was made
      return;
    case Kind::kStart:
      if (!from_scheduler || started_) return;
      HandleStarted(now);
      Emit({.kind = Event::Kind::kStarted});
      return;
    case Kind::kStop:
      if (!from_scheduler || stopped_) return;
      stopped_ = true;
      Emit({.kind = Event::Kind::kStopped});
      return;
    case Kind::kReport: HandleReport(from, message, now); return;
    case Kind::kReply: {
      std::vector<std::byte> scratch;
      auto values = UnpackNumbers(message.payload.Contiguous(scratch));
      if (!values) break;
      HandleReply(from, header.key, std::move(*values));
      return;
    }
    case Kind::kDead: {
      std::vector<std::byte> scratch;
      const auto words = UnpackStrings(message.payload.Contiguous(scratch), 2);
      if (from_scheduler && words) {
        Emit({.kind = Event::Kind::kDead, .text = (*words)[0], .reason = (*words)[1]});
        return;
      }
      break;
    }
    case Kind::kBye:
      if (overlay_) overlay_->OnBye(from);
      break;
    default: break;
  }
  logic_->OnControl(from, message, now);
}

void Node::Refuse(NodeId from, const Header& header, std::string reason) {
  if (header.channel != 0) {
    ++stats_.refused_slices;
    return;
  }
  Emit({.kind = Event::Kind::kPeerError, .peer = from, .reason = std::move(reason)});
}

bool Node::IsChild(NodeId id) const {
  return std::binary_search(config_.children.begin(), config_.children.end(), id);
}

bool Node::IsParent(NodeId id) const {
  const Neighbour* found = FindNeighbour(id);
  return found != nullptr && found->parent;
}

std::string Node::Miscount(NodeId child, std::uint32_t merge_count) const {
  const Neighbour* found = FindNeighbour(child);
  const std::uint32_t own = found == nullptr ? 1 : found->stands_for;
  if (merge_count == own) return {};
  if (merge_count > own && overlay_ && overlay_->BringsOthers(config_.id)) return {};
  return "stands for " + std::to_string(merge_count) + " workers, not " + std::to_string(own);
}

// Values come from above, requests and pushes from below, both from beside where an overlay is;
// instructions from either end; only workers wait at barriers.
bool Node::Expected(NodeId from, const Header& header) const {
  if (overlay_ && overlay_->Expects(from, header)) return true;
  switch (header.kind) {
    case Kind::kValue: return IsParent(from);
    case Kind::kInit:
    case Kind::kPush:
    case Kind::kPullRequest: return IsChild(from);
    case Kind::kCommand: return IsChild(from) || IsParent(from);
    case Kind::kRelease: return config_.scheduler == from;
    case Kind::kBarrier:
      return config_.role == Role::kScheduler && FindPeer(from)->role == Role::kWorker;
    default: return true;
  }
}

void Node::HandleTransfer(NodeId from, const Message& message, Time now) {
  const Header& header = message.header;
  std::string error;
  const Direction direction = DirectionOf(header);
  const bool plain = (header.flags & kPlain) != 0;
  const FlowId id{from, direction, plain, header.key, header.shard};
  Flow& flow = this->flow(id, header.shard_info());
  Handling& handling = this->handling(flow);
  if (!handling.chain.Dense() && !handling.chain.Linear()) {
    work_.decode.Add(std::uint64_t{header.rows} * sizeof(float), message.frames);
  }
  Inbox::Outcome outcome = Inbox::Outcome::kError;
  try {
    outcome = flow.inbox.Accept(header, message.payload, handling.chain, error, handling.keep);
  } catch (const Refusal& refusal) {
    error = refusal.what();
  }
  const bool taken = outcome != Inbox::Outcome::kError && outcome != Inbox::Outcome::kRefused;
  if (overlay_ && !plain && taken) {
    handling.bytes += message.wire_bytes();
    if (overlay_->Relays(header)) handling.messages.push_back(message);
  }
  switch (outcome) {
    case Inbox::Outcome::kError: return Refuse(from, header, std::move(error));
    case Inbox::Outcome::kComplete:
      CloseRound(id, flow, now);
      return;
    case Inbox::Outcome::kReliable: {
      const Time grace = handling.link->grace;
      if (grace <= 0) {
        CloseRound(id, flow, now);
      } else if (handling.close_at == kNever) {
        handling.close_at = now + grace;
        closing_.emplace(std::pair{handling.close_at, closing_sequence_++}, id);
      }
      return;
    }
    case Inbox::Outcome::kPartial:
    case Inbox::Outcome::kLate:
    case Inbox::Outcome::kRefused:
      return;
  }
}

void Node::CloseRound(const FlowId& id, Flow& flow, Time now) {
  Handling& handling = this->handling(flow);
  handling.close_at = kNever;
  Header header = flow.inbox.current();
  header.source = id.peer;
  header.key = id.key;
  header.shard = id.shard;
  if (!std::isnan(header.loss)) ReportLoss(id.peer, header.loss);
  Buffer value = flow.inbox.Close();
  if (overlay_ && !id.plain) {
    const std::uint64_t bytes = std::exchange(handling.bytes, 0);
    std::vector<Message> messages = std::exchange(handling.messages, {});
    if (header.kind == Kind::kPush && overlay_->Merge(id.peer, header, value, bytes, now)) {
      return;
    }
    if (header.kind == Kind::kValue) {
      overlay_->Hold(id.peer, header, std::move(messages), bytes, now);
    }
  }
  if (flow.inbox.kept()) {
    logic_->OnEncoded(id.peer, header, std::move(value), now);
    if (leaving_ && !logic_->Unanswered()) SayBye();
    return;
  }
  const auto refuse = [&](std::string reason) {
    Emit({.kind = Event::Kind::kPeerError, .peer = id.peer, .reason = std::move(reason)});
  };
  try {
    if (header.kind == Kind::kValue && handling.sums) {
      auto settled = Settled(header, value);
      if (!settled) return refuse("an unasked sum");
      value = std::move(*settled);
    } else if (header.kind == Kind::kValue && handling.chain.Linear()) {
      value = Decoded(header, std::move(value));
    }
  } catch (const Refusal& refusal) {
    return refuse(refusal.what());
  }
  logic_->OnValue(id.peer, header, std::move(value), now);
  if (leaving_ && !logic_->Unanswered()) SayBye();
}

// ---- linear codecs ---------------------------------------------------------------------------

Buffer Node::Decoded(const Header& header, Buffer value) {
  if (!linear_) return value;
  const bool plain = (header.flags & kPlain) != 0;
  Flow* flow = flows_.Find({header.source, DirectionOf(header), plain, header.key, header.shard});
  if (flow == nullptr || !handling(*flow).chain.Linear()) return value;
  work_.decode.Add(std::uint64_t{header.shard_elements} * sizeof(float));
  if (value.empty()) return value;
  return handling(*flow).chain.Decoded(value, header.shard_elements, header.round);
}

void Node::KeepEncoded(NodeId peer, const ShardInfo& shard) {
  Flow& flow = this->flow({peer, Direction::kPull, false, shard.key, shard.index}, shard);
  if (!flow.handling) return;  // nothing encodes it
  flow.handling->keep = flow.handling->chain.DecodesOnDevices(shard.elements);
}

const CodecChain& Node::Decoder(NodeId peer, const ShardInfo& shard) {
  return handling(flow({peer, Direction::kPull, false, shard.key, shard.index}, shard)).chain;
}

std::uint64_t Node::AddedBytes(const Header& header) {
  Flow* flow = nullptr;
  if (linear_) {
    flow = flows_.Find({header.source, Direction::kPush, false, header.key, header.shard});
  }
  if (flow == nullptr || !handling(*flow).chain.Linear()) {
    return std::uint64_t{header.shard_elements} * sizeof(float);
  }
  const Parts layout = handling(*flow).chain.Layout(header.shard_elements, header.round);
  return layout.SliceBytes(0, layout.rows);
}

// The sum that a push was part of, decoded by the very codecs that encoded the push; they hear of it.
// Nothing if there was no such push. REQUIRES: this is a local server.
std::optional<Buffer> Node::Settled(const Header& header, const Buffer& sum) {
  if (header.server >= config_.parents.size()) return std::nullopt;
  Flow* found = flows_.Find(
      {config_.parents[header.server], Direction::kPush, false, header.key, header.shard});
  if (found == nullptr) return std::nullopt;
  CodecChain& pushed = handling(*found).chain;
  work_.decode.Add(std::uint64_t{header.shard_elements} * sizeof(float));
  if (sum.empty()) return Buffer{};
  Buffer dense = pushed.Decoded(sum, header.shard_elements, header.round);
  pushed.Settle(sum, header.shard_elements, header.round);
  return dense;
}

// ---- coordinators ----------------------------------------------------------------------------

void Node::Report(NodeId host, std::uint32_t number, std::span<const double> values,
                  std::int32_t priority) {
  Message message;
  message.header.kind = Kind::kReport;
  message.header.key = number;
  message.header.priority = priority;
  message.payload = Payload::Copy(PackNumbers(values));
  Queue(host, std::move(message));
}

void Node::Consult(NodeId host, std::uint32_t number, std::span<const double> values, Time now) {
  if (host != config_.id) return Report(host, number, values, INT32_MAX);
  SendReplies(number, config_.coordinators.at(number)->OnReport(host, values, now));
}

void Node::HandleReport(NodeId from, const Message& message, Time now) {
  std::vector<std::byte> scratch;
  const auto found = config_.coordinators.find(message.header.key);
  const auto values = UnpackNumbers(message.payload.Contiguous(scratch));
  if (found == config_.coordinators.end() || !values) {
    Emit({.kind = Event::Kind::kPeerError, .peer = from, .reason = "a report nobody asked for"});
    return;
  }
  if (!SendReplies(found->first, found->second->OnReport(from, *values, now))) {
    Emit({.kind = Event::Kind::kPeerError, .peer = from, .reason = "a report about strangers"});
  }
}

std::string Node::Stranger(NodeId id) const {
  std::string known;
  for (const Peer& peer : config_.peers) {
    known += (known.empty() ? "" : ", ") + std::to_string(peer.id) + " (" + peer.name + ")";
  }
  return " answers node " + std::to_string(id) + ", but " + config_.name + " talks with " + known +
         " alone";
}

// False if somebody whom this node does not know should have had one.
bool Node::SendReplies(std::uint32_t number, std::span<const Coordinator::Reply> replies) {
  bool all = true;
  for (const Coordinator::Reply& reply : replies) {
    if (reply.to == config_.id) {
      HandleReply(reply.to, number, reply.values);
      continue;
    }
    if (FindPeer(reply.to) == nullptr) {
      const std::string whose = config_.coordinators.at(number)->whose();
      if (!whose.empty()) throw PluginFailure(whose + Stranger(reply.to));
      all = false;
      continue;
    }
    Message message;
    message.header.kind = Kind::kReply;
    message.header.key = number;
    message.header.priority = INT32_MAX;
    message.payload = Payload::Copy(PackNumbers(reply.values));
    Queue(reply.to, std::move(message));
  }
  return all;
}

void Node::HandleReply(NodeId from, std::uint32_t number, std::vector<double> values) {
  if (overlay_ && overlay_->Obey(from, number, values)) return;
  Emit({.kind = Event::Kind::kReply, .peer = from, .key = number, .values = std::move(values)});
}

std::string Node::SizesDiffer(const Header& header, NodeId peer, NodeId other,
                              std::uint32_t elements) const {
  const auto name = [&](NodeId id) {
    const Peer* found = FindPeer(id);
    return found == nullptr ? config_.name : found->name;
  };
  return "key " + std::to_string(header.key) + " (piece " + std::to_string(header.shard) + ") has " +
         std::to_string(header.shard_elements) + " elements at " + name(peer) + " and " +
         std::to_string(elements) + " at " + name(other) +
         ": all workers must give a key the same shape";
}

// ---- losses ----------------------------------------------------------------------------------

void Node::ReportLoss(NodeId worker, float loss) {
  losses_[worker] = loss;
  loss_ratio_.reset();
  if (!first_loss_ && losses_.size() == config_.children.size()) {
    double sum = 0;
    for (const auto& [id, value] : losses_) sum += value;
    first_loss_ = sum / static_cast<double>(losses_.size());
  }
}

double Node::LossRatio() {
  if (!first_loss_ || *first_loss_ <= 0) return std::nan("");
  if (loss_ratio_) return *loss_ratio_;
  double sum = 0;
  for (const auto& [id, value] : losses_) sum += value;
  loss_ratio_ = sum / static_cast<double>(losses_.size()) / *first_loss_;
  return *loss_ratio_;
}

// ---- membership ------------------------------------------------------------------------------

void Node::AssumeStarted() { started_ = true; }

std::vector<Wait> Node::ListWaits() const {
  Waits waits;
  if (stopped_) return {};
  logic_->ListWaits(waits);
  if (left_ && config_.scheduler) waits.Add({.kind = Wait::Kind::kStop, .whom = {*config_.scheduler}});
  return waits.Take();
}

void Node::HandleStarted(Time now) {
  started_ = true;
  if (config_.heartbeat_interval <= 0) return;
  next_heartbeat_ = now;
  for (const NodeId id : peers_) last_heard_[id] = now;
}

void Node::Ready(Time now) {
  last_heard_[*config_.scheduler] = now;
  SendControl(*config_.scheduler, Kind::kReady);
}

void Node::Leave(Time now) {
  (void)now;
  leaving_ = left_ = true;
  if (!logic_->Unanswered()) SayBye();
}

void Node::SayBye() {
  leaving_ = false;
  if (config_.scheduler) SendControl(*config_.scheduler, Kind::kBye);
  TellFinished();
}

void Node::TellFinished() {
  for (const NodeId parent : config_.parents) SendControl(parent, Kind::kBye);
  if (!overlay_) return;
  for (const NodeId sibling : overlay_->Siblings()) SendControl(sibling, Kind::kBye);
}

void Node::EndRound(NodeId left, Round reached, NodeId waiting, Key key, Round round) {
  if (std::exchange(ended_round_, true)) return;
  const Peer* member = FindPeer(waiting);  // null: this node itself
  SendControl(*config_.scheduler, Kind::kDead,
              {FindPeer(left)->name,
               "it left after round " + std::to_string(reached) + " of key " +
                   std::to_string(key) + " while " + (member ? member->name : config_.name) +
                   " waits for round " + std::to_string(round) +
                   ": every worker must push every key equally often"});
}

void RoleLogic::OnLinkDown(NodeId peer, const std::string& reason, Time now) {
  (void)now;
  const Peer* lost = node_.FindPeer(peer);
  if (lost == nullptr) return;
  if (node_.config().scheduler == peer) {
    node_.Emit({.kind = Event::Kind::kDead, .text = lost->name, .reason = reason});
  } else {
    const Round link = reason.starts_with(kBrokeProtocol) ? 0 : kLinkEnded;
    node_.SendControl(*node_.config().scheduler, Kind::kDead, {lost->name, reason}, link);
  }
}

void Node::HandleLinkDown(NodeId peer, const std::string& reason, Time now) {
  if (!stopped_) logic_->OnLinkDown(peer, reason, now);
}

Time Node::PollTimeout() const {
  Time earliest = logic_->NextTimeout();
  for (const auto& [number, coordinator] : config_.coordinators) {
    earliest = std::min(earliest, coordinator->NextTimeout());
  }
  if (!closing_.empty()) earliest = std::min(earliest, closing_.begin()->first.first);
  if (!stopped_) earliest = std::min(earliest, next_heartbeat_);
  return earliest;
}

void Node::HandleTimeout(Time now) {
  while (!closing_.empty() && closing_.begin()->first.first <= now) {
    const auto [when, id] = *closing_.begin();
    closing_.erase(closing_.begin());
    Flow* flow = flows_.Find(id);
    if (flow != nullptr && handling(*flow).close_at == when.first) CloseRound(id, *flow, now);
  }
  if (!stopped_ && next_heartbeat_ <= now) {
    const Time late = now - next_heartbeat_;
    if (late > config_.heartbeat_interval) {
      // This node did not run (it was stopped, or its machine slept): what came meanwhile is still
      // to be read, so that time is no silence of the others.
      for (auto& [id, heard] : last_heard_) heard = std::min(now, heard + late);
    }
    next_heartbeat_ = now + config_.heartbeat_interval;
    SendHeartbeats(now);
    CheckHeartbeats(now);
  }
  for (const auto& [number, coordinator] : config_.coordinators) {
    if (coordinator->NextTimeout() <= now) SendReplies(number, coordinator->OnTimeout(now));
  }
  logic_->OnTimeout(now);
}

void Node::SendHeartbeats(Time now) {
  (void)now;
  if (config_.scheduler) {
    SendControl(*config_.scheduler, Kind::kHeartbeat);
    return;
  }
  for (const NodeId id : peers_) SendControl(id, Kind::kHeartbeat);
}

void Node::CheckHeartbeats(Time now) {
  for (const NodeId id : peers_) {
    if (config_.scheduler && config_.scheduler != id) continue;  // members watch their scheduler
    Time& heard = last_heard_.try_emplace(id, now).first->second;
    if (now - heard <= config_.failure_timeout) continue;
    heard = now;  // report once per timeout, not once per beat
    HandleLinkDown(id, "nothing heard for " +
                           std::to_string(config_.failure_timeout / kMillisecond) + " ms", now);
  }
}

}  // namespace geomx
