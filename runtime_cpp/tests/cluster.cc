#include "tests/cluster.h"

#include <algorithm>

namespace geomx::check {
namespace {

class BlockSlicer final : public Slicer {
 public:
  BlockSlicer(std::uint32_t rows, std::uint32_t reliable_every)
      : rows_(rows), reliable_every_(reliable_every) {}

  void Cut(const SliceContext& context, std::vector<Slice>& slices) override {
    (void)context;
    std::vector<Slice> blocks;
    for (const Slice& slice : slices) {
      for (std::uint32_t at = 0; at < slice.rows; at += rows_) {
        const auto i = static_cast<std::uint32_t>(blocks.size());
        const bool reliable = reliable_every_ != 0 && i % reliable_every_ == 0;
        Slice block = slice;
        block.first_row = slice.first_row + at;
        block.rows = std::min(rows_, slice.rows - at);
        block.channel = static_cast<std::uint8_t>(reliable ? 0 : 1 + i % 3);
        blocks.push_back(block);
      }
    }
    slices = std::move(blocks);
  }
  void Exchange(Archive&) override {}

 private:
  std::uint32_t rows_, reliable_every_;
};

class BlockSlicerFactory final : public SlicerFactory {
 public:
  BlockSlicerFactory(std::uint32_t rows, std::uint32_t reliable_every)
      : rows_(rows), reliable_every_(reliable_every) {}
  std::unique_ptr<Slicer> Make(const ShardInfo&) const override {
    return std::make_unique<BlockSlicer>(rows_, reliable_every_);
  }

 private:
  std::uint32_t rows_, reliable_every_;
};

}  // namespace

std::shared_ptr<const SlicerFactory> BlockSlices(std::uint32_t rows, std::uint32_t reliable_every) {
  return std::make_shared<const BlockSlicerFactory>(rows, reliable_every);
}

Cluster::Cluster(std::uint64_t seed, const Plan& plan) : Wire(seed), Layout(plan) {
  for (const NodeId id : All()) {
    Add([this, id] { return Config(id); });
    if (plan.started) Do(id, [](Node& node, Time) { node.AssumeStarted(); });
  }
}

// ---- calls of tests --------------------------------------------------------------------------

void Cluster::Declare(Key key, std::uint32_t elements, const std::vector<ShardInfo>& shards) {
  for (const NodeId id : workers) {
    Do(id, [=](Node& node, Time) { node.worker().Declare(key, elements, shards); });
  }
}

std::vector<ShardInfo> Cluster::RandomShards(std::uint32_t elements, std::uint32_t most) {
  std::set<std::uint32_t> cuts = {0};
  while (cuts.size() < Between(random, 1, std::min(most, elements))) {
    cuts.insert(static_cast<std::uint32_t>(Between(random, 0, elements - 1)));
  }
  std::vector<ShardInfo> shards;
  for (auto cut = cuts.begin(); cut != cuts.end(); ++cut) {
    const auto after = std::next(cut);
    ShardInfo shard;
    shard.offset = *cut;
    shard.elements = (after == cuts.end() ? elements : *after) - *cut;
    shard.server = static_cast<std::uint32_t>(Between(random, 0, globals.size() - 1));
    shard.priority = static_cast<std::int32_t>(Between(random, 0, 4)) - 2;
    shards.push_back(shard);
  }
  return shards;
}

void Cluster::Init(Key key, const std::vector<float>& value) {
  const auto owner = std::make_shared<const std::vector<float>>(value);
  const float* data = plan_.phantom ? nullptr : owner->data();
  Do(workers.front(),
     [=](Node& node, Time now) { node.worker().Init(key, data, owner, now); });
}

void Cluster::RequestAll(Key key) {
  for (const NodeId id : workers) {
    Do(id, [=](Node& node, Time now) { node.worker().Request(key, now); });
  }
}

void Cluster::Push(NodeId id, Key key, const std::vector<float>& value, bool last, float loss) {
  const auto kept = std::make_shared<const std::vector<float>>(value);
  const float* data = plan_.phantom ? nullptr : kept->data();
  Do(id, [=, this](Node& node, Time now) {
    // Another owner with each replay of the call, which keeps the value for all of them.
    const std::shared_ptr<const void> owner(kept.get(), [kept](const void*) {});
    lent_.push_back(owner);
    node.worker().Submit(key, {data, owner, loss, last}, now);
  });
}

std::size_t Cluster::Lent() const {
  return static_cast<std::size_t>(std::ranges::count_if(lent_, [](const auto& owner) { return !owner.expired(); }));
}

void Cluster::Command(const std::string& text) {
  Do(workers.front(), [=](Node& node, Time now) { node.worker().Command(text, now); });
}

std::vector<float> Cluster::Value(NodeId id, Key key) {
  const auto value = const_cast<Node&>(node(id)).worker().Value(key);
  return {value.begin(), value.end()};
}

std::vector<float> Cluster::RandomValues(std::uint32_t elements) {
  std::vector<float> values(elements);
  for (float& value : values) value = Uniform(random, -1, 1);
  return values;
}

std::vector<float> Cluster::RandomIntegers(std::uint32_t elements) {
  std::vector<float> values(elements);
  for (float& value : values) value = static_cast<float>(Between(random, 0, 200)) - 100.0f;
  return values;
}

void CheckNoErrors(const Cluster& cluster) {
  for (const auto kind : {Event::Kind::kPeerError, Event::Kind::kDead, Event::Kind::kRefused}) {
    for (const NodeId id : cluster.All()) {
      for (const Event& event : cluster.Events(id, kind)) {
        Report(__FILE__, __LINE__, Cluster::Name(id) + ": " + event.text + " " + event.reason);
      }
    }
  }
}

Message Transfer(Kind kind, NodeId source, Round round, std::uint32_t elements, float value) {
  Message message;
  Header& header = message.header;
  header.kind = kind;
  header.source = source;
  header.round = round;
  header.merge_count = 1;
  header.shard_elements = header.total_rows = header.rows = elements;
  header.slices = header.reliable = 1;
  const std::vector<float> values(elements, value);
  message.payload = Payload::Copy(std::as_bytes(std::span(values)));
  header.payload_bytes = static_cast<std::uint32_t>(message.payload.size());
  return message;
}

Message Control(Kind kind, NodeId source, std::initializer_list<std::string_view> strings) {
  Message message = ControlMessage(kind, strings);
  message.header.source = source;
  message.header.payload_bytes = static_cast<std::uint32_t>(message.payload.size());
  return message;
}

}  // namespace geomx::check
