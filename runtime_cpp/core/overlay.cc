#include "core/overlay.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/node.h"

namespace geomx {
namespace {

// Numbers travel as float64; ids and counts are exact in it.
template <class Integer>
bool Read(double number, Integer& out) {
  constexpr double kLeast = static_cast<double>(std::numeric_limits<Integer>::min());
  constexpr double kMost = std::min(static_cast<double>(std::numeric_limits<Integer>::max()), 9e15);
  if (!(number >= kLeast && number <= kMost) || number != std::floor(number)) return false;
  out = static_cast<Integer>(number);
  return true;
}

}  // namespace

std::vector<double> OverlayReport::Pack() const {
  std::vector<double> numbers = {static_cast<double>(what),
                                 static_cast<double>(root),
                                 static_cast<double>(key),
                                 static_cast<double>(shard),
                                 static_cast<double>(round),
                                 static_cast<double>(priority),
                                 from ? static_cast<double>(*from) : -1.0,
                                 static_cast<double>(bytes)};
  numbers.insert(numbers.end(), members.begin(), members.end());
  return numbers;
}

std::optional<OverlayReport> OverlayReport::Unpack(std::span<const double> numbers) {
  OverlayReport report;
  std::uint8_t what = 0;
  if (numbers.size() < 8 || !Read(numbers[0], what) ||
      what > static_cast<std::uint8_t>(What::kHas) || !Read(numbers[1], report.root) ||
      !Read(numbers[2], report.key) || !Read(numbers[3], report.shard) ||
      !Read(numbers[4], report.round) || !Read(numbers[5], report.priority) ||
      !Read(numbers[7], report.bytes)) {
    return std::nullopt;
  }
  report.what = static_cast<What>(what);
  NodeId id = 0;
  if (numbers[6] != -1.0) {
    if (!Read(numbers[6], id)) return std::nullopt;
    report.from = id;
  }
  for (const double number : numbers.subspan(8)) {
    if (!Read(number, id)) return std::nullopt;
    report.members.push_back(id);
  }
  return report;
}

std::vector<double> OverlayOrder::Pack() const {
  return {static_cast<double>(direction), static_cast<double>(root),  static_cast<double>(key),
          static_cast<double>(shard),     static_cast<double>(round), static_cast<double>(target)};
}

std::optional<OverlayOrder> OverlayOrder::Unpack(std::span<const double> numbers) {
  OverlayOrder order;
  std::uint8_t direction = 0;
  if (numbers.size() != 6 || !Read(numbers[0], direction) || direction > 1 ||
      !Read(numbers[1], order.root) || !Read(numbers[2], order.key) ||
      !Read(numbers[3], order.shard) || !Read(numbers[4], order.round) ||
      !Read(numbers[5], order.target)) {
    return std::nullopt;
  }
  order.direction = static_cast<Direction>(direction);
  return order;
}

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
    CheckLeft(groups_.at(id.root), contribution.header);
  }
}

// It left with an answer to all that it had pushed, so this round is a later one.
void Overlay::CheckLeft(const Group& group, const Header& header) {
  for (const NodeId id : left_) {
    if (!group.Has(id)) continue;
    return node_.EndRound(id, header.round - 1, node_.config().id, header.key, header.round);
  }
}

void Overlay::Fail(NodeId peer, const std::string& reason) {
  node_.Emit({.kind = Event::Kind::kPeerError, .peer = peer, .reason = reason});
}

void Overlay::Report(const OverlayGroup& group, OverlayReport::What what, const Header& header,
                     std::optional<NodeId> from, std::uint64_t bytes, Time now) {
  OverlayReport report{.what = what,
                       .root = group.root,
                       .key = header.key,
                       .shard = header.shard,
                       .round = header.round,
                       .priority = header.priority,
                       .from = from,
                       .bytes = bytes};
  if (what == OverlayReport::What::kOrigin) report.members = group.members;
  node_.Consult(group.host, group.number, report.Pack(), now);
}

// ---- on the way up and down ------------------------------------------------------------------

