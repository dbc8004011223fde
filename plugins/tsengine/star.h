// Decides between TSEngine's pairs and the star, in which every member of a group exchanges data with the
// root itself.
//
// In a star, nothing waits for orders. Pairs help where the root's link is what takes the time. Both times
// are predicted for each direction from what receivers saw of the last rounds' transfers:
//
//   star   max(N B / root, B / slowest member) + delay / 2
//   pairs  1.2 B / slowest member + (depth - 1) B / K rate + (K / in_flight + depth) delay
//
// with N members, K shards of together B bytes per round, the median delay from an order to the report of
// its transfer's end (without the transfer itself), and depth = ceil(log2(N + 1)).
//
// A prediction that is due to delays is followed at once. Where it is due to rates, it is tried: pairs
// rarely show how fast the root's link could be. The star stays if rounds are not slower than along pairs.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "core/archive.h"
#include "core/overlay_group.h"
#include "core/types.h"

namespace geomx::tsengine {

constexpr double kInefficiency = 1.2;   // of greedy pairs against links that are always busy
constexpr double kStarBelow = 0.9;      // predicted time, of the pairs', at which the star replaces them
constexpr double kHurryBelow = 0.7;     // the same, in the first round
constexpr double kTriedBelow = 1.3;     // the same, where only a trial can tell: a busy link may be faster than it was seen to be
constexpr double kSlower = 1.05;        // measured time, of the others', at which star or pairs are given up
constexpr double kUnlimited = 0.8;      // Links::Share from which on the root's link may be faster than the members'
constexpr double kFrameBytes = 256 << 10;  // the default size of messages
constexpr Round kKept = 3;             // rounds for which a measurement counts

// The largest rate and the shortest delay of the last rounds.
class Recent {
 public:
  void Add(Round round, double value) {
    while (!values_.empty() && values_.front().first + kKept < round) values_.pop_front();
    values_.push_back({round, value});
    if (values_.size() > kMost) values_.pop_front();
  }
  double Largest() const { return Best([](double a, double b) { return a < b; }); }
  double Least() const { return Best([](double a, double b) { return a > b; }); }
  void Exchange(Archive& archive) { archive(values_); }

 private:
  static constexpr std::size_t kMost = 256;
  template <class Less>
  double Best(Less less) const {  // 0: nothing is known
    const auto best = std::max_element(values_.begin(), values_.end(), [&](const auto& a, const auto& b) {
      return less(a.second, b.second);
    });
    return best == values_.end() ? 0 : best->second;
  }
  std::deque<std::pair<Round, double>> values_;
};

// Measurements of nodes' links in both directions.
class Links {
 public:
  void Begin(NodeId sender, NodeId receiver, Time now) {
    Between& between = pairs_[{sender, receiver}];
    if (between.open++ == 0) between.alone = true;
    for (Meter* meter : {&meters_[{sender, true}], &meters_[{receiver, false}]}) {
      if (meter->open++ == 0) *meter = {.since = now, .open = 1};
    }
  }
  // A transfer that Begin has announced took `seconds`. `direct`: the root exchanges this shard with all
  // members itself.
  void End(NodeId sender, NodeId receiver, const OverlayReport& report, double seconds, bool direct, Time now) {
    const double spread = Seconds(report.spread);
    Between& between = pairs_[{sender, receiver}];
    --between.open;
    const bool alone = std::exchange(between.alone, false);
    if (!direct && (sender == report.root || receiver == report.root)) Compare(sender, receiver, report);
    for (const auto& end : {std::pair{sender, true}, std::pair{receiver, false}}) {
      Meter& meter = meters_[end];
      --meter.open;
      Count(end, meter, report, seconds, 2 * spread > seconds, now);
      if (alone && seconds > spread) delays_[end.first].Add(report.round, seconds - spread);
    }
    Stream(sender, receiver, report);
  }
  // A transfer under a standing order has ended.
  void Arrive(NodeId sender, NodeId receiver, const OverlayReport& report, Time now) {
    const std::pair end{receiver, false};
    Meter& meter = meters_[end];
    if (meter.open == 0 && meter.round != report.round) {
      meter = {.since = now, .round = report.round};
    } else {
      Count(end, meter, report, 0, report.spread > 0, now);
    }
    Stream(sender, receiver, report);
  }
  double Rate(NodeId node, bool out) const {  // bytes per second; 0: unknown
    const auto found = rates_.find({node, out});
    return found == rates_.end() ? 0 : found->second.Largest();
  }
  double Delay(NodeId node) const {  // seconds; 0: unknown
    const auto found = delays_.find(node);
    return found == delays_.end() ? 0 : found->second.Least();
  }
  // How fast transfers with a root are along pairs, of what its members' links allow: near 1 unless the
  // root's link is what limits them. 0: unknown.
  double Share(NodeId root, bool out) const {
    const auto found = shares_.find({root, out});
    return found == shares_.end() ? 0 : found->second;
  }
  void Exchange(Archive& archive) { archive(meters_, rates_, delays_, shares_, pairs_); }

