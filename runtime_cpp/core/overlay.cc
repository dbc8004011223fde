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
  archive(value.header, there, relayed);
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
    const ItemId id{group->root, header.key, header.shard};
    contributions_[id] = {value, {}};
    CheckLeft(*group, header);
    if (standing_.contains(id)) {
      SendContribution(*group, {Direction::kPush, id.root, id.key, id.shard, header.round, id.root}, now);
    } else {
      Report(*group, OverlayReport::What::kReady, header, std::nullopt, {}, now);
    }
    return true;
  }
  const Group* group = OwnGroup();
  if (group == nullptr || !group->pull || targets.size() != group->members.size()) return false;
  node_.Pack(group->members.front(), value, {}, now,
             [this, group, header](std::vector<Message> messages, Time at) {
               holdings_[{group->root, header.key, header.shard}] = {header.round,
                                                                     std::move(messages)};
               Report(*group, OverlayReport::What::kOrigin, header, std::nullopt, {}, at);
             });
  return true;
}

bool Overlay::Merge(NodeId from, const Header& header, const Buffer& value, const Arrival& arrival,
                    Time now) {
  if (const Group* own = OwnGroup(); own != nullptr && own->push && own->Has(from)) {
    Report(*own, OverlayReport::What::kMerged, header, from, arrival, now);
    return false;
  }
  const Group* group = Above(header);
  if (group == nullptr || !group->push || !group->Has(from)) return false;
  const auto found = contributions_.find({group->root, header.key, header.shard});
  if (found == contributions_.end() || found->second.value.header.round != header.round ||
      found->second.value.header.shard_elements != header.shard_elements ||
      (!value.empty() && value.size() * sizeof(float) != node_.sums().AddedBytes(header))) {
    node_.Fail(from, "a contribution to nothing that waits here");
    return true;
  }
  Contribution& mine = found->second;
  Header& sum = mine.value.header;
  node_.work().aggregate.Add(node_.sums().AddedBytes(header));
  sum.merge_count += header.merge_count;
  sum.steps += header.steps;
  sum.flags |= header.flags & kLast;
  if ((header.flags & kAbsent) == 0) sum.flags &= ~kAbsent;
  if (mine.relayed.empty()) {
    mine.relayed = value;
  } else {
    for (std::size_t i = 0; i < mine.relayed.size(); ++i) mine.relayed[i] += value[i];
  }
  Report(*group, OverlayReport::What::kReady, sum, from, arrival, now);
  return true;
}

void Overlay::Hold(NodeId from, const Header& header, std::vector<Message> messages,
                   const Arrival& arrival, Time now) {
  const Group* group = Above(header);
  if (group == nullptr || !group->pull) return;
  holdings_[{group->root, header.key, header.shard}] = {header.round, std::move(messages)};
  Report(*group, OverlayReport::What::kHas, header, from, arrival, now);
}

// ---- what the coordinator says ---------------------------------------------------------------

bool Overlay::Obey(NodeId from, std::uint32_t number, std::span<const double> numbers, Time now) {
  const auto order = OverlayOrder::Unpack(numbers);
  const auto found = order ? groups_.find(order->root) : groups_.end();
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
    const ItemId id{order->root, order->key, order->shard};
    if (order->term == OverlayOrder::Term::kAsk) return standing_.erase(id), true;
    if (order->term == OverlayOrder::Term::kStanding) standing_.insert(id);
    SendContribution(group, *order, now);
  } else {
    SendHolding(group, *order);
  }
  return true;
}

void Overlay::Blame(NodeId from, const OverlayGroup& group, const OverlayOrder& order,
                    const std::string& why) {
  const bool push = order.direction == Direction::kPush;
  node_.Fail(from, (group.label.empty() ? "" : group.label + ": ") + "an order to " + node_.config().name +
                 " to " + (push ? "push" : "hand on") + " key " + std::to_string(order.key) +
                 " round " + std::to_string(order.round) + " to node " +
                 std::to_string(order.target) + ": " + why);
}

void Overlay::SendContribution(const Group& group, const OverlayOrder& order, Time now) {
  const auto found = contributions_.find({group.root, order.key, order.shard});
  if (found == contributions_.end() || found->second.value.header.round != order.round) {
    return Blame(group.host, group, order, "it holds no contribution of that round, or has sent it");
  }
  Contribution mine = std::move(found->second);
  contributions_.erase(found);
  node_.Pack(group.root, mine.value, std::move(mine.relayed), now,
             [this, target = order.target](std::vector<Message> messages, Time) {
               for (Message& message : messages) node_.Send(target, std::move(message));
             });
}

void Overlay::SendHolding(const Group& group, const OverlayOrder& order) {
  const auto found = holdings_.find({group.root, order.key, order.shard});
  if (found == holdings_.end() || found->second.round != order.round) {
    return Blame(group.host, group, order, "it holds no value of that round");
  }
  for (const Message& message : found->second.messages) node_.Send(order.target, Message(message));
}

}  // namespace geomx
