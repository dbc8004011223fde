// Overlay routing inside a group: members forward for each other instead of all talking to the
// root.
//
// A group is a root (a party's local server, or a global server) and its children. With an overlay,
// contributions are added on the way up: a member reports that it holds one, and the coordinator
// tells it to send it to another member or to the root, or to wait for one that will be added to
// it. On the way down the root encodes a value once, and members forward the messages that they
// received, unchanged.
//
//   push   member -- ready --> coordinator -- send it to X --> member -- push --> X: ready again
//   pull   holder -- has   --> coordinator -- send it to X --> holder -- value -> X: has it too
//
// A plan is an order made ahead, for many shards and rounds: a member sends a contribution to its target
// when it has its own and as many of others as the plan says, and forwards a value when it arrives. So
// nothing waits for orders. The same round of a shard is planned for all nodes of the group, but they learn
// of it at different times: contributions may come before the member's own, and before its plan.
//
// The coordinator, part of a plugin, decides; it runs on a node that all members are connected to,
// and learns of every transfer's end from the receiver, on its own clock. Shards and rounds are
// independent of each other here, so any number of keys can be in flight. Per shard, a member keeps
// one contribution until it is sent, and one encoded value until the next round's.
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
#include "core/overlay_plans.h"
#include "core/shard_value.h"
#include "core/types.h"

namespace geomx {

class Node;

// One node's part in its groups.
class Overlay {
 public:
  Overlay(Node& node, std::span<const OverlayGroup> groups);

  // Takes a value that the role sends, if an overlay serves its direction. Returns whether it did.
  bool Take(std::span<const NodeId> targets, const ShardValue& value, Time now);

  // Returns true if `from`, neither parent nor child, may send this transfer.
  bool Expects(NodeId from, const Header& header) const;
  // Returns true if it is a contribution that a plan may let go before this node has taken part in the round.
  bool MayComeFirst(NodeId from, const Header& header) const;
  // Returns true if the messages of this transfer will be forwarded.
  bool Relays(const Header& header) const;

  // Handles a complete contribution of `from`. Returns true if it was added to this member's own;
  // otherwise the role must handle it.
  bool Merge(NodeId from, const Header& header, const Buffer& value, const Arrival& arrival,
             Time now);
  // Handles a complete value, which arrived in these messages; the role handles it as well.
  void Hold(NodeId from, const Header& header, std::vector<Message> messages, const Arrival& arrival,
            Time now);

  // A sibling has left and will contribute no more; a contribution that needs it here cannot be
  // completed.
  void OnBye(NodeId from);
  // All other members of the groups that this node is a member of.
  std::vector<NodeId> Siblings() const;
  // Returns true if pushes to `root` may include other members' contributions.
  bool BringsOthers(NodeId root) const;

  // Returns true if the coordinator of one of this node's overlays is on `id`.
  bool IsHost(NodeId id) const {
    return std::any_of(groups_.begin(), groups_.end(),
                       [id](const auto& each) { return each.second.host == id; });
  }
  // Carries out a reply of `from`. Returns false if it is not an order for one of this node's
  // overlays.
  bool Obey(NodeId from, std::uint32_t number, std::span<const double> numbers, Time now);

  void Exchange(Archive& archive) { archive(left_, contributions_, holdings_, plans_, sent_); }

 private:
  struct Group : OverlayGroup {
    explicit Group(const OverlayGroup& group);
    bool Has(NodeId id) const;
    std::vector<NodeId> ascending;  // its members
  };
  // A member's contribution: its own value and the sum of those that others sent it.
  struct Contribution {
    ShardValue value;           // the header counts for all
    bool own = false;           // `value` has come
    std::uint32_t arrived = 0;  // contributions of others
    Buffer relayed;

    void Exchange(Archive& archive);
  };
  struct Holding {
    Round round = 0;
    std::vector<Message> messages;
    bool forwarded = false;  // by a plan

    void Exchange(Archive& archive) { archive(round, messages, forwarded); }
  };

  // The group that a transfer of this shard belongs to, seen from a member (Above) or from the
  // root. Null if there is none.
  const Group* Above(const Header& header) const;
  const Group* OwnGroup() const;
  // Reports a loss if a contribution held here needs a member that has left.
  void CheckLeft(const Group& group, const Header& header);
  // `from` sent what has just arrived; none: nothing has.
  void Report(const OverlayGroup& group, OverlayReport::What what, const Header& header,
              std::optional<NodeId> from, const Arrival& arrival, Time now);
  void SendContribution(const Group& group, const OverlayOrder& order, Time now);
  // Adds the counts of one contribution to those of another, of the same round.
  static void Count(Header& sum, const Header& header);
  // Returns true if a contribution of `header` may be added to this member's own.
  bool Awaits(const Group& group, const Header& header) const;
  // Sends what a plan lets go. Returns false if there is no plan for the round.
  bool FollowUp(const Group& group, const OverlayItem& item, Time now);
  bool FollowDown(const Group& group, const OverlayItem& item);
  bool Take(const OverlayPlan& plan, const Group& group, Time now);
  void SendHolding(const Group& group, const OverlayOrder& order);
  // The start of a sentence about a group: the plugin, if it is known.
  static std::string Labelled(const OverlayGroup& group);
  // Refuses numbers that are no order, from the coordinator of one of this node's overlays. Returns
  // false if they come from another one.
  bool RefuseReply(NodeId from, std::uint32_t number);
  void Blame(NodeId from, const OverlayGroup& group, const OverlayOrder& order,
             const std::string& why);

  Node& node_;
  std::map<NodeId, Group> groups_;  // by root
  std::set<NodeId> left_;           // siblings that said bye
  std::map<OverlayItem, Contribution> contributions_;
  std::map<OverlayItem, Holding> holdings_;
  OverlayPlans plans_;
  std::map<OverlayItem, Round> sent_;  // the last round of which a contribution was sent
};

}  // namespace geomx
