// The coordinator of NetStorm's trees (Li et al., "Accelerating Geo-distributed Machine Learning with
// Network-Aware Adaptive Tree and Auxiliary Route", 2024) for any number of roots.
//
// Each round of each shard has two trees (trees.h): one along which contributions are added on the way to
// the shard's root, and one along which its new value is forwarded. They are made when the first member
// reports the round, or when the root has the value, from the rates of the links (links.h) and from what
// the trees of other shards, and of other roots, are still going to send over them. All roots share this
// coordinator, so that their trees avoid each other's links.
//
//   up    a member sends when it has its own contribution and those of all its children in the tree, and
//         its neighbour has its own, to which it can be added
//   down  a member forwards the value to its children in the tree when it has it
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <set>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "core/natives.h"
#include "core/overlay_group.h"
#include "trees.h"

namespace geomx {
namespace {

using namespace multiroot;

class Planner final : public Coordinator {
 public:
  explicit Planner(const Options& options)
      : members_(Members(options)), links_(Routes(options), static_cast<Round>(Require(options, "expiry_rounds"))) {}

  std::vector<Reply> OnReport(NodeId from, std::span<const double> values, Time now) override {
    const auto report = OverlayReport::Unpack(values);
    if (!report) return {};
    using What = OverlayReport::What;
    const OverlayItem id = OverlayItem::Of(*report);
    if (!links_.Knows({members_.front(), report->root})) return {};
    Item& item = items_[id];
    if (report->from) End(id, item, {*report->from, from}, *report, now);
    if (report->round < item.round) return {};
    std::vector<Reply> replies;
    if (report->round > item.round) Begin(id, item, *report);
    if (report->what == What::kReady) {
      item.holders.insert(from);
      Ascend(id, item, from, now, replies);
      for (const NodeId child : Children(item, from)) Ascend(id, item, child, now, replies);
    } else if (!id.up()) {
      for (const NodeId child : Children(item, from)) Order(id, item, {from, child}, now, replies);
    }
    return replies;
  }

  void Exchange(Archive& archive) override { archive(links_, items_); }

 private:
  struct Item {
    Round round = 0;
    double dense = 0, wire = 0;  // bytes of a transfer: before encoding, and of the last one that arrived
    double planned = 0;          // bytes for which this round's tree was made
    std::map<NodeId, NodeId> neighbours = {};       // on the way to the root
    std::map<NodeId, std::uint32_t> awaited = {};   // up: children whose contributions have not arrived
    std::set<NodeId> holders = {};                  // up: members with a contribution that they have not sent
    std::map<Pair, Time> open = {};                 // transfers under way, and when they began

    void Exchange(Archive& archive) {
      archive(round, dense, wire, planned, neighbours, awaited, holders, open);
    }
  };

  static std::vector<NodeId> Members(const Options& options) {
    std::vector<NodeId> members;
    for (const auto& [name, value] : options) {
      NodeId id = 0;
      if (std::sscanf(name.c_str(), "member %u", &id) == 1) members.push_back(id);
    }
    if (members.empty()) throw std::invalid_argument("multiroot needs members");
    std::sort(members.begin(), members.end());
    return members;
  }

  // "route A B": the delay of a pair of nodes; "route A B I": the number of the I-th link between them.
  static std::map<Pair, Route> Routes(const Options& options) {
    std::map<Pair, std::map<std::uint32_t, LinkId>> links;
    std::map<Pair, Route> routes;
    for (const auto& [name, value] : options) {
      NodeId sender = 0, receiver = 0;
      std::uint32_t at = 0;
      const int read = std::sscanf(name.c_str(), "route %u %u %u", &sender, &receiver, &at);
      if (read == 2) routes[{sender, receiver}].delay = value;
      if (read == 3) links[{sender, receiver}][at] = static_cast<LinkId>(value);
    }
    for (const auto& [pair, found] : links) {
      for (const auto& [at, link] : found) routes[pair].links.push_back(link);
    }
    return routes;
  }

  static std::vector<NodeId> Children(const Item& item, NodeId node) {
    std::vector<NodeId> children;
    for (const auto& [member, neighbour] : item.neighbours) {
      if (neighbour == node) children.push_back(member);
    }
    return children;
  }

  void Begin(const OverlayItem& id, Item& item, const OverlayReport& report) {
    item.round = report.round;
    if (!report.from) item.dense = static_cast<double>(report.bytes);
    item.planned = item.wire > 0 ? item.wire : item.dense;
    item.holders.clear();
    item.awaited.clear();
    const bool up = id.up();
    item.neighbours = GrowTree(links_, members_, id.root, up, item.planned, item.round);
    if (!up) return;
    for (const auto& [member, neighbour] : item.neighbours) ++item.awaited[neighbour];
  }

  // Ends a transfer, if this coordinator has ordered it.
  void End(const OverlayItem& id, Item& item, const Pair& pair, const OverlayReport& report, Time now) {
    const auto transfer = item.open.find(pair);
    if (transfer == item.open.end()) return;
    const Time began = transfer->second;
    item.open.erase(transfer);
    item.wire = static_cast<double>(report.bytes);
    links_.Drop(pair, item.planned);
    links_.End(pair, item.wire, began, report.round, now);
    if (id.direction == Direction::kPush) --item.awaited[pair.second];
  }

  void Ascend(const OverlayItem& id, Item& item, NodeId member, Time now, std::vector<Reply>& replies) {
    if (!item.holders.contains(member) || item.awaited[member] > 0) return;
    const auto neighbour = item.neighbours.find(member);
    if (neighbour == item.neighbours.end()) return;
    if (neighbour->second != id.root && !item.holders.contains(neighbour->second)) return;
    item.holders.erase(member);
    Order(id, item, {member, neighbour->second}, now, replies);
  }

  void Order(const OverlayItem& id, Item& item, const Pair& pair, Time now, std::vector<Reply>& replies) {
    if (!item.open.emplace(pair, now).second) return;
    links_.Begin(pair, now);
    const OverlayOrder order{id.direction, id.root, id.key, id.shard, item.round, pair.second};
    replies.push_back({pair.first, order.Pack()});
  }

  std::vector<NodeId> members_;  // ascending
  Links links_;
  std::map<OverlayItem, Item> items_;
};

const Registered<NativeCoordinators> registered("multiroot", [](const Options& options) {
  return std::make_shared<Planner>(options);
});

}  // namespace
}  // namespace geomx
