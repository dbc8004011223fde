// Whole clusters on a Wire: scheduler, global servers, and per party a local server and workers, with
// the verbs that tests need, and two small native parts that belong to no plugin.
#pragma once

#include <algorithm>
#include <numeric>

#include "tests/wire.h"

namespace geomx::check {

// Cuts a shard into blocks of `rows`: every `reliable_every`-th is reliable (0: none is), the others
// travel on channels 1, 2, 3 in turn.
class BlockSlicer final : public Slicer {
 public:
  BlockSlicer(std::uint32_t rows, std::uint32_t reliable_every)
      : rows_(rows), reliable_every_(reliable_every) {}

  void Cut(const SliceContext& context, std::vector<Slice>& slices) override {
    (void)context;
    std::vector<Slice> blocks;
    for (const Slice& slice : slices) {
      for (std::uint32_t at = 0; at < slice.rows; at += rows_) {
        Slice block = slice;
        block.first_row = slice.first_row + at;
        block.rows = std::min(rows_, slice.rows - at);
        const auto i = static_cast<std::uint32_t>(blocks.size());
        block.channel = static_cast<std::uint8_t>(
            reliable_every_ != 0 && i % reliable_every_ == 0 ? 0 : 1 + i % 3);
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

struct Plan {
  std::vector<std::uint32_t> parties = {2, 2};  // workers of each
  std::uint32_t global_servers = 1;
  LinkPlan lan_push, lan_pull, wan_push, wan_pull;
  std::uint32_t frame_bytes = 256 * 1024;
  bool phantom = false;
  bool started = true;  // false: the test plays the handshake
  Time heartbeat_interval = 0;
  std::function<std::shared_ptr<PartyPolicy>(std::uint32_t party)> policy = nullptr;
};

class Cluster : public Wire {
 public:
  Cluster(std::uint64_t seed, const Plan& plan) : Wire(seed), plan_(plan) {
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

  static std::string Name(NodeId id) { return "node" + std::to_string(id); }

  void Declare(Key key, std::uint32_t elements, const std::vector<ShardInfo>& shards) {
    for (const NodeId id : workers) {
      Do(id, [=](Node& node, Time) { node.worker().Declare(key, elements, shards); });
    }
  }

  // As many shards as asked for at most, in random places and with random priorities.
  std::vector<ShardInfo> RandomShards(std::uint32_t elements, std::uint32_t most) {
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

  // The first worker is the master.
  void Init(Key key, const std::vector<float>& value) {
    const auto owner = std::make_shared<const std::vector<float>>(value);
    const bool phantom = plan_.phantom;
    Do(workers.front(), [=](Node& node, Time now) {
      node.worker().Init(key, phantom ? nullptr : owner->data(), owner, now);
    });
  }

  void RequestAll(Key key) {
    for (const NodeId id : workers) {
      Do(id, [=](Node& node, Time now) { node.worker().Request(key, now); });
    }
  }

  void Push(NodeId id, Key key, const std::vector<float>& value, bool last = false,
            float loss = std::numeric_limits<float>::quiet_NaN()) {
    const auto owner = std::make_shared<const std::vector<float>>(value);
    const bool phantom = plan_.phantom;
    Do(id, [=](Node& node, Time now) {
      node.worker().Submit(key, {phantom ? nullptr : owner->data(), owner, loss, last}, now);
    });
  }

  void Command(const std::string& text) {
    Do(workers.front(), [=](Node& node, Time now) { node.worker().Command(text, now); });
  }

  std::vector<float> Value(NodeId id, Key key) {
    const auto value = const_cast<Node&>(node(id)).worker().Value(key);
    return {value.begin(), value.end()};
  }

  std::vector<float> RandomValues(std::uint32_t elements, float low = -1, float high = 1) {
    std::vector<float> values(elements);
    for (float& value : values) value = Uniform(random, low, high);
    return values;
  }

  // Integers are added exactly in any order.
  std::vector<float> RandomIntegers(std::uint32_t elements) {
    std::vector<float> values(elements);
    for (float& value : values) value = static_cast<float>(Between(random, 0, 200)) - 100.0f;
    return values;
  }

  const NodeId scheduler = 0;
  std::vector<NodeId> globals, servers, workers;
  std::vector<std::vector<NodeId>> parties;

 private:
  NodeConfig Config(NodeId id) const {
    NodeConfig config;
    config.id = id;
    config.name = Name(id);
    config.frame_bytes = plan_.frame_bytes;
    config.phantom = plan_.phantom;
    config.heartbeat_interval = plan_.heartbeat_interval;
    config.failure_timeout = 5 * kSecond;
    const auto add_peer = [&](NodeId peer, Role role) {
      config.peers.push_back({peer, Name(peer), role});
    };
    if (id == scheduler) {
      config.role = Role::kScheduler;
      config.experiment = "experiment";
      for (const NodeId global : globals) add_peer(global, Role::kGlobalServer);
      for (const NodeId server : servers) add_peer(server, Role::kServer);
      for (const NodeId worker : workers) add_peer(worker, Role::kWorker);
      return config;
    }
    config.scheduler = scheduler;
    add_peer(scheduler, Role::kScheduler);
    if (std::find(globals.begin(), globals.end(), id) != globals.end()) {
      config.role = Role::kGlobalServer;
      config.children = servers;
      config.quorum = static_cast<std::uint32_t>(workers.size());
      for (const NodeId server : servers) {
        add_peer(server, Role::kServer);
        config.links[{server, Direction::kPush}] = plan_.wan_push;
        config.links[{server, Direction::kPull}] = plan_.wan_pull;
      }
      return config;
    }
    for (std::uint32_t party = 0; party < servers.size(); ++party) {
      const NodeId server = servers[party];
      const auto& members = parties[party];
      if (id == server) {
        config.role = Role::kServer;
        config.parents = globals;
        config.children = members;
        config.quorum = static_cast<std::uint32_t>(members.size());
        if (plan_.policy) config.policy = plan_.policy(party);
        for (const NodeId global : globals) {
          add_peer(global, Role::kGlobalServer);
          config.links[{global, Direction::kPush}] = plan_.wan_push;
          config.links[{global, Direction::kPull}] = plan_.wan_pull;
        }
        for (const NodeId worker : members) {
          add_peer(worker, Role::kWorker);
          config.links[{worker, Direction::kPush}] = plan_.lan_push;
          config.links[{worker, Direction::kPull}] = plan_.lan_pull;
        }
      } else if (std::find(members.begin(), members.end(), id) != members.end()) {
        config.role = Role::kWorker;
        config.parents = {server};
        add_peer(server, Role::kServer);
        config.links[{server, Direction::kPush}] = plan_.lan_push;
        config.links[{server, Direction::kPull}] = plan_.lan_pull;
      }
    }
    return config;
  }

  const Plan plan_;
};

}  // namespace geomx::check
