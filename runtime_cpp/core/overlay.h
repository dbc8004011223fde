// Who sends to whom inside a group, where it is not everyone to and from its root.
//
// A group is a root (a party's local server, or a global server) and its children. With an overlay,
// contributions meet on the way up: a member that holds one says so, and is told either to send it to
// another member or to the root, or to wait for one that will come to it and be added. On the way down
// the root encodes a value once and members hand on what they received, as it came.
//
//   push   member -- ready --> coordinator -- send it to X --> member -- push --> X: ready again
//   pull   holder -- has   --> coordinator -- send it to X --> holder -- value -> X: has it too
//
// Who is told what is the coordinator's business: a plugin's, on a node that all members talk with.
// It learns of every transfer's end from the receiver, on its own clock. Shards and rounds know nothing
// of each other here, so any number of keys is in flight. What is kept per shard is one contribution
// until it is sent, and one encoded value until the next round's.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/inbox.h"
#include "core/message.h"
#include "core/overlay_group.h"
#include "core/shard_value.h"
#include "core/types.h"

namespace geomx {

class Node;

// One node's part in its groups.
class Overlay {
 public:
  Overlay(Node& node, std::span<const OverlayGroup> groups);

  // Takes what the node's role wants to send, if an overlay serves that way. True if it did.
  bool Take(std::span<const NodeId> targets, const ShardValue& value, Time now);

  // Whether `from` may send this transfer although it is neither parent nor child.
  bool Expects(NodeId from, const Header& header) const;
  // Whether the messages of this transfer will be handed on.
  bool Relays(const Header& header) const;

  // A whole contribution came from `from`. True if it was for this member to add to its own; the role
  // must see it otherwise.
  bool Merge(NodeId from, const Header& header, const Buffer& value, std::uint64_t bytes,
             Time now);
  // A whole value came, in these messages; the role sees it too.
  void Hold(NodeId from, const Header& header, std::vector<Message> messages, std::uint64_t bytes,
            Time now);

  // A sibling will not contribute any more; what is held here for a round without it waits in vain.
  void OnBye(NodeId from);
  // All other members of the groups that this node is a member of.
  std::vector<NodeId> Siblings() const;
  // Whether pushes to `root` may bring others' contributions.
  bool BringsOthers(NodeId root) const;

  // A reply that came from `from`. False if it is not an order of one of this node's overlays.
  bool Obey(NodeId from, std::uint32_t number, std::span<const double> numbers, Time now);

 private:
  struct Group : OverlayGroup {
    explicit Group(const OverlayGroup& group);
    bool Has(NodeId id) const;
    std::vector<NodeId> ascending;  // its members
  };
  struct ItemId {
    NodeId root;
    Key key;
    std::uint32_t shard;
    auto operator<=>(const ItemId&) const = default;
  };
  // What this member has to contribute: its own value, and what others gave it on their way.
  struct Contribution {
    ShardValue value;
    Buffer relayed;
  };
  struct Holding {
    Round round = 0;
    std::vector<Message> messages;
  };

  // The group in which a transfer of this shard travels, seen from below (a member) or above (the
  // root). Null if there is none.
  const Group* Above(const Header& header) const;
  const Group* OwnGroup() const;
  // Whether a contribution is held here for a round that a member that has left would have to join.
  void CheckLeft(const Group& group, const Header& header);
  void Report(const OverlayGroup& group, OverlayReport::What what, const Header& header,
              std::optional<NodeId> from, std::uint64_t bytes, Time now);
  void SendContribution(const Group& group, const OverlayOrder& order, Time now);
  void SendHolding(const Group& group, const OverlayOrder& order);
  void Blame(NodeId from, const OverlayGroup& group, const OverlayOrder& order,
             const std::string& why);

  Node& node_;
  std::map<NodeId, Group> groups_;  // by root
  std::set<NodeId> left_;           // siblings that said bye
  std::map<ItemId, Contribution> contributions_;
  std::map<ItemId, Holding> holdings_;
};

}  // namespace geomx
