// Plans the rounds of a group ahead: along trees that follow the rates of links, or along the star.
//
// Nothing in a planned round waits for orders. Links may change at any time, so a part of the shards is planned
// when the round before is complete, and others as those complete. What a round takes is predicted for trees and
// for the star (trees.h), and for pairs, in which each transfer waits for an order:
//
//   pairs  per direction: 1.3 (1 - b / B) most + ceil(log2(N + 1)) b / rate + (K / in_flight + depth) delay
//
// with N members, K shards of together B bytes, the largest of b, and the delay from an order to the report of
// its transfer's end, without the transfer itself. Where trees turn out to take longer than the star did, the star
// is kept for some rounds.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <map>
#include <set>
#include <vector>

#include "core/coordinator.h"
#include "core/overlay_group.h"
#include "trees.h"

namespace geomx::tsengine {

constexpr double kGreedy = 1.3;   // time of greedy pairs, of that of links that are always busy
constexpr double kPaysFrom = 0.6;  // predicted time, of the pairs', at which trees replace them
constexpr double kFew = 4;         // shards of a round: so many use links better along trees than in pairs
constexpr double kStarUpTo = 1.05;  // of the trees', up to which the star is taken
constexpr double kOpening = 3;     // delays that a round along others must be faster
constexpr double kNear = 1.2;      // of the others', up to which what was measured decides
constexpr double kSoon = 1.0 / 6;   // of a round: so much is planned at a time
constexpr double kDelaysAhead = 4;  // or what takes so many delays
constexpr Round kLongest = 128;     // rounds for which the star is kept, at most

class Ahead {
 public:
  Ahead(const Options& options, std::uint32_t in_flight)
      : links_(options),
        in_flight_(in_flight),
        push_(Either(options, "push")),
        pull_(Either(options, "pull")) {
    if (!Either(options, "ahead")) return;
    for (const auto& [name, value] : options) {
      NodeId id = 0;
      if (std::sscanf(name.c_str(), "member %u", &id) == 1) members_.push_back(id);
    }
    std::sort(members_.begin(), members_.end());
  }

  // Whether transfers of this round of an item are ordered one by one. Learn has seen a report about it.
  bool Pairs(const OverlayItem& id, Round round) const {
    const auto found = items_.find(id);
    return members_.empty() || (found != items_.end() && found->second.ordered == round);
  }

  // Whether members exchange a shard with the root itself in a round that is not planned: the first, if the
  // network file says that the root's link is not what limits the star, or if the shard fits into one message.
  bool Star(const OverlayItem& id, Round round, double bytes) const {
    const auto found = items_.find(id);
    if (members_.empty() || found == items_.end() || found->second.first != round) return false;
    return (bytes > 0 && bytes <= kFrameBytes) || groups_.at(id.root).fast == Fast::kYes;
  }

  // Takes a report into account; returns the plans that it allows.
  std::vector<Coordinator::Reply> Learn(const OverlayItem& id, NodeId from, const OverlayReport& report,
                                        Time now) {
    if (members_.empty()) return {};
    Group& group = groups_[id.root];
    if (group.fast == Fast::kUnknown) group.fast = IsFast(id.root) ? Fast::kYes : Fast::kNo;
    Item& item = items_[id];
    const bool first = id.up() || !push_;  // of the directions of a round
    if (report.round > item.round) {
      item.round = report.round;
      if (item.first == 0) item.first = report.round;
      const bool planned = item.round == item.planned || item.round == item.before;
      if ((!first || !group.planning) && !planned) item.ordered = item.round;
      item.transfers = 0;
      if (first) group.open.insert(id);
    }
    if (first) Weigh(group, item, static_cast<double>(report.bytes));
    if (report.from) links_.Arrive({*report.from, from}, report, now);
    if (report.from && report.round == item.round && ++item.transfers == members_.size()) {
      item.complete = item.round;
      if (!first) return {};
      group.open.erase(id);
      group.due.push_back(id);
      if (group.open.empty()) EndRound(id.root, group, now);
    } else if (first && group.planning && report.round > std::max({item.planned, item.ordered, item.complete}) &&
               std::find(group.due.begin(), group.due.end(), id) == group.due.end()) {
      group.due.push_back(id);
    }
    return group.planning ? Refill(id.root, group) : std::vector<Coordinator::Reply>();
  }

  // An ordered transfer of `report` took `seconds` from its order on.
  void Took(const OverlayReport& report, double seconds) {
    const double delay = seconds - static_cast<double>(report.spread) / kSecond;
    if (delay <= 0) return;
    if (delay_ == 0 || delay < delay_ || report.round > delay_round_ + kDelays) {
      delay_ = delay;
      delay_round_ = report.round;
    }
  }

  void Exchange(Archive& archive) { archive(links_, items_, groups_, delay_, delay_round_); }

