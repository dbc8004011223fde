// TSEngine's scheduler (Zhou et al., IEEE TNSM 18(4), 2021). Chooses pairs of sender and receiver in a
// group, so that contributions are aggregated along one tree and values are forwarded along another, and
// both trees prefer links whose recent throughput was high.
//
// Each direction of each round of a shard is an item. In an item,
//
//   up    a node with a contribution may send it to another node with a contribution, or to the root;
//         each node sends once, so the transfers form a tree, which late members join when they report
//   down  a node with the value may send it to a node without it; the number of senders doubles with
//         every step
//
// A member takes part in at most one transfer of an item, and in at most `in_flight` transfers per
// direction in total, so that no node's link becomes a bottleneck. Values that the fewest members have
// are sent first, then those of highest priority; each sender's link then carries each value about
// once, for any number of values.
//
// Orders take time, and pairs that are formed one by one do not use all links at all times. So, once rates
// have been measured, rounds are planned before they begin, for all shards at once: along trees, or along the
// star where trees do not pay (ahead.h). What is not planned goes along pairs.
//
// A sample of a pair's throughput is the bytes of a transfer divided by the time from the order to the
// receiver's report, on this node's clock. It is valid for `expiry_rounds` rounds. The fastest pair with
// a valid sample is chosen with probability min(known pairs / all pairs, greed); otherwise a random pair
// without a valid sample, or any random pair if all have one.
#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "core/natives.h"
#include "core/overlay.h"
#include "ahead.h"

namespace geomx {
namespace {

using namespace tsengine;

class Matcher final : public Coordinator {
 public:
  explicit Matcher(const Options& options)
      : in_flight_(static_cast<std::uint32_t>(Require(options, "in_flight"))),
        greed_(Require(options, "greed")),
        expiry_(static_cast<Round>(Require(options, "expiry_rounds"))),
        random_(static_cast<std::uint64_t>(Require(options, "seed"))),
        ahead_(options, in_flight_) {}

  std::vector<Reply> OnReport(NodeId from, std::span<const double> values, Time now) override {
    const auto report = OverlayReport::Unpack(values);
    if (!report) return {};
    const OverlayItem id = OverlayItem::Of(*report);
    std::optional<Pair> freed;
    if (report->from && Finish(id, *report->from, from, *report, now)) freed = {*report->from, from};
    std::vector<Reply> replies = ahead_.Learn(id, from, *report, now);
    Item& item = items_[id];
    if (report->round < item.round || !ahead_.Pairs(id, report->round)) {
      return With(std::move(replies), Match(nullptr, freed, now));
    }
    Leave(id, item);
    if (report->round > item.round) Begin(item, *report, id.up());
    item.bytes = std::max(item.bytes, static_cast<double>(report->bytes));
    if (report->what != OverlayReport::What::kOrigin) {
      item.missing.erase(from);
      item.idle.insert(from);
      if (!id.up() && report->from) item.idle.insert(*report->from);
    }
    Enter(id, item);
    return With(std::move(replies), Match(&item, freed, now));
  }

  void Exchange(Archive& archive) override {
    archive(random_, items_, began_, load_, samples_, ahead_);
    if (!archive.loading()) return;
    open_.clear();
    for (const auto& [id, item] : items_) Enter(id, item);
  }

 private:
  struct Item {
    Round round = 0;
    std::int32_t priority = 0;
    std::set<NodeId> idle = {};     // have the contribution or the value, and take part in no transfer
    std::set<NodeId> missing = {};  // down: neither have nor are being sent the value
    double bytes = 0;               // of a contribution or value

    void Exchange(Archive& archive) { archive(round, priority, idle, missing, bytes); }
  };
  using Pair = std::pair<NodeId, NodeId>;  // (sender, receiver)
  struct Sample {
    double bytes_per_s = 0;
    Round round = 0;

    void Exchange(Archive& archive) { archive(bytes_per_s, round); }
  };
  struct Load {
    std::uint32_t sending = 0, receiving = 0;

    void Exchange(Archive& archive) { archive(sending, receiving); }
  };
  struct Rank {
    std::int64_t served;    // down: -(number of members without the value)
    std::int64_t priority;  // -(priority of the item)
    OverlayItem id;
    auto operator<=>(const Rank&) const = default;
  };

  static std::vector<Reply> With(std::vector<Reply> some, std::vector<Reply> more) {
    for (Reply& reply : more) some.push_back(std::move(reply));
    return some;
  }

  static void Begin(Item& item, const OverlayReport& report, bool up) {
    item.round = report.round;
    item.priority = report.priority;
    item.idle = {report.root};
    item.missing.clear();
    if (!up) item.missing = {report.members.begin(), report.members.end()};
  }

  Rank RankOf(const OverlayItem& id, const Item& item) const {
    return {-static_cast<std::int64_t>(item.missing.size()), -std::int64_t{item.priority}, id};
  }

  // `open_` holds the items in which a transfer is possible, in order. An item must Leave before it is
  // changed, and Enter after that.
  void Leave(const OverlayItem& id, const Item& item) { open_.erase(RankOf(id, item)); }
  void Enter(const OverlayItem& id, const Item& item) {
    const bool open = id.up()
                          ? item.idle.size() >= 2
                          : !item.idle.empty() && !item.missing.empty();
    if (open) open_.insert(RankOf(id, item));
  }

  // Ends a transfer and stores its throughput. Returns false if this scheduler has not ordered it.
  bool Finish(const OverlayItem& id, NodeId sender, NodeId receiver, const OverlayReport& report,
              Time now) {
    const auto transfer = began_.find({id, sender, receiver});
    if (transfer == began_.end()) return false;
    const double seconds = static_cast<double>(std::max<Time>(1, now - transfer->second)) / kSecond;
    samples_[{sender, receiver}] = {static_cast<double>(report.bytes) / seconds, report.round};
    ahead_.Took(report, seconds);
    began_.erase(transfer);
    --load_[sender].sending;
    --load_[receiver].receiving;
    return true;
  }

