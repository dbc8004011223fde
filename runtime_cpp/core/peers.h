// The nodes that a node is connected to, and the messages that are queued for each of them.
//
// One SendQueue per peer. The node queues messages (Send); the driver learns which peers have new
// ones (TakeDirty) and takes messages out when the wire is free (Poll). Pointers and references to
// peers stay valid as long as the node's configuration does.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "core/digest.h"
#include "core/message.h"
#include "core/node_config.h"
#include "core/send_queue.h"
#include "core/types.h"

namespace geomx {

// The plan of traffic without codecs and slicers.
inline const LinkPlan kDensePlan;

class Peers {
 public:
  // A peer, its queue, and the plans of values to and from it.
  struct Neighbour {
    const Peer* peer = nullptr;
    std::uint32_t stands_for = 0;  // a child: workers behind it; otherwise 0
    bool child = false, parent = false;
    bool away = false;  // lost: nothing is queued for it
    std::uint64_t dirty = 0;  // `epoch_` when it was last added to `dirty_`
    bool spoken_to = false;   // more than a heartbeat has left since the last one was due
    std::array<const LinkPlan*, kDirections> plans;
    SendQueue queue;
  };

  // `config` outlives this, does not change, and has its children in ascending order.
  explicit Peers(const NodeConfig& config);

  const std::vector<NodeId>& ids() const { return ids_; }  // ascending
  // Null if there is no such peer.
  const Peer* Find(NodeId id) const;
  bool IsChild(NodeId id) const;
  bool IsParent(NodeId id) const;
  // The number of children that are not lost.
  std::size_t PresentChildren() const;
  // Workers behind a child; 1 if there is no such peer.
  std::uint32_t StandsFor(NodeId id) const;
  // What the plugins decided for the link; dense and unsliced if there is no such peer.
  const LinkPlan& Plan(NodeId id, Direction direction) const;
  // The level whose rounds are exchanged with `id`.
  Digest::Level LevelOf(NodeId id) const;

  // Throws std::logic_error if there is no such peer.
  Neighbour& Get(NodeId id);
  // Null if there is no such peer. One look-up or more per message: a hash table, which takes no branch
  // that is hard to predict.
  const Neighbour* FindNeighbour(NodeId id) const {
    for (std::size_t at = Start(id);; at = (at + 1) & (slots_.size() - 1)) {
      const Slot& slot = slots_[at];
      if (slot.place == kFree) return nullptr;
      if (slot.id == id) return &neighbours_[slot.place];
    }
  }
  // Queues `message` with this node as its source, unless the peer is lost.
  void Send(Neighbour& target, Message&& message) {
    if (!target.away) Queue(target, std::move(message));
  }
  // The same for any peer, lost or not.
  void Queue(Neighbour& target, Message&& message);
  void Send(NodeId target, Message&& message) { Send(Get(target), std::move(message)); }

  // Returns true if a peer is lost. Its queue is dropped when that happens.
  bool Away(NodeId id) const {
    const Neighbour* found = away_ == 0 ? nullptr : FindNeighbour(id);
    return found != nullptr && found->away;
  }
  void SetAway(NodeId id, bool away);

  // The driver's side; see the functions of these names in Node.
  bool Poll(NodeId id, Lane lane, Message& message);
  bool HasMessage(NodeId id, Lane lane) const;
  std::size_t QueuedBytes(NodeId id) const;
  bool HasHeartbeat(NodeId id) const;
  bool Quiet(NodeId id) const;
  void TakeDirty(std::vector<NodeId>& dirty) {
    dirty.clear();
    dirty.swap(dirty_);
    ++epoch_;
  }
  bool quiet() const { return dirty_.empty(); }

  void Describe(Digest& digest) const;
  // All peers that have messages are dirty after reading.
  void Exchange(Archive& archive);

 private:
  struct Slot {
    NodeId id;
    std::uint32_t place;  // in `neighbours_`, or kFree
  };
  static constexpr std::uint32_t kFree = UINT32_MAX;

  Neighbour* FindNeighbour(NodeId id) {
    return const_cast<Neighbour*>(static_cast<const Peers*>(this)->FindNeighbour(id));
  }
  // Where the search for `id` begins: the upper bits of a product (Knuth, TAOCP 6.4).
  std::size_t Start(NodeId id) const { return id * 0x9e3779b1u >> shift_; }

  const NodeConfig& config_;
  std::vector<NodeId> ids_;
  std::vector<Neighbour> neighbours_;  // in the order of `ids_`
  std::vector<Slot> slots_;  // a power of two of them, at most half taken
  int shift_ = 0;
  std::vector<NodeId> dirty_;
  std::uint64_t epoch_ = 1;  // of `dirty_`
  std::size_t away_ = 0;     // number of lost peers
};

}  // namespace geomx
