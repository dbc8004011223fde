#include "core/flow.h"

#include <cmath>
#include <utility>

namespace geomx {

FlowTable::FlowTable(const NodeConfig& config, const Peers& peers)
    : config_(config), peers_(peers), shared_{.link = &kDensePlan} {}

Flow& FlowTable::Get(const FlowId& id, const ShardInfo& shard) {
  const auto [flow, fresh] = flows_.TryEmplace(id);
  if (fresh) flow->pipeline = Make(id, shard);
  return *flow;
}

std::unique_ptr<Pipeline> FlowTable::Make(const FlowId& id, const ShardInfo& shard) {
  if (id.plain) return nullptr;
  const LinkPlan& link = peers_.Plan(id.peer, id.direction);
  auto pipeline = std::make_unique<Pipeline>(Pipeline{.link = &link, .shard = shard});
  if (AnswersAreSums(id.peer, id.direction)) {
    pipeline->chain = CodecChain(peers_.Plan(id.peer, Direction::kPush).codecs, shard);
    pipeline->sums = pipeline->chain.Linear();
  }
  if (!pipeline->sums) pipeline->chain = CodecChain(link.codecs, shard);
  linear_ = linear_ || pipeline->chain.Linear();
  for (const auto& factory : link.slicers) pipeline->slicers.push_back(factory->Make(shard));
  const bool stateless = pipeline->chain.Dense() && link.slicers.empty() && link.grace <= 0 &&
                         config_.groups.empty();
  return stateless ? nullptr : std::move(pipeline);
}

Pipeline& FlowTable::Outgoing(const FlowId& id, const ShardInfo& shard) {
  if (id.plain) return shared_;
  const LinkPlan& link = peers_.Plan(id.peer, id.direction);
  const bool may_be_sums = AnswersAreSums(id.peer, id.direction) &&
                           !peers_.Plan(id.peer, Direction::kPush).codecs.empty();
  const bool stateless = link.codecs.empty() && link.slicers.empty() && !may_be_sums;
  return stateless ? shared_ : PipelineOf(Get(id, shard));
}

bool FlowTable::AnswersAreSums(NodeId peer, Direction direction) const {
  if (direction != Direction::kPull || !config_.rounds.update_at_party) return false;
  return config_.role == Role::kGlobalServer ||
         (config_.role == Role::kServer && !peers_.IsChild(peer));
}

void FlowTable::KeepEncoded(NodeId peer, const ShardInfo& shard) {
  Flow& flow = Get({peer, Direction::kPull, false, shard.key, shard.index}, shard);
  if (!flow.pipeline) return;  // not encoded
  flow.pipeline->keep = flow.pipeline->chain.DecodesOnDevices(shard.elements);
}

const CodecChain& FlowTable::Decoder(NodeId peer, const ShardInfo& shard) {
  return PipelineOf(Get({peer, Direction::kPull, false, shard.key, shard.index}, shard)).chain;
}

std::span<const float> FlowTable::Kept(NodeId peer, const Header& header, bool all) {
  Flow* flow = flows_.Find({peer, Direction::kPush, false, header.key, header.shard});
  if (flow == nullptr || !flow->pipeline) return {};
  CodecChain& chain = flow->pipeline->chain;
  return all && !chain.EndsEmpty() ? std::span<const float>() : chain.Kept();
}

double FlowTable::ResidualNorm(Direction direction) const {
  double squares = 0;
  for (const auto& [id, flow] : flows_) {
    if (id.direction == direction && flow.pipeline) squares += flow.pipeline->chain.SquaredResidual();
  }
  return std::sqrt(squares);
}

void FlowTable::Forget(NodeId peer) {
  for (auto& [id, flow] : flows_) {
    if (id.peer != peer) continue;
    flow.inbox = {};
    if (flow.pipeline) flow.pipeline->close_at = kNever;
  }
}

void FlowTable::BeginAnew(NodeId peer) {
  for (auto& [id, flow] : flows_) {
    if (id.peer != peer || !flow.inbox.begun()) continue;
    flow.inbox.BeginAnew();
    if (flow.pipeline) flow.pipeline->close_at = kNever;
  }
}

void FlowTable::Renew(NodeId peer) {
  for (auto& [id, flow] : flows_) {
    if (id.peer != peer || !flow.pipeline) continue;
    const Time close_at = flow.pipeline->close_at;
    *flow.pipeline = std::move(*Make(id, flow.pipeline->shard));
    flow.pipeline->close_at = close_at;
  }
}

void FlowTable::Exchange(Archive& archive) {
  std::uint64_t count = flows_.size();
  archive(count);
  auto next = flows_.begin();
  for (std::uint64_t i = 0; i < count; ++i) {
    FlowId id{};
    if (!archive.loading()) id = (*next).first;
    archive(id);
    Flow& flow = archive.loading() ? *flows_.TryEmplace(id).first : (*next).second;
    if (!archive.loading()) ++next;
    bool own = flow.pipeline != nullptr;
    archive(flow.inbox, own);
    if (!own) continue;
    ShardInfo shard;
    if (flow.pipeline) shard = flow.pipeline->shard;
    archive(shard);
    if (archive.loading()) flow.pipeline = Make(id, shard);
    if (!flow.pipeline) throw StateError("it has codecs where the experiment has none");
    Pipeline& pipeline = *flow.pipeline;
    archive(pipeline.keep, pipeline.close_at, pipeline.bytes, pipeline.began, pipeline.messages, pipeline.chain);
    for (const auto& slicer : pipeline.slicers) slicer->Exchange(archive);
  }
}

void FlowTable::Describe(Digest& digest) const {
  for (const auto& [id, flow] : flows_) {
    if (id.plain && !flow.inbox.open()) continue;  // initial values, long received
    flow.inbox.Describe(digest, peers_.LevelOf(id.peer));
    if (!flow.pipeline) continue;
    if (!flow.pipeline->chain.FixedSize()) digest.Unknown();
    for (const auto& slicer : flow.pipeline->slicers) {
      if (!slicer->Constant()) digest.Unknown();
    }
    digest.Moment(flow.pipeline->close_at);
  }
}

void FlowTable::Count(NodeStats& stats) const {
  for (const auto& [id, flow] : flows_) {
    const Inbox::Stats counts = flow.inbox.stats();
    stats.late_slices += counts.late;
    stats.refused_slices += counts.refused;
    stats.missing_slices += counts.missing;
  }
}

}  // namespace geomx
