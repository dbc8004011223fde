#include "core/linear_sums.h"

#include <utility>

namespace geomx {

CodecChain* LinearSums::Chain(const FlowId& id) {
  Flow* flow = flows_.Find(id);
  return flow == nullptr ? nullptr : &flows_.PipelineOf(*flow).chain;
}

Buffer LinearSums::Decoded(const Header& header, Buffer value) {
  if (!flows_.linear()) return value;
  const CodecChain* chain = Chain(FlowOf(header.source, header));
  if (chain == nullptr || !chain->Linear()) return value;
  state_.work.decode.Add(std::uint64_t{header.shard_elements} * sizeof(float));
  if (value.empty()) return value;
  return chain->Decoded(value, header.shard_elements, header.turn());
}

std::uint64_t LinearSums::AddedBytes(const Header& header) {
  const CodecChain* chain = nullptr;
  if (flows_.linear()) {
    chain = Chain({header.source, Direction::kPush, false, header.key, header.shard});
  }
  if (chain == nullptr || !chain->Linear()) {
    return std::uint64_t{header.shard_elements} * sizeof(float);
  }
  const Parts layout = chain->Layout(header.shard_elements, header.turn());
  return layout.SliceBytes(0, layout.rows);
}

std::optional<Buffer> LinearSums::Settled(const Header& header, const Buffer& sum) {
  const auto& parents = state_.config.parents;
  if (header.server >= parents.size()) return std::nullopt;
  CodecChain* pushed =
      Chain({parents[header.server], Direction::kPush, false, header.key, header.shard});
  if (pushed == nullptr) return std::nullopt;
  state_.work.decode.Add(std::uint64_t{header.shard_elements} * sizeof(float));
  if (sum.empty()) return Buffer{};
  Buffer dense = pushed->Decoded(sum, header.shard_elements, header.turn());
  pushed->Settle(sum, header.shard_elements, header.turn());
  return dense;
}

}  // namespace geomx
