#include "core/overlay.h"

#include <algorithm>
#include <utility>

#include "core/node.h"

namespace geomx {

// ---- groups ----------------------------------------------------------------------------------

Overlay::Group::Group(const OverlayGroup& group) : OverlayGroup(group), ascending(group.members) {
  std::sort(ascending.begin(), ascending.end());
}

bool Overlay::Group::Has(NodeId id) const {
  return std::binary_search(ascending.begin(), ascending.end(), id);
}

Overlay::Overlay(Node& node, std::span<const OverlayGroup> groups) : node_(node) {
  for (const OverlayGroup& group : groups) groups_.emplace(group.root, Group(group));
}

void Overlay::Contribution::Exchange(Archive& archive) {
  bool there = value.data != nullptr;
  archive(value.header, there, own, arrived, relayed);
  if (!there) return;
  const auto copy = std::make_shared<Buffer>();
  if (!archive.loading()) copy->assign(value.data, value.data + value.header.shard_elements);
  archive(*copy);
  if (!archive.loading()) return;
  if (copy->size() != value.header.shard_elements) throw StateError("a contribution of the wrong size");
  value.data = copy->data();
  value.owner = copy;
}

const Overlay::Group* Overlay::Above(const Header& header) const {
  const NodeConfig& config = node_.config();
  const std::size_t parent = config.role == Role::kWorker ? 0 : header.server;
  if (parent >= config.parents.size()) return nullptr;
  const auto found = groups_.find(config.parents[parent]);
  return found == groups_.end() ? nullptr : &found->second;
}

const Overlay::Group* Overlay::OwnGroup() const {
  const auto found = groups_.find(node_.config().id);
  return found == groups_.end() ? nullptr : &found->second;
}

bool Overlay::Expects(NodeId from, const Header& header) const {
  if (header.kind != Kind::kPush && header.kind != Kind::kValue) return false;
  if ((header.flags & kPlain) != 0) return false;
  const Group* group = Above(header);
  if (group == nullptr || !(header.kind == Kind::kPush ? group->push : group->pull)) return false;
  return group->Has(from);
}

bool Overlay::MayComeFirst(NodeId from, const Header& header) const {
  return header.kind == Kind::kPush && Expects(from, header) && Above(header)->ahead;
}

bool Overlay::Relays(const Header& header) const {
  if (header.kind != Kind::kValue || (header.flags & kPlain) != 0) return false;
  const Group* group = Above(header);
  return group != nullptr && group->pull;
}

bool Overlay::BringsOthers(NodeId root) const {
  const auto found = groups_.find(root);
  return found != groups_.end() && found->second.push;
}

std::vector<NodeId> Overlay::Siblings() const {
  std::set<NodeId> siblings;
  for (const auto& [root, group] : groups_) {
    if (root != node_.config().id) siblings.insert(group.members.begin(), group.members.end());
  }
  siblings.erase(node_.config().id);
  return {siblings.begin(), siblings.end()};
}

void Overlay::OnBye(NodeId from) {
  left_.insert(from);
  for (const auto& [id, contribution] : contributions_) {
    CheckLeft(groups_.at(id.root), contribution.value.header);
  }
}

// The member left with an answer to all its pushes, so the open round is a later one.
void Overlay::CheckLeft(const Group& group, const Header& header) {
  for (const NodeId id : left_) {
    if (!group.Has(id)) continue;
    return node_.membership().EndRound(id, header.round - 1, node_.config().id, header.key, header.round);
  }
}

void Overlay::Report(const OverlayGroup& group, OverlayReport::What what, const Header& header,
                     std::optional<NodeId> from, const Arrival& arrival, Time now) {
  OverlayReport report{.what = what,
                       .root = group.root,
                       .key = header.key,
                       .shard = header.shard,
                       .round = header.round,
                       .priority = header.priority,
                       .from = from,
                       .bytes = from ? arrival.bytes : std::uint64_t{header.shard_elements} * sizeof(float),
                       .spread = arrival.spread};
  if (what == OverlayReport::What::kOrigin) report.members = group.members;
  node_.Consult(group.host, group.number, report.Pack(), now);
}

// ---- on the way up and down ------------------------------------------------------------------

bool Overlay::Take(std::span<const NodeId> targets, const ShardValue& value, Time now) {
  const Header& header = value.header;
  if ((header.flags & kPlain) != 0 || header.kind == Kind::kInit) return false;
  if (DirectionOf(header) == Direction::kPush) {
    const Group* group = Above(header);
    if (group == nullptr || !group->push) return false;
    const OverlayItem item{Direction::kPush, group->root, header.key, header.shard};
    Contribution& mine = contributions_[item];
    const bool early = mine.arrived > 0 && !mine.own && mine.value.header.round == header.round;
    const Header others = mine.value.header;
    if (!early) mine = {};
    mine.value = value;
    mine.own = true;
    if (early) Count(mine.value.header, others);
    CheckLeft(*group, header);
    if (!FollowUp(*group, item, now)) {
      Report(*group, OverlayReport::What::kReady, header, std::nullopt, {}, now);
    }
    return true;
  }
  const Group* group = OwnGroup();
  if (group == nullptr || !group->pull || targets.size() != group->members.size()) return false;
  node_.Pack(group->members.front(), value, {}, now,
             [this, group, header](std::vector<Message> messages, Time at) {
               const OverlayItem item{Direction::kPull, group->root, header.key, header.shard};
               Holding& held = holdings_[item];
               const bool again = held.forwarded && held.round == header.round;
               held = {header.round, std::move(messages), again};  // members take one value per round
               if (FollowDown(*group, item)) return;
               Report(*group, OverlayReport::What::kOrigin, header, std::nullopt, {}, at);
             });
  return true;
}

void Overlay::Count(Header& sum, const Header& header) {
  sum.merge_count += header.merge_count;
  sum.steps += header.steps;
  sum.flags |= header.flags & (kLast | kTold);
  if ((header.flags & kAbsent) == 0) sum.flags &= ~kAbsent;
}

bool Overlay::Awaits(const Group& group, const Header& header) const {
  const OverlayItem item{Direction::kPush, group.root, header.key, header.shard};
  const auto found = contributions_.find(item);
  if (found != contributions_.end()) {
    const Header& waits = found->second.value.header;
    return waits.round == header.round && waits.shard_elements == header.shard_elements;
  }
  if (!group.ahead) return false;
  const auto sent = sent_.find(item);
  return sent == sent_.end() || header.round > sent->second;
}

bool Overlay::Merge(NodeId from, const Header& header, const Buffer& value, const Arrival& arrival,
                    Time now) {
  if (const Group* own = OwnGroup(); own != nullptr && own->push && own->Has(from)) {
    const OverlayPlans::Way* way =
        plans_.Find({Direction::kPush, own->root, header.key, header.shard}, header.round);
    if (way == nullptr || way->reports) {
      Report(*own, OverlayReport::What::kMerged, header, from, arrival, now);
    }
    return false;
  }
  const Group* group = Above(header);
  if (group == nullptr || !group->push || !group->Has(from)) return false;
  if (!Awaits(*group, header) ||
      (!value.empty() && value.size() * sizeof(float) != node_.sums().AddedBytes(header))) {
    node_.Fail(from, "a contribution to nothing that waits here");
    return true;
  }
  const OverlayItem item{Direction::kPush, group->root, header.key, header.shard};
  Contribution& mine = contributions_[item];
  node_.work().aggregate.Add(node_.sums().AddedBytes(header));
  Header& sum = mine.value.header;
  if (mine.own || mine.arrived > 0) {
    Count(sum, header);
  } else {
    sum = header;
  }
  ++mine.arrived;
  if (mine.relayed.empty()) {
    mine.relayed = value;
  } else {
    for (std::size_t i = 0; i < mine.relayed.size(); ++i) mine.relayed[i] += value[i];
  }
  const OverlayPlans::Way* way = plans_.Find(item, header.round);
  if (way == nullptr || way->reports) {
    Report(*group, OverlayReport::What::kReady, sum, from, arrival, now);
  }
  FollowUp(*group, item, now);
  return true;
}

void Overlay::Hold(NodeId from, const Header& header, std::vector<Message> messages,
                   const Arrival& arrival, Time now) {
  const Group* group = Above(header);
  if (group == nullptr || !group->pull) return;
  const OverlayItem item{Direction::kPull, group->root, header.key, header.shard};
  holdings_[item] = {header.round, std::move(messages)};
  const OverlayPlans::Way* way = plans_.Find(item, header.round);
  if (way == nullptr || way->reports) {
    Report(*group, OverlayReport::What::kHas, header, from, arrival, now);
  }
  FollowDown(*group, item);
}

bool Overlay::FollowUp(const Group& group, const OverlayItem& item, Time now) {
  const auto found = contributions_.find(item);
  if (found == contributions_.end()) return false;
  const Contribution& mine = found->second;
  const Round round = mine.value.header.round;
  const OverlayPlans::Way* way = plans_.Find(item, round);
  if (way == nullptr || way->targets.empty()) return false;
  if (!mine.own || mine.arrived < way->awaited) return true;
  const NodeId target = way->targets.front();
  plans_.Forget(item, round);
  SendContribution(group, {Direction::kPush, item.root, item.key, item.shard, round, target}, now);
  return true;
}

bool Overlay::FollowDown(const Group& group, const OverlayItem& item) {
  Holding& held = holdings_.at(item);
  const OverlayPlans::Way* way = plans_.Find(item, held.round);
  if (way == nullptr) return false;
  if (std::exchange(held.forwarded, true)) return true;
  for (const NodeId target : way->targets) {
    SendHolding(group, {Direction::kPull, item.root, item.key, item.shard, held.round, target});
  }
  plans_.Forget(item, held.round);
  return true;
}

// ---- what the coordinator says ---------------------------------------------------------------

bool Overlay::Obey(NodeId from, std::uint32_t number, std::span<const double> numbers, Time now) {
  if (const auto plan = OverlayPlan::Unpack(numbers)) {
    const auto of = groups_.find(plan->root);
    if (of == groups_.end() || of->second.host != from || of->second.number != number) return false;
    return Take(*plan, of->second, now);
  }
  const auto order = OverlayOrder::Unpack(numbers);
  if (!order) return RefuseReply(from, number);
  const auto found = groups_.find(order->root);
  if (found == groups_.end() || found->second.host != from || found->second.number != number) {
    return false;
  }
  const Group& group = found->second;
  if (order->target == node_.config().id ||
      (!group.Has(order->target) && order->target != group.root)) {
    std::string members = std::to_string(group.root) + " (the root)";
    for (const NodeId id : group.members) {
      if (id != node_.config().id) members += ", " + std::to_string(id);
    }
    Blame(from, group, *order, "that node is none of " + members);
  } else if (order->direction == Direction::kPush) {
    SendContribution(group, *order, now);
  } else {
    SendHolding(group, *order);
  }
  return true;
}

bool Overlay::RefuseReply(NodeId from, std::uint32_t number) {
  for (const auto& [root, group] : groups_) {
    if (group.host != from || group.number != number) continue;
    node_.Fail(from, Labelled(group) + "a reply to " + node_.config().name +
                         " that is no order; geomx.overlay_order makes orders");
    return true;
  }
  return false;
}

bool Overlay::Take(const OverlayPlan& plan, const Group& group, Time now) {
  const bool up = plan.direction == Direction::kPush;
  for (const NodeId target : plan.targets) {
    const bool known = group.Has(target) || (up && target == group.root);
    if (target == node_.config().id || !known || !group.ahead) {
      const OverlayOrder order{plan.direction, plan.root, 0, 0, 0, target};
      Blame(group.host, group, order, group.ahead ? "that node is no other one of the group"
                                                  : "the overlay does not say that it plans ahead");
      return true;
    }
  }
  plans_.Add(plan);
  // What waits for an order since it was reported. Sending changes the maps.
  const auto planned = [&](const OverlayItem& item) {
    return item.direction == plan.direction && item.root == plan.root;
  };
  std::vector<OverlayItem> waiting;
  for (const auto& [item, mine] : contributions_) {
    if (up && planned(item)) waiting.push_back(item);
  }
  for (const OverlayItem& item : waiting) FollowUp(group, item, now);
  if (up) return true;
  for (const auto& [item, holding] : holdings_) {
    if (planned(item)) FollowDown(group, item);
  }
  return true;
}

std::string Overlay::Labelled(const OverlayGroup& group) {
  return group.label.empty() ? "" : group.label + ": ";
}

void Overlay::Blame(NodeId from, const OverlayGroup& group, const OverlayOrder& order,
                    const std::string& why) {
  const bool push = order.direction == Direction::kPush;
  node_.Fail(from, Labelled(group) + "an order to " + node_.config().name + " to " +
                 (push ? "push" : "hand on") + " key " + std::to_string(order.key) + " round " +
                 std::to_string(order.round) + " to node " + std::to_string(order.target) + ": " + why);
}

void Overlay::SendContribution(const Group& group, const OverlayOrder& order, Time now) {
  const OverlayItem item{Direction::kPush, group.root, order.key, order.shard};
  const auto found = contributions_.find(item);
  if (found == contributions_.end() || !found->second.own ||
      found->second.value.header.round != order.round) {
    return Blame(group.host, group, order, "it holds no contribution of that round, or has sent it");
  }
  Contribution mine = std::move(found->second);
  contributions_.erase(found);
  sent_[item] = order.round;
  node_.Pack(group.root, mine.value, std::move(mine.relayed), now,
             [this, target = order.target](std::vector<Message> messages, Time) {
               for (Message& message : messages) node_.Send(target, std::move(message));
             });
}

void Overlay::SendHolding(const Group& group, const OverlayOrder& order) {
  const auto found = holdings_.find({Direction::kPull, group.root, order.key, order.shard});
  if (found == holdings_.end() || found->second.round != order.round) {
    return Blame(group.host, group, order, "it holds no value of that round");
  }
  found->second.forwarded = true;  // a plan that comes later does not forward it again
  for (const Message& message : found->second.messages) node_.Send(order.target, Message(message));
}

}  // namespace geomx