 private:
  struct Item {
    Round first = 0;                 // that was seen
    Round round = 0, complete = 0;   // the last that began, and that ended
    Round planned = 0, before = 0;   // the last two that were planned
    Round ordered = 0;               // the last whose transfers were ordered one by one
    std::size_t transfers = 0;       // of the round, that have arrived
    double bytes = 0;

    void Exchange(Archive& archive) { archive(first, round, complete, planned, before, ordered, transfers, bytes); }
  };
  enum class Fast : std::uint8_t { kUnknown, kNo, kYes };
  struct Group {
    std::set<OverlayItem> open = {};      // items whose round has begun and is not complete
    std::vector<OverlayItem> due = {};    // whose next round is not planned, in the order in which they are sent
    double bytes = 0, squares = 0;        // of all items
    double shards = 0;                    // their number
    bool planning = false;
    Trees trees = {};                     // of what is planned next
    bool star = false;                    // they are the star
    std::map<LinkId, double> loads = {};  // bytes in a round along them; none if nothing is planned
    Fast fast = Fast::kUnknown;           // the root's link, as the network file says
    Time ended = 0;                       // the last round
    double by_star = 0, by_others = 0;    // seconds of the last round; 0: none
    Round kept = 0, patience = 8;         // rounds for which the star is kept, and for which next time

    void Exchange(Archive& archive) {
      archive(open, due, bytes, squares, shards, planning, trees.up, trees.down, trees.seconds, star, loads, fast,
              ended, by_star, by_others, kept, patience);
    }
  };
  static constexpr Round kDelays = 3;

  static bool Either(const Options& options, const char* name) {
    const auto found = options.find(name);
    return found == options.end() || found->second != 0;
  }

  // Whether the star takes no longer than any trees could, by the rates of the network file.
  bool IsFast(NodeId root) const {
    double most = 0, star = 0;
    for (const bool up : {true, false}) {
      if (up ? !push_ : !pull_) continue;
      std::map<LinkId, double> loads;
      for (const NodeId member : members_) {
        const Pair pair = up ? Pair{member, root} : Pair{root, member};
        if (!links_.Knows(pair)) return false;
        for (const LinkId id : links_.Route(pair)) ++loads[id];
      }
      for (const auto& [id, load] : loads) {
        star = std::max(star, load / links_.Rate(id));
        most = std::max(most, 1 / links_.Rate(id));
      }
    }
    return star <= kStarUpTo * most;
  }

  static void Weigh(Group& group, Item& item, double bytes) {
    if (bytes <= 0) return;
    if (item.bytes == 0) ++group.shards;
    group.bytes += bytes - item.bytes;
    group.squares += bytes * bytes - item.bytes * item.bytes;
    item.bytes = bytes;
  }

  void EndRound(NodeId root, Group& group, Time now) {
    const double seconds = static_cast<double>(now - group.ended) / kSecond;
    if (group.ended > 0) (group.star ? group.by_star : group.by_others) = seconds;
    group.ended = now;
    if (group.kept > 0) {
      --group.kept;
    } else if (!group.star && group.by_star > 0 && group.by_others > kStarUpTo * group.by_star) {
      group.kept = group.patience;
      group.patience = std::min<Round>(2 * group.patience, kLongest);
    }
    group.planning = Decide(root, group, true);
    if (!group.planning) group.due.clear();
  }

  static double Largest(const Group& group) { return group.bytes > 0 ? group.squares / group.bytes : 0; }

  // Makes trees of the rates that links have now. Returns false if pairs are expected to be faster.
  bool Decide(NodeId root, Group& group, bool grow) {
    links_.Read(grow);
    std::map<LinkId, double> busy;
    for (const auto& [other, each] : groups_) {
      if (other == root) continue;
      for (const auto& [id, bytes] : each.loads) busy[id] += bytes;
    }
    const Planner planner(links_, members_, root, {group.bytes, Largest(group)}, push_, pull_, busy);
    group.trees = planner.Grow();
    const double pairs = PairsTake(root, {group.bytes, Largest(group)}, group.shards, busy);
    // Pairs follow links that change within a round, but know nothing of links that routes share.
    const bool plan = (links_.meshed() && group.shards >= kFew) || group.trees.seconds <= kPaysFrom * pairs;
    Trees star = planner.Star();
    const double others = plan ? group.trees.seconds : pairs;
    const bool near = star.seconds <= kNear * others;
    const bool untried = group.by_star == 0 && group.by_others > 0;
    double delay = 0;
    for (const NodeId member : members_) delay += links_.Delay({member, root}) / static_cast<double>(members_.size());
    // New connections are slow at first, the more so the longer they are.
    group.star = star.seconds <= std::max(kStarUpTo * others, others + kOpening * delay) ||
                 (near && (group.kept > 0 || untried));
    if (group.star) group.trees = std::move(star);
    const bool planned = group.star || plan;
    group.loads = planned ? planner.LoadsOf(group.trees) : std::map<LinkId, double>();
    return planned;
  }

