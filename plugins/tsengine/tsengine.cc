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
// Where orders take longer than transfers, or the root's link is not what limits a round, the group's
// traffic goes along the star instead (star.h): the root sends values to all members, and members have
// standing orders to send contributions to it without asking.
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
#include "star.h"

namespace geomx {
namespace {

using namespace tsengine;


constexpr Round kLearning = 1;   // rounds in which pairs find fast links before they are compared
constexpr Round kLongest = 128;  // rounds between two trials of the star, at most

class Matcher final : public Coordinator {
 public:
  explicit Matcher(const Options& options)
      : in_flight_(static_cast<std::uint32_t>(Require(options, "in_flight"))),
        greed_(Require(options, "greed")),
        expiry_(static_cast<Round>(Require(options, "expiry_rounds"))),
        random_(static_cast<std::uint64_t>(Require(options, "seed"))) {}

  std::vector<Reply> OnReport(NodeId from, std::span<const double> values, Time now) override {
    const auto report = OverlayReport::Unpack(values);
    if (!report) return {};
    const bool up = report->what == OverlayReport::What::kReady ||
                    report->what == OverlayReport::What::kMerged;
    const ItemId id{up ? Direction::kPush : Direction::kPull, report->root, report->key,
                    report->shard};
    std::optional<Pair> freed;
    Route& route = routes_[{id.root, up}];
    std::vector<Reply> replies;
    if (report->from) {
      route.ended = now;
      if (Finish(id, *report->from, from, *report, now)) {
        freed = {*report->from, from};
      } else {
        links_.Arrive(*report->from, from, *report, now);
      }
      if (route.took == 0 && !modes_[id.root].star) Hurry(route, id, freed);
    }
    Item& item = items_[id];
    if (report->round < item.round) return Match(nullptr, freed, now);
    Leave(id, item);
    if (report->round > route.round) EndRound(route, id, *report, now, replies);
    if (report->round > item.round) Begin(item, *report, up);
    Learn(route, item, from, *report, now);
    if (report->what != OverlayReport::What::kOrigin) {
      item.missing.erase(from);
      item.idle.insert(from);
      if (!up && report->from) item.idle.insert(*report->from);
    }
    Enter(id, item);
    for (Reply& reply : Match(&item, freed, now)) replies.push_back(std::move(reply));
    return replies;
  }

  void Exchange(Archive& archive) override {
    archive(random_, items_, began_, load_, samples_, links_, routes_, modes_);
    if (!archive.loading()) return;
    open_.clear();
    for (const auto& [id, item] : items_) Enter(id, item);
  }

 private:
  struct ItemId {
    Direction direction;
    NodeId root;
    Key key;
    std::uint32_t shard;
    auto operator<=>(const ItemId&) const = default;
    void Exchange(Archive& archive) { archive(direction, root, key, shard); }
  };
  struct Item {
    Round round = 0;
    std::int32_t priority = 0;
    std::set<NodeId> idle = {};     // have the contribution or the value, and take part in no transfer
    std::set<NodeId> missing = {};  // down: neither have nor are being sent the value
    double bytes = 0;               // of a contribution or value
    std::set<NodeId> standing = {};  // up: send to the root without asking

    void Exchange(Archive& archive) { archive(round, priority, idle, missing, bytes, standing); }
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
    ItemId id;
    auto operator<=>(const Rank&) const = default;
  };

  static void Begin(Item& item, const OverlayReport& report, bool up) {
    item.round = report.round;
    item.priority = report.priority;
    item.idle = {report.root};
    item.missing.clear();
    if (!up) item.missing = {report.members.begin(), report.members.end()};
  }

  Rank RankOf(const ItemId& id, const Item& item) const {
    return {-static_cast<std::int64_t>(item.missing.size()), -std::int64_t{item.priority}, id};
  }

  // `open_` holds the items in which a transfer is possible, in order. An item must Leave before it is
  // changed, and Enter after that.
  void Leave(const ItemId& id, const Item& item) { open_.erase(RankOf(id, item)); }
  void Enter(const ItemId& id, const Item& item) {
    const bool open = id.direction == Direction::kPush
                          ? item.idle.size() >= 2
                          : !item.idle.empty() && !item.missing.empty();
    if (open) open_.insert(RankOf(id, item));
  }