  // Returns whether the end of the transfer `freed` may have made a transfer of `item` possible. None was
  // possible before, so the sender or the receiver of `freed` must take part in it.
  static bool Concerned(const OverlayItem& id, const Item& item, const Pair& freed) {
    const auto& [sender, receiver] = freed;
    if (item.idle.contains(sender)) return true;
    return id.up() ? item.idle.contains(receiver)
                                            : item.missing.contains(receiver);
  }

  void Order(const OverlayItem& id, const Item& item, const Pair& pair, Time now, std::vector<Reply>& replies) {
    const auto& [sender, receiver] = pair;
    began_[{id, sender, receiver}] = now;
    ++load_[sender].sending;
    ++load_[receiver].receiving;
    const OverlayOrder order{id.direction, id.root, id.key, id.shard, item.round, receiver};
    replies.push_back({sender, order.Pack()});
  }

  // Returns true if members exchange this shard with the root itself, without pairs.
  bool Direct(const OverlayItem& id, const Item& item) const {
    return item.idle.contains(id.root) && ahead_.Star(id, item.round, item.bytes);
  }

  void OrderAll(const OverlayItem& id, Item& item, Time now, std::vector<Reply>& replies) {
    if (!id.up()) {
      item.idle.erase(id.root);
      for (const NodeId member : std::exchange(item.missing, {})) Order(id, item, {id.root, member}, now, replies);
      return;
    }
    for (const NodeId member : std::exchange(item.idle, {id.root})) {
      if (member != id.root) Order(id, item, {member, id.root}, now, replies);
    }
  }

  // Orders all transfers that have become possible. `changed` is the item of the last report, or null if
  // no transfer of it is possible; `freed` the transfer that this report ended.
  std::vector<Reply> Match(const Item* changed, const std::optional<Pair>& freed, Time now) {
    std::vector<Reply> replies;
    for (auto rank = open_.begin(); rank != open_.end();) {
      const OverlayItem id = rank->id;
      Item& item = items_.at(id);
      if (Direct(id, item)) {
        const Rank was = *rank;
        Leave(id, item);
        OrderAll(id, item, now, replies);
        Enter(id, item);
        rank = open_.lower_bound(was);
        if (rank != open_.end() && *rank == was) ++rank;
        continue;
      }
      const bool looked = &item == changed || (freed && Concerned(id, item, *freed));
      const auto pair = looked ? Choose(id, item) : std::nullopt;
      if (!pair) {
        ++rank;
        continue;
      }
      const Rank was = *rank;
      Leave(id, item);
      const auto [sender, receiver] = *pair;
      item.idle.erase(sender);
      item.idle.erase(receiver);
      item.missing.erase(receiver);
      Order(id, item, *pair, now, replies);
      Enter(id, item);
      rank = open_.lower_bound(was);  // no transfer of an earlier item is possible, as before
    }
    return replies;
  }

  std::optional<Pair> Choose(const OverlayItem& id, const Item& item) {
    const bool up = id.up();
    std::vector<std::pair<NodeId, std::uint32_t>> receivers;  // node and its number of transfers
    for (const NodeId receiver : up ? item.idle : item.missing) {
      const std::uint32_t receiving = load_[receiver].receiving;
      if (receiving < in_flight_) receivers.emplace_back(receiver, receiving);
    }
    if (receivers.empty()) return std::nullopt;
    std::vector<Pair> unknown;
    std::vector<Pair> all;
    std::optional<Pair> best;
    std::tuple<double, std::int64_t> best_value;
    for (const NodeId sender : item.idle) {
      if ((up && sender == id.root) || load_[sender].sending >= in_flight_) continue;
      for (const auto& [receiver, receiving] : receivers) {
        if (receiver == sender) continue;
        const Pair pair{sender, receiver};
        all.push_back(pair);
        const auto sample = samples_.find(pair);
        if (sample == samples_.end() || item.round > sample->second.round + expiry_) {
          unknown.push_back(pair);
          continue;
        }
        const std::tuple value{sample->second.bytes_per_s, -std::int64_t{receiving}};
        if (best && value <= best_value) continue;
        best = pair;
        best_value = value;
      }
    }
    if (all.empty()) return std::nullopt;
    const double known = static_cast<double>(all.size() - unknown.size());
    const double greed = std::min(known / static_cast<double>(all.size()), greed_);
    if (best && Uniform() < greed) return best;
    const std::vector<Pair>& from = unknown.empty() ? all : unknown;
    return from[Draw() % from.size()];
  }

  // SplitMix64 (Steele, Lea, Flood 2014), which yields the same numbers on every platform.
  std::uint64_t Draw() {
    std::uint64_t mixed = random_ += 0x9e3779b97f4a7c15u;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
    return mixed ^ (mixed >> 31);
  }

  double Uniform() { return static_cast<double>(Draw() >> 11) * 0x1.0p-53; }

  std::uint32_t in_flight_;
  double greed_;
  Round expiry_;
  std::uint64_t random_;
  std::map<OverlayItem, Item> items_;
  std::set<Rank> open_;
  std::map<std::tuple<OverlayItem, NodeId, NodeId>, Time> began_;  // transfers in progress
  std::map<NodeId, Load> load_;
  std::map<Pair, Sample> samples_;
  Ahead ahead_;
};

const Registered<NativeCoordinators> registered("tsengine", [](const Options& options) {
  return std::make_shared<Matcher>(options);
});

}  // namespace
}  // namespace geomx