  // Plans what is due, as far as it will be needed soon.
  std::vector<Coordinator::Reply> Refill(NodeId root, Group& group) {
    double begun = 0;
    bool some = false;  // that members wait for
    for (const OverlayItem& id : group.open) {
      const Item& item = items_.at(id);
      if (item.round == item.planned) {
        begun += item.bytes;
      } else {
        some = true;
      }
    }
    const bool between = group.open.empty();
    if (group.due.empty() || (!between && !some)) return {};
    double share = group.star ? 1 : kSoon;  // of a round
    if (group.trees.seconds > 0) share = std::max(share, std::min(1.0, kDelaysAhead * delay_ / group.trees.seconds));
    const double most = share * group.bytes;
    if (!group.star && begun > most / 2) return {};
    if (!between && links_.arrived() >= members_.size() * 2) Decide(root, group, false);
    std::vector<OverlayItem> chosen, later;
    for (const OverlayItem& id : group.due) {
      const bool waits = between || group.open.contains(id);
      if (waits && (group.star || chosen.empty() || begun < most)) {
        chosen.push_back(id);
        begun += items_.at(id).bytes;
      } else {
        later.push_back(id);
      }
    }
    group.due = std::move(later);
    std::vector<Coordinator::Reply> replies;
    if (chosen.empty()) return replies;
    if (push_) Plan(root, Direction::kPush, group.trees.up, chosen, replies);
    if (pull_) Plan(root, Direction::kPull, group.trees.down, chosen, replies);
    return replies;
  }

  // Predicts seconds of a round along pairs. `busy`: bytes that cross links in a round besides.
  double PairsTake(NodeId root, const Load& load, double shards, const std::map<LinkId, double>& busy) const {
    const double members = static_cast<double>(members_.size());
    const double depth = std::ceil(std::log2(members + 1));
    const double first = load.bytes > 0 ? load.largest / load.bytes : 1;
    double delay = 0;  // an order, a transfer and a report
    for (const NodeId member : members_) delay += 3 * links_.Delay({member, root}) / members;
    delay = std::max(delay, delay_);
    double seconds = 0;
    for (const bool up : {true, false}) {
      double most = 0, all = 0;
      for (const NodeId member : members_) {
        double longest = 0;
        for (const LinkId id : links_.Route(up ? Pair{member, root} : Pair{root, member})) {
          const auto found = busy.find(id);
          const double bytes = load.bytes + (found == busy.end() ? 0 : found->second);
          longest = std::max(longest, bytes / links_.Rate(id));
        }
        most = std::max(most, longest);
        all += longest;
      }
      const bool pairs = up ? push_ : pull_;
      if (!pairs) most = std::max(most, all);
      seconds = std::max(seconds, kGreedy * (1 - first) * most);
      seconds += (pairs ? depth * (first * all / members + delay) : first * most);
    }
    for (const auto& [id, bytes] : busy) seconds = std::max(seconds, bytes / links_.Rate(id));
    return seconds + delay * shards / in_flight_;
  }

  void Plan(NodeId root, Direction direction, const std::map<NodeId, NodeId>& tree, const std::vector<OverlayItem>& due,
            std::vector<Coordinator::Reply>& replies) {
    const bool up = direction == Direction::kPush;
    std::map<NodeId, OverlayPlan> plans;
    for (const auto& [member, neighbour] : tree) {
      for (const NodeId node : {member, neighbour}) {
        plans[node].direction = direction;
        plans[node].root = root;
      }
      if (up) {
        plans[member].targets = {neighbour};
        ++plans[neighbour].awaited;
      } else {
        plans[neighbour].targets.push_back(member);
      }
    }
    std::vector<OverlayPlan::Rounds> shards;
    for (const OverlayItem& each : due) {
      const Item& known = items_.at(each);
      const Round round = std::max(known.round, known.complete + 1);
      shards.push_back({each.key, each.shard, round, round});
      Item& item = items_[{direction, root, each.key, each.shard}];
      item.before = std::exchange(item.planned, round);
    }
    for (auto& [node, plan] : plans) {
      if (up && node == root) continue;
      plan.shards = shards;
      replies.push_back({node, plan.Pack()});
    }
  }

  Links links_;
  std::uint32_t in_flight_;
  bool push_, pull_;
  std::vector<NodeId> members_;  // ascending; none: nothing is planned
  std::map<OverlayItem, Item> items_;
  std::map<NodeId, Group> groups_;  // by root
  double delay_ = 0;                // of the last rounds, the shortest; 0: unknown
  Round delay_round_ = 0;
};

}  // namespace geomx::tsengine
