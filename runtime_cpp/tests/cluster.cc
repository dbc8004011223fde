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

bool Contains(const std::vector<NodeId>& ids, NodeId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

std::shared_ptr<const SlicerFactory> BlockSlices(std::uint32_t rows, std::uint32_t reliable_every) {
  return std::make_shared<const BlockSlicerFactory>(rows, reliable_every);
}

Cluster::Cluster(std::uint64_t seed, const Plan& plan) : Wire(seed), plan_(plan) {
  NodeId next = 1;
  for (std::uint32_t i = 0; i < plan.global_servers; ++i) globals.push_back(next++);
  for (const std::uint32_t size : plan.parties) {
    servers.push_back(next++);
    parties.emplace_back();
    for (std::uint32_t i = 0; i < size; ++i) parties.back().push_back(next++);
    workers.insert(workers.end(), parties.back().begin(), parties.back().end());
  }
  for (NodeId id = 0; id < next; ++id) {
    Add([this, id] { return Config(id); });
    if (plan.started) Do(id, [](Node& node, Time) { node.AssumeStarted(); });
  }
}

std::vector<NodeId> Cluster::All() const {
  std::vector<NodeId> all = {scheduler};
  for (const auto& some : {globals, servers, workers}) all.insert(all.end(), some.begin(), some.end());
  return all;
}

// ---- verbs -----------------------------------------------------------------------------------

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
  const auto owner = std::make_shared<const std::vector<float>>(value);
  const float* data = plan_.phantom ? nullptr : owner->data();
  Do(id, [=](Node& node, Time now) {
    node.worker().Submit(key, {data, owner, loss, last}, now);
  });
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

// ---- who talks with whom ---------------------------------------------------------------------

void Cluster::AddChild(NodeConfig& config, NodeId child, Role role, const LinkPlan& push,
                       const LinkPlan& pull) const {
  config.children.push_back(child);
  config.peers.push_back({child, Name(child), role});
  config.links[{child, Direction::kPush}] = push;
  config.links[{child, Direction::kPull}] = pull;
}

void Cluster::AddParent(NodeConfig& config, NodeId parent, Role role, const LinkPlan& push,
                        const LinkPlan& pull) const {
  config.parents.push_back(parent);
  config.peers.push_back({parent, Name(parent), role});
  config.links[{parent, Direction::kPush}] = push;
  config.links[{parent, Direction::kPull}] = pull;
}

void Cluster::AddOverlays(NodeConfig& config) const {
  if (!plan_.coordinator) return;
  constexpr std::uint32_t kNumber = 3;
  std::vector<OverlayGroup> groups;
  for (std::size_t party = 0; party < servers.size(); ++party) {
    groups.push_back({servers[party], parties[party], servers[party], kNumber, plan_.overlay_push,
                      plan_.overlay_pull});
  }
  for (const NodeId global : globals) {
    groups.push_back(
        {global, servers, scheduler, kNumber, plan_.overlay_push, plan_.overlay_pull});
  }
  for (const OverlayGroup& group : groups) {
    if (group.members.size() < 2) continue;
    if (config.id == group.host) config.coordinators.try_emplace(kNumber, plan_.coordinator());
    const bool member = Contains(group.members, config.id);
    if (!member && config.id != group.root) continue;
    config.groups.push_back(group);
    for (const NodeId sibling : group.members) {
      if (!member || sibling == config.id || config.links.contains({sibling, Direction::kPush})) {
        continue;
      }
      config.peers.push_back({sibling, Name(sibling), config.role});
      for (const Direction direction : {Direction::kPush, Direction::kPull}) {
        config.links[{sibling, direction}] = config.links.at({group.root, direction});
      }
    }
  }
}

NodeConfig Cluster::Config(NodeId id) const {
  NodeConfig config;
  config.id = id;
  config.name = Name(id);
  config.frame_bytes = plan_.frame_bytes;
  config.phantom = plan_.phantom;
  config.rounds = plan_.rounds;
  if (plan_.device && (Contains(globals, id) || Contains(servers, id))) {
    config.device = plan_.device();
  }
  config.heartbeat_interval = plan_.heartbeat_interval;
  config.failure_timeout = 5 * kSecond;
  config.patience = plan_.patience;
  config.continues = plan_.continues;
  if (id == scheduler) {
    config.role = Role::kScheduler;
    config.experiment = "experiment";
    for (const NodeId each : globals) {
      config.peers.push_back({each, Name(each), Role::kGlobalServer});
    }
    for (const NodeId each : servers) config.peers.push_back({each, Name(each), Role::kServer});
    for (const NodeId each : workers) config.peers.push_back({each, Name(each), Role::kWorker});
    AddOverlays(config);
    return config;
  }
  config.scheduler = scheduler;
  config.peers.push_back({scheduler, Name(scheduler), Role::kScheduler});
  if (Contains(globals, id)) {
    config.role = Role::kGlobalServer;
    config.quorum = static_cast<std::uint32_t>(workers.size());
    for (std::size_t party = 0; party < servers.size(); ++party) {
      AddChild(config, servers[party], Role::kServer, plan_.wan_push, plan_.wan_pull);
      config.stands_for[servers[party]] = static_cast<std::uint32_t>(parties[party].size());
    }
  }
  for (std::uint32_t party = 0; party < servers.size(); ++party) {
    const std::vector<NodeId>& members = parties[party];
    if (id == servers[party]) {
      config.role = Role::kServer;
      config.quorum = static_cast<std::uint32_t>(members.size());
      if (plan_.policy) config.policy = plan_.policy(party);
      for (const NodeId global : globals) {
        AddParent(config, global, Role::kGlobalServer, plan_.wan_push, plan_.wan_pull);
      }
      for (const NodeId worker : members) {
        AddChild(config, worker, Role::kWorker, plan_.lan_push, plan_.lan_pull);
      }
    } else if (Contains(members, id)) {
      config.role = Role::kWorker;
      AddParent(config, servers[party], Role::kServer, plan_.lan_push, plan_.lan_pull);
    }
  }
  AddOverlays(config);
  return config;
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

}  // namespace geomx::check