 private:
  using Side = std::pair<NodeId, bool>;  // node, and whether it sends
  struct Meter {  // transfers since it was idle or last read
    Time since = 0;
    double bytes = 0, all = 0, streamed = 0;  // the part since then; whole transfers; of these, the long ones
    std::uint32_t open = 0, ended = 0;
    Round round = 0;

    void Exchange(Archive& archive) { archive(since, bytes, all, streamed, open, ended, round); }
  };
  struct Between {  // two nodes: transfers under way, and whether the next to end did not wait for others
    std::uint32_t open = 0;
    bool alone = false;

    void Exchange(Archive& archive) { archive(open, alone); }
  };
  static constexpr std::uint32_t kWindow = 12;  // transfers per reading
  static double Seconds(Time time) { return static_cast<double>(time) / kSecond; }

  void Compare(NodeId sender, NodeId receiver, const OverlayReport& report) {
    const bool out = sender == report.root;
    const Side member{out ? receiver : sender, !out};
    const double rate = Rate(member.first, member.second);
    const double bytes = static_cast<double>(report.bytes) - kFrameBytes;
    if (rate <= 0 || report.spread <= 0 || bytes <= 0) return;
    const double used = bytes / Seconds(report.spread) * meters_[member].open / rate;
    double& share = shares_.try_emplace({report.root, out}, std::min(used, 1.0)).first->second;
    share += (std::min(used, 1.0) - share) / 8;
  }
  void Count(const Side& end, Meter& meter, const OverlayReport& report, double took, bool streamed, Time now) {
    const double since = Seconds(now - meter.since);  // what arrived before that does not count
    meter.bytes += static_cast<double>(report.bytes) * (took > since ? since / took : 1);
    if (streamed) meter.streamed += static_cast<double>(report.bytes);
    meter.all += static_cast<double>(report.bytes);
    if (++meter.ended < kWindow && meter.open > 0) return;
    // Where most of the time was delay, the link was idle.
    if (since > 0 && 2 * meter.streamed >= meter.all) rates_[end].Add(report.round, meter.bytes / since);
    meter = {.since = now, .open = meter.open, .round = report.round};
  }
  void Stream(NodeId sender, NodeId receiver, const OverlayReport& report) {
    const double bytes = static_cast<double>(report.bytes) - kFrameBytes;
    if (report.spread <= 0 || bytes <= 0) return;
    rates_[{sender, true}].Add(report.round, bytes / Seconds(report.spread));
    rates_[{receiver, false}].Add(report.round, bytes / Seconds(report.spread));
  }

  std::map<Side, Meter> meters_;
  std::map<Side, Recent> rates_;
  std::map<NodeId, Recent> delays_;
  std::map<Side, double> shares_;  // by root
  std::map<std::pair<NodeId, NodeId>, Between> pairs_;  // sender and receiver
};

// A group's traffic in one direction.
struct Route {
  std::set<NodeId> members = {};
  Round first = 0, round = 0;    // the first round, and the last
  double bytes = 0, shards = 0;  // of a round, of one member
  double direct = 0;             // bytes of the round's shards that were too small for pairs
  Time began = 0, ready = 0, ended = 0;  // the round: its first shard, its last one, the last transfer
  double took = 0;               // seconds of the last round along pairs; 0: none
  double waited = 0;             // seconds of that until the last shard was ready