  // Ends a transfer and stores its throughput. Returns false if this scheduler has not ordered it.
  bool Finish(const ItemId& id, NodeId sender, NodeId receiver, const OverlayReport& report,
              Time now) {
    const auto transfer = began_.find({id, sender, receiver});
    if (transfer == began_.end()) return false;
    const bool direct = modes_[id.root].star;
    const double seconds = static_cast<double>(std::max<Time>(1, now - transfer->second)) / kSecond;
    samples_[{sender, receiver}] = {static_cast<double>(report.bytes) / seconds, report.round};
    links_.End(sender, receiver, report, seconds, direct, now);
    began_.erase(transfer);
    --load_[sender].sending;
    --load_[receiver].receiving;
    return true;
  }

  // Returns whether the end of the transfer `freed` may have made a transfer of `item` possible. None was
  // possible before, so the sender or the receiver of `freed` must take part in it.
  static bool Concerned(const ItemId& id, const Item& item, const Pair& freed) {
    const auto& [sender, receiver] = freed;
    if (item.idle.contains(sender)) return true;
    return id.direction == Direction::kPush ? item.idle.contains(receiver)
                                            : item.missing.contains(receiver);
  }

  void Order(const ItemId& id, const Item& item, const Pair& pair, OverlayOrder::Term term, Time now,
             std::vector<Reply>& replies) {
    const auto& [sender, receiver] = pair;
    began_[{id, sender, receiver}] = now;
    ++load_[sender].sending;
    ++load_[receiver].receiving;
    links_.Begin(sender, receiver, now);
    const OverlayOrder order{id.direction, id.root, id.key, id.shard, item.round, receiver, term};
    replies.push_back({sender, order.Pack()});
  }

  // ---- the star ------------------------------------------------------------------------------

  static bool Up(const ItemId& id) { return id.direction == Direction::kPush; }

  // Returns true if members exchange this shard with the root itself in this round.
  bool Direct(const ItemId& id, const Item& item) const {
    const Route& route = routes_.at({id.root, Up(id)});
    if (!item.idle.contains(id.root) && !Up(id)) return false;  // it is being sent along pairs
    // Before anything is known: what fits into one message gains nothing from pairs.
    return modes_.at(id.root).star || Small(route, item);
  }

  static bool Small(const Route& route, const Item& item) {
    return item.round == route.first && item.bytes > 0 && item.bytes <= kFrameBytes;
  }

  void OrderAll(const ItemId& id, Item& item, Time now, std::vector<Reply>& replies) {
    Route& route = routes_.at({id.root, Up(id)});
    if (Small(route, item)) route.direct += item.bytes;
    if (!Up(id)) {
      item.idle.erase(id.root);
      for (const NodeId member : std::exchange(item.missing, {})) {
        Order(id, item, {id.root, member}, OverlayOrder::Term::kOnce, now, replies);
      }
      return;
    }
    for (const NodeId member : std::exchange(item.idle, {id.root})) {
      if (member == id.root) continue;
      Order(id, item, {member, id.root}, OverlayOrder::Term::kStanding, now, replies);
      item.standing.insert(member);
    }
  }

  static void Learn(Route& route, Item& item, NodeId from, const OverlayReport& report, Time now) {
    if (from != report.root) route.members.insert(from);
    if (report.what == OverlayReport::What::kMerged && report.from) route.members.insert(*report.from);
    route.members.insert(report.members.begin(), report.members.end());
    const bool begins = !report.from;
    if (begins) route.ready = now;
    // In the first round, what holders announce; then what crossed the wire.
    if (report.bytes == 0 || begins != (item.round == route.first) || (begins && item.bytes > 0)) return;
    if (item.bytes == 0) route.shards += 1;
    route.bytes += static_cast<double>(report.bytes) - item.bytes;
    item.bytes = static_cast<double>(report.bytes);
  }

