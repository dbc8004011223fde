// Who is in a cluster, and how each of them is configured: plain data, for any driver of a test.
#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "core/node_config.h"

namespace geomx::check {

struct Plan {
  std::vector<std::uint32_t> parties = {2, 2};  // number of workers of each
  std::uint32_t global_servers = 1;
  LinkPlan lan_push, lan_pull, wan_push, wan_pull;
  std::uint32_t frame_bytes = 256 * 1024;
  bool phantom = false;
  bool started = true;  // false: the test performs the handshake
  Time heartbeat_interval = 0;
  Time patience = 0;
  bool continues = false;
  bool standbys = false;  // each global server has one
  std::function<std::shared_ptr<PartyPolicy>(std::uint32_t party)> policy = nullptr;
  // Returns the coordinator of an overlay, for every group of two or more members: on the local server
  // inside parties, on the scheduler between them.
  std::function<std::shared_ptr<Coordinator>()> coordinator = nullptr;
  std::uint64_t most_early_bytes = UINT64_MAX;
  bool overlay_push = true, overlay_pull = true, overlay_ahead = false;
  GlobalRounds rounds = {};
  // Parties with which, and time after which, global rounds close without the others; 0: they do not.
  std::uint32_t quorum = 0;
  Time deadline = 0;
  std::function<std::shared_ptr<RoundPolicy>()> round_policy = nullptr;  // instead of these
  // When rounds of a party close without some workers. Global rounds then wait for the parties that will push.
  std::function<std::shared_ptr<RoundPolicy>(std::uint32_t party)> party_rounds = nullptr;
  double parameter_scale = 0;  // of all workers, with these; 0: they push gradients
  bool strict = false;  // shards are as declared, or exist from the master's initial value on
  std::shared_ptr<const Declaration> declared = nullptr;
  NonFinite non_finite = NonFinite::kIgnore;
  // Returns the device on which a server updates and encodes; each server has its own.
  std::function<std::shared_ptr<kernels::Device>()> device = nullptr;
};

// The members of a plan's cluster: the scheduler, global servers, then each party's server and workers.
class Layout {
 public:
  explicit Layout(const Plan& plan);

  static std::string Name(NodeId id) { return "node" + std::to_string(id); }
  std::vector<NodeId> All() const;
  // Parts with a state (policy, coordinators, device) are new ones.
  NodeConfig Config(NodeId id) const;

  const NodeId scheduler = 0;
  std::vector<NodeId> globals, servers, workers, standbys;
  std::vector<std::vector<NodeId>> parties;

 protected:
  const Plan plan_;

 private:
  // Adds a peer with its links, and to `relatives`: the configuration's parents or children.
  void AddLink(NodeConfig& config, std::vector<NodeId>& relatives, NodeId peer, Role role, const LinkPlan& push,
               const LinkPlan& pull) const;
  void AddOverlays(NodeConfig& config) const;
};

}  // namespace geomx::check