  void Exchange(Archive& archive) {
    archive(members, first, round, bytes, shards, direct, began, ready, ended, took, waited);
  }
};

// How a group's traffic goes.
struct Mode {
  bool star = false;
  Round changed = 0;               // the round before which that was decided
  Round trial = 0, patience = 16;  // no star before this round; how many rounds to wait after it was slower
  // Seconds between the beginnings of two rounds: mean of recent ones along pairs, and of the last along the star. 0: none.
  double pairs_period = 0, star_period = 0;

  void Exchange(Archive& archive) { archive(star, changed, trial, patience, pairs_period, star_period); }
};

// Predicts seconds of a round of a route. `up`: towards the root.
class Prediction {
 public:
  Prediction(const Links& links, const Route& route, NodeId root, bool up, std::uint32_t in_flight) :
      bytes_(route.bytes), shards_(route.shards) {
    const double members = static_cast<double>(route.members.size());
    double most = 0;
    for (const NodeId member : route.members) most = std::max(most, links.Rate(member, up));
    double all = 0;
    std::vector<double> delays;
    for (const NodeId member : route.members) {
      const double known = links.Rate(member, up);
      const double rate = known > 0 ? known : most;
      if (const double delay = links.Delay(member); delay > 0) delays.push_back(delay);
      if (rate <= 0) continue;
      slowest_ = std::max(slowest_, bytes_ / rate);
      all += bytes_ / rate;
    }
    if (!delays.empty()) {
      const auto middle = delays.begin() + static_cast<std::ptrdiff_t>(delays.size() / 2);
      std::nth_element(delays.begin(), middle, delays.end());
      delay_ = *middle;
    }
    const double root_rate = links.Rate(root, !up);
    // An unknown root is taken to be as fast as the fastest member.
    if (std::max(root_rate, most) > 0) root_ = members * bytes_ / (root_rate > 0 ? root_rate : most);
    const double depth = std::ceil(std::log2(members + 1));
    const double mean = members > 0 ? all / members : 0;
    waits_ = delay_ * (route.shards / in_flight + depth);
    moves_ = kInefficiency * slowest_ + (depth - 1) * mean / std::max(1.0, route.shards);
  }
  // `ready`: seconds until the last shard of the round is ready.
  double star(double ready = 0) const { return Star(std::max(root_, slowest_), ready); }
  double star_at_best(double ready) const { return Star(slowest_, ready); }  // if the root's link is fast
  double pairs() const { return moves_ + waits_; }
  bool waits() const { return waits_ > moves_; }  // orders take most of the time of pairs
  bool known() const { return delay_ > 0; }
  bool measured() const { return slowest_ > 0; }

 private:
  double Star(double moves, double ready) const {
    return std::max(moves, ready + moves / std::max(1.0, shards_)) + delay_ / 2;
  }

  double bytes_, shards_, root_ = 0, slowest_ = 0, delay_ = 0, waits_ = 0, moves_ = 0;
};

using Routes = std::map<std::pair<NodeId, bool>, Route>;  // by root; true: towards it

inline bool IsSlower(double one, double other) { return one > 0 && other > 0 && one > kSlower * other; }

// Returns true if the star is to replace pairs in the group of `root`.
inline bool StarPays(const Links& links, const Routes& routes, const Mode& mode, NodeId root, std::uint32_t in_flight) {
  if (IsSlower(mode.pairs_period, mode.star_period)) return true;
  bool gains = false;
  for (const auto& [of, route] : routes) {
    if (of.first != root) continue;
    if (route.round < mode.trial) return false;
    const Prediction expected(links, route, root, of.second, in_flight);
    if (!expected.known()) return false;
    const double pairs = route.took > 0 ? route.took : expected.pairs();
    // Otherwise the star can only pay if the root's link is fast, and only measured pairs tell that it is.
    const bool waits = expected.waits();
    if (!waits && (route.took == 0 || links.Share(root, !of.second) <= kUnlimited)) return false;
    const double star = waits ? expected.star(route.waited) : expected.star_at_best(route.waited);
    const double most = kTriedBelow * std::max(pairs, mode.pairs_period);
    if (star > pairs || expected.star(route.waited) > most) return false;
    gains = gains || star < kStarBelow * pairs;
  }
  return gains;
}

}  // namespace geomx::tsengine
