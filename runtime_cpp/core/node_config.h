// A node's configuration: its identity, its peers, and the plugins' parts for each of its links.
// Plain data; `wiring.py` fills it in for both drivers.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/codec.h"
#include "core/coordinator.h"
#include "core/declaration.h"
#include "core/optimizer.h"
#include "core/overlay_group.h"
#include "core/policy.h"
#include "core/round_policy.h"
#include "core/slicer.h"
#include "core/types.h"
#include "kernels/device.h"

namespace geomx {

struct Peer {
  NodeId id = 0;
  std::string name;
  Role role = Role::kWorker;
};

// The plugins' parts for one hop in one direction.
struct LinkPlan {
  CodecChain::Factories codecs;
  std::vector<std::shared_ptr<const SlicerFactory>> slicers;
  Time grace = 0;  // time that a receiver waits for best-effort slices after the reliable ones
};

// How servers complete rounds: the global ones, and local ones with `workers_together`.
struct GlobalRounds {
  // False: every party's push is applied and answered by itself, on arrival.
  bool together = true;
  // If not together: how many rounds a party may be ahead of the slowest before its push waits at
  // the server.
  std::uint32_t staleness_bound = UINT32_MAX;
  // The global server answers with the sum, and every local server runs the optimizer on its own
  // replica of the weights. REQUIRES: together.
  bool update_at_party = false;
  // Every local server runs the optimizer on its own party's sum, and pushes the step that it makes;
  // the sum of the steps is added to all replicas. Parties keep what a codec has not sent of their
  // steps in the weights of their own workers. REQUIRES: update_at_party.
  bool step_first = false;
  // Parties push moves of parameters, and keep what was not sent likewise, if the codec sends it in the last
  // round: what is never sent would be lost, and workers must make it again. REQUIRES: update_at_party.
  bool moves = false;
  std::uint32_t workers = 0;  // of all parties, if step_first or moves
  // Rounds of a party, or of the global servers, may close without members that are late, as the round_policy
  // of a server says; false: they wait for all that take part. REQUIRES: not update_at_party.
  bool early = false;
  // False: every worker's push is applied and answered by itself at its local server, whose policy says
  // when something goes to the global servers (PartyPolicy::Send). REQUIRES: not update_at_party, and not
  // NodeConfig::continues.
  bool workers_together = true;
};

// What a worker does with a push that holds values that are NaN or infinite. A server refuses it with
// kRefuse and takes it otherwise.
enum class NonFinite : std::uint8_t { kIgnore, kWarn, kRefuse };

// The fields that are read for every message come first, to share cache lines.
struct NodeConfig {
  NodeId id = 0;
  Role role = Role::kWorker;
  bool phantom = false;             // sizes only
  NonFinite non_finite = NonFinite::kIgnore;  // workers and servers
  std::optional<NodeId> scheduler;  // absent on the scheduler itself
  std::uint32_t quorum = 0;         // merge count that completes a round here
  std::uint32_t frame_bytes = 256 * 1024;  // no message carries more payload than this
  // In a simulation: how many frames of one long slice may leave as one message (see
  // `Encoder::Bundle`). Bytes, messages and their costs are still counted per frame.
  std::uint32_t bundle = 1;
  std::uint32_t max_shard_elements = kMaxShardElements;  // larger shards are refused before allocation
  std::uint64_t most_early_bytes = UINT64_MAX;  // of messages that are kept because they cannot be used yet
  GlobalRounds rounds;              // global and local servers
  Time heartbeat_interval = 0;      // 0: none (simulation)
  Time failure_timeout = 5 * kSecond;  // silence after which a peer is suspect
  Time patience = 0;                // silence after which a suspect peer is lost; 0: at once
  bool continues = false;           // rounds close without members that are lost
  Time redial = kSecond;            // live: longest time between two attempts to reconnect
  std::vector<NodeId> absent;       // members that join when training goes on; `continues` then
  std::vector<NodeId> parents;      // worker: its local server; local server: the global servers
  std::vector<NodeId> children;     // nodes that push to this node, ascending
  // Servers: the child through which initial values and instructions come; nothing: none may.
  std::optional<NodeId> master;
  // Servers: any child may bring shards into being, and instruct; for tests of sums alone.
  bool open = false;
  std::shared_ptr<const Declaration> declared;  // servers; null: the master's initial values declare
  // Scheduler: (parent, child) of all that are connected in the tree, ascending. A member's loss can
  // be reported by these, and by members of its overlays (`groups`) only.
  std::vector<std::pair<NodeId, NodeId>> tree;
  std::optional<NodeId> standby;  // global server: the node that gets its journal (replicator.h)
  // Scheduler: (global server, its standby), where there is one.
  std::vector<std::pair<NodeId, NodeId>> standbys;
  std::map<std::uint32_t, std::shared_ptr<Coordinator>> coordinators;  // on this node, by number
  // How many members each group has that such a coordinator orders, and does not plan for, by root.
  std::map<NodeId, std::uint32_t> coordinated;
  std::string name;
  std::vector<Peer> peers;          // nodes that this one is connected to; for the scheduler: all others
  std::map<std::pair<NodeId, Direction>, LinkPlan> links;  // (peer, direction of the value)
  std::shared_ptr<PartyPolicy> policy;                     // local servers
  // When rounds close here; null: with all that take part. Global servers, if `together`; local servers, if
  // `workers_together`. REQUIRES: GlobalRounds::early.
  std::shared_ptr<RoundPolicy> round_policy;
  // Local servers with a round policy: where workers push parameters, the factor by which each multiplies them.
  // Empty: they push gradients.
  std::map<NodeId, double> parameter_scales;
  OptimizerFactories optimizers;                           // of plugins; servers
  std::shared_ptr<kernels::Device> device;  // servers: for updates and encoding; or null
  std::map<NodeId, std::uint32_t> stands_for;  // workers behind each child; one where absent
  std::vector<OverlayGroup> groups;  // groups whose members are connected; their peers are in `peers`
  // Worker: dense values stay in the memory of their messages until they are asked for, where that
  // is memory of the same process, as in a simulation.
  bool borrow_values = false;
  std::string experiment;            // scheduler: sent to every member on joining
};

}  // namespace geomx
