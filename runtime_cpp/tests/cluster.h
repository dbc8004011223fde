// Whole clusters on a Wire: scheduler, global servers, and per party a local server and workers,
// with the verbs that tests need, and a slicer that belongs to no plugin.
#pragma once

#include "core/worker.h"
#include "tests/wire.h"

namespace geomx::check {

// Cuts a shard into blocks of `rows`: every `reliable_every`-th is reliable (0: none is), the
// others travel on channels 1, 2, 3 in turn.
std::shared_ptr<const SlicerFactory> BlockSlices(std::uint32_t rows, std::uint32_t reliable_every);

struct Plan {
  std::vector<std::uint32_t> parties = {2, 2};  // workers of each
  std::uint32_t global_servers = 1;
  LinkPlan lan_push, lan_pull, wan_push, wan_pull;
  std::uint32_t frame_bytes = 256 * 1024;
  bool phantom = false;
  bool started = true;  // false: the test plays the handshake
  Time heartbeat_interval = 0;
  Time patience = 0;
  bool continues = false;
  std::function<std::shared_ptr<PartyPolicy>(std::uint32_t party)> policy = nullptr;
  // Overlays in every group of two or more: inside parties, on their servers; between them, on the
  // scheduler. Each coordinator is a fresh one.
  std::function<std::shared_ptr<Coordinator>()> coordinator = nullptr;
  bool overlay_push = true, overlay_pull = true;
  GlobalRounds rounds = {};
  // Where servers update and encode; each has its own.
  std::function<std::shared_ptr<kernels::Device>()> device = nullptr;
};

class Cluster : public Wire {
 public:
  Cluster(std::uint64_t seed, const Plan& plan);

  std::vector<NodeId> All() const;
  static std::string Name(NodeId id) { return "node" + std::to_string(id); }

  // All workers declare the tensor.
  void Declare(Key key, std::uint32_t elements, const std::vector<ShardInfo>& shards);
  // At most so many shards, in random places and with random priorities.
  std::vector<ShardInfo> RandomShards(std::uint32_t elements, std::uint32_t most);
  // By the first worker.
  void Init(Key key, const std::vector<float>& value);
  void RequestAll(Key key);
  void Push(NodeId id, Key key, const std::vector<float>& value, bool last = false,
            float loss = std::numeric_limits<float>::quiet_NaN());
  void Command(const std::string& text);
  std::vector<float> Value(NodeId id, Key key);

  std::vector<float> RandomValues(std::uint32_t elements);
  // Integers are added exactly in any order.
  std::vector<float> RandomIntegers(std::uint32_t elements);

  const NodeId scheduler = 0;
  std::vector<NodeId> globals, servers, workers;
  std::vector<std::vector<NodeId>> parties;

 private:
  NodeConfig Config(NodeId id) const;
  void AddChild(NodeConfig& config, NodeId child, Role role, const LinkPlan& push,
                const LinkPlan& pull) const;
  void AddParent(NodeConfig& config, NodeId parent, Role role, const LinkPlan& push,
                 const LinkPlan& pull) const;
  void AddOverlays(NodeConfig& config) const;

  const Plan plan_;
};

// No node complained, was given up or refused anything.
void CheckNoErrors(const Cluster& cluster);

// A push or a value of a whole shard that arrives in one piece.
Message Transfer(Kind kind, NodeId source, Round round, std::uint32_t elements, float value = 1);

}  // namespace geomx::check