  // In the first round: as soon as orders turn out to take most of the time.
  void Hurry(const Route& route, const ItemId& id, const std::optional<Pair>& freed) {
    Route whole = route;  // as far as either direction has shown it
    if (const auto other = routes_.find({id.root, !Up(id)}); other != routes_.end()) {
      whole.bytes = std::max(whole.bytes, other->second.bytes);
      whole.shards = std::max(whole.shards, other->second.shards);
    }
    const Prediction expected(links_, whole, id.root, Up(id), in_flight_);
    if (!freed || !expected.measured() || !expected.waits()) return;
    modes_[id.root].star = expected.star() < kHurryBelow * expected.pairs();
  }

  void EndRound(Route& route, const ItemId& id, const OverlayReport& report, Time now, std::vector<Reply>& replies) {
    const auto since_began = [&route](Time at) { return static_cast<double>(std::max<Time>(1, at - route.began)) / kSecond; };
    const double period = since_began(now);
    Mode& mode = modes_[id.root];
    const bool first = route.round == 0;
    const bool second = route.round == route.first;
    if (first) route.first = report.round;
    const bool whole = route.round > mode.changed;
    // Members begin the first round at different times, as they receive initial values.
    if (!first && !second && !mode.star && (whole || !Up(id)) && 2 * std::exchange(route.direct, 0) < route.bytes) {
      route.took = since_began(route.ended);
      route.waited = since_began(route.ready);
      if (whole) mode.pairs_period += (period - mode.pairs_period) / (mode.pairs_period > 0 ? 4 : 1);
    } else if (mode.star && whole && !second) {
      mode.star_period = period;
    }
    route.round = report.round;
    route.began = route.ready = now;
    if (first || (!Up(id) && routes_.contains({id.root, true}))) return;
    const bool was = mode.star;
    // A star that was chosen in the first round has nothing to be compared with.
    mode.star = was && !second ? !IsSlower(mode.star_period, mode.pairs_period) : StarPays(links_, routes_, mode, id.root, in_flight_);
    if (mode.star == was && !second) return;
    if (mode.star || !second) mode.changed = route.round;
    if (mode.star) {
      mode.star_period = 0;
      return;
    }
    if (second) {
      mode.trial = route.round + kLearning;
    } else {
      mode.trial = route.round + mode.patience;
      mode.patience = std::min<Round>(2 * mode.patience, kLongest);
    }
    for (auto& [each, item] : items_) {
      if (each.root != id.root || !Up(each) || item.standing.empty()) continue;
      mode.changed = route.round;
      Revoke(each, item, replies);
    }
  }

  // From the next round on, contributions are reported.
  static void Revoke(const ItemId& id, Item& item, std::vector<Reply>& replies) {
    for (const NodeId member : std::exchange(item.standing, {})) {
      const OverlayOrder order{id.direction, id.root, id.key, id.shard, item.round, id.root, OverlayOrder::Term::kAsk};
      replies.push_back({member, order.Pack()});
    }
  }

  // Orders all transfers that have become possible. `changed` is the item of the last report, or null if
  // no transfer of it is possible; `freed` the transfer that this report ended.
  std::vector<Reply> Match(const Item* changed, const std::optional<Pair>& freed, Time now) {
    std::vector<Reply> replies;
    for (auto rank = open_.begin(); rank != open_.end();) {
      const ItemId id = rank->id;
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
      Order(id, item, *pair, OverlayOrder::Term::kOnce, now, replies);
      Enter(id, item);
      rank = open_.lower_bound(was);  // no transfer of an earlier item is possible, as before
    }
    return replies;
  }

  std::optional<Pair> Choose(const ItemId& id, const Item& item) {
    const bool up = id.direction == Direction::kPush;
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
  std::map<ItemId, Item> items_;
  std::set<Rank> open_;
  std::map<std::tuple<ItemId, NodeId, NodeId>, Time> began_;  // transfers in progress
  std::map<NodeId, Load> load_;
  std::map<Pair, Sample> samples_;
  Links links_;
  Routes routes_;
  std::map<NodeId, Mode> modes_;                     // by root
};

const Registered<NativeCoordinators> registered("tsengine", [](const Options& options) {
  return std::make_shared<Matcher>(options);
});

}  // namespace
}  // namespace geomx
