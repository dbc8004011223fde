// What a node is told when it is built: who it is, with whom it talks, and what the plugins decided
// for each of its links. Plain data; `wiring.py` fills it in for both drivers.
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
#include "core/optimizer.h"
#include "core/overlay_group.h"
#include "core/policy.h"
#include "core/slicer.h"
#include "core/types.h"
#include "kernels/device.h"

namespace geomx {

struct Peer {
  NodeId id = 0;
  std::string name;
  Role role = Role::kWorker;
};

// What the plugins decided for one hop in one direction.
struct LinkPlan {
  CodecChain::Factories codecs;
  std::vector<std::shared_ptr<const SlicerFactory>> slicers;
  Time grace = 0;  // how long a receiver waits for best-effort slices after the reliable ones
};

// How global servers complete rounds.
struct GlobalRounds {
  // False: every party's push is applied and answered by itself, as it comes.
  bool together = true;
  // Then: a party may be at most this many rounds ahead of the slowest; it waits at the server.
  std::uint32_t staleness_bound = UINT32_MAX;
  // The global server answers with the sum, and every local server runs the optimizer on its own
  // replica of the weights. REQUIRES: together.
  bool update_at_party = false;
};

// What a worker does with a push that holds values that are NaN or infinite.
enum class NonFinite : std::uint8_t { kIgnore, kWarn, kRefuse };

// What messages are handled by comes first, so that it lies together.
struct NodeConfig {
  NodeId id = 0;
  Role role = Role::kWorker;
  bool phantom = false;             // sizes only
  NonFinite non_finite = NonFinite::kIgnore;  // workers
  std::optional<NodeId> scheduler;  // absent on the scheduler itself
  std::uint32_t quorum = 0;         // merge count that completes a round here
  std::uint32_t frame_bytes = 256 * 1024;  // no message carries more payload than this
  // In a simulation: up to so many frames of one long slice may leave as one message (see
  // `Encoder::Bundle`). Bytes, messages and what they cost at either end are counted frame by frame.
  std::uint32_t bundle = 1;
  std::uint32_t max_shard_elements = kMaxShardElements;  // larger shards are refused before memory is taken
  GlobalRounds rounds;              // global and local servers
  Time heartbeat_interval = 0;      // 0: none (simulation)
  Time failure_timeout = 5 * kSecond;  // silence after which a peer is suspect
  Time patience = 0;                // more silence than that is waited for, as long as this; 0: it is not
  bool continues = false;           // rounds close without members that are lost
  Time redial = kSecond;            // live: most time between two attempts at a broken connection
  std::vector<NodeId> parents;      // worker: its local server; local server: the global servers
  std::vector<NodeId> children;     // who pushes to this node, ascending
  std::map<std::uint32_t, std::shared_ptr<Coordinator>> coordinators;  // that live here, by number
  std::string name;
  std::vector<Peer> peers;          // whom this node talks with; for the scheduler: everyone else
  std::map<std::pair<NodeId, Direction>, LinkPlan> links;  // (peer, direction of the value)
  std::shared_ptr<PartyPolicy> policy;                     // local servers
  OptimizerFactories optimizers;                           // that plugins brought; servers
  std::shared_ptr<kernels::Device> device;  // servers: where they update and encode; or null
  std::map<NodeId, std::uint32_t> stands_for;  // workers behind each child; one where absent
  std::vector<OverlayGroup> groups;  // whose members talk with each other; their peers are in `peers`
  std::string experiment;            // scheduler: what every member is told on joining
};

}  // namespace geomx