bool Overlay::Take(std::span<const NodeId> targets, Direction direction, const Header& header,
                   const float* value, const std::shared_ptr<const void>& owner, Time now) {
  if ((header.flags & kPlain) != 0 || header.kind == Kind::kInit) return false;
  if (direction == Direction::kPush) {
    const Group* group = Above(header);
    if (group == nullptr || !group->push) return false;
    contributions_[{group->root, header.key, header.shard}] = {header, value, owner, {}};
    CheckLeft(*group, header);
    Report(*group, OverlayReport::What::kReady, header, std::nullopt, 0, now);
    return true;
  }
  const Group* group = OwnGroup();
  if (group == nullptr || !group->pull || targets.size() != group->members.size()) return false;
  Holding& holding = holdings_[{group->root, header.key, header.shard}];
  holding.round = header.round;
  holding.messages = node_.Pack(group->members.front(), direction, header, value, owner);
  Report(*group, OverlayReport::What::kOrigin, header, std::nullopt, 0, now);
  return true;
}

bool Overlay::Merge(NodeId from, const Header& header, const Buffer& value, std::uint64_t bytes,
                    Time now) {
  if (const Group* own = OwnGroup(); own != nullptr && own->push && own->Has(from)) {
    Report(*own, OverlayReport::What::kMerged, header, from, bytes, now);
    return false;
  }
  const Group* group = Above(header);
  if (group == nullptr || !group->push || !group->Has(from)) return false;
  const auto found = contributions_.find({group->root, header.key, header.shard});
  if (found == contributions_.end() || found->second.header.round != header.round ||
      found->second.header.shard_elements != header.shard_elements ||
      (!value.empty() && value.size() * sizeof(float) != node_.AddedBytes(header))) {
    Fail(from, "a contribution to nothing that waits here");
    return true;
  }
  Contribution& mine = found->second;
  node_.work().aggregate.Add(node_.AddedBytes(header));
  mine.header.merge_count += header.merge_count;
  mine.header.flags |= header.flags & kLast;
  if ((header.flags & kAbsent) == 0) mine.header.flags &= ~kAbsent;
  if (mine.relayed.empty()) {
    mine.relayed = value;
  } else {
    for (std::size_t i = 0; i < mine.relayed.size(); ++i) mine.relayed[i] += value[i];
  }
  Report(*group, OverlayReport::What::kReady, mine.header, from, bytes, now);
  return true;
}

void Overlay::Hold(NodeId from, const Header& header, std::vector<Message> messages,
                   std::uint64_t bytes, Time now) {
  const Group* group = Above(header);
  if (group == nullptr || !group->pull) return;
  holdings_[{group->root, header.key, header.shard}] = {header.round, std::move(messages)};
  Report(*group, OverlayReport::What::kHas, header, from, bytes, now);
}

// ---- what the coordinator says ---------------------------------------------------------------

bool Overlay::Obey(NodeId from, std::uint32_t number, std::span<const double> numbers) {
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
    SendContribution(group, *order);
  } else {
    SendHolding(group, *order);
  }
  return true;
}

void Overlay::Blame(NodeId from, const OverlayGroup& group, const OverlayOrder& order,
                    const std::string& why) {
  const bool push = order.direction == Direction::kPush;
  Fail(from, (group.label.empty() ? "" : group.label + ": ") + "an order to " + node_.config().name +
                 " to " + (push ? "push" : "hand on") + " key " + std::to_string(order.key) +
                 " round " + std::to_string(order.round) + " to node " +
                 std::to_string(order.target) + ": " + why);
}

void Overlay::SendContribution(const Group& group, const OverlayOrder& order) {
  const auto found = contributions_.find({group.root, order.key, order.shard});
  if (found == contributions_.end() || found->second.header.round != order.round) {
    return Blame(group.host, group, order, "it holds no contribution of that round, or has sent it");
  }
  Contribution mine = std::move(found->second);
  contributions_.erase(found);
  node_.SendMerged(group.root, order.target, mine.header, mine.value, std::move(mine.owner),
                   std::move(mine.relayed));
}

void Overlay::SendHolding(const Group& group, const OverlayOrder& order) {
  const auto found = holdings_.find({group.root, order.key, order.shard});
  if (found == holdings_.end() || found->second.round != order.round) {
    return Blame(group.host, group, order, "it holds no value of that round");
  }
  for (const Message& message : found->second.messages) node_.Queue(order.target, message);
}

}  // namespace geomx
