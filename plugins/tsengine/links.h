// The links between the members of a group, and what their rates were recently seen to be.
//
// A transfer crosses the links of its route: those that the network file names (options), or else one out
// of the sender and one into the receiver. Rates begin with what the file says, and are then measured. A
// receiver reports how long a transfer took to arrive. All transfers of a round that crossed a link give its
// total rate at every instant; the largest that lasted counts. A link was the limit of a transfer if it was
// as fast as it was known to be. If none on the route was, one of them has become slower: that which
// explains most transfers. Links that were no limit may be faster than they were seen to be, and their rates
// grow a little every round.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/archive.h"
#include "core/natives.h"
#include "core/overlay_group.h"
#include "core/types.h"

namespace geomx::tsengine {

using LinkId = std::uint64_t;
using Pair = std::pair<NodeId, NodeId>;  // (sender, receiver)

constexpr double kFrameBytes = 256 << 10;  // the default size of messages
constexpr double kAssumed = 12.5e6;        // bytes per second of a link about which nothing is known
constexpr double kLasting = 0.1;           // of the time in which a link was used: so long its largest rate lasted
constexpr double kExplained = 0.85;        // of its rate, from which on a link is the limit of its transfers
constexpr double kGrowth = 1.1;            // per round, of rates that were no limit
constexpr double kNewest = 0.75;           // weight of a reading below the known rate

class Links {
 public:
  explicit Links(const Options& options) {
    for (const auto& [name, value] : options) {
      NodeId from = 0, to = 0;
      std::uint32_t at = 0;
      const auto link = static_cast<LinkId>(std::max(value, 0.0));
      if (std::sscanf(name.c_str(), "route %u %u %u", &from, &to, &at) == 3) {
        std::vector<LinkId>& route = routes_[{from, to}];
        route.resize(std::max<std::size_t>(route.size(), at + 1));
        route[at] = link;
      } else if (std::sscanf(name.c_str(), "alone %u %u", &from, &to) == 2) {
        routes_[{from, to}];  // no link that others use
      } else if (std::sscanf(name.c_str(), "delay %u %u", &from, &to) == 2) {
        delays_[{from, to}] = value;
      } else if (std::sscanf(name.c_str(), "rate %u", &at) == 1) {
        rates_[at] = value;
      } else if (std::sscanf(name.c_str(), "out %u", &from) == 1) {
        own_[{from, true}] = link;
      } else if (std::sscanf(name.c_str(), "in %u", &from) == 1) {
        own_[{from, false}] = link;
      }
    }
  }

  std::vector<LinkId> Route(const Pair& pair) const {
    if (const auto found = routes_.find(pair); found != routes_.end()) return found->second;
    return {Own(pair.first, true), Own(pair.second, false)};
  }
  // Whether routes share links, other than those of their ends.
  bool meshed() const { return !routes_.empty(); }
  // Seconds from the sender to the receiver.
  double Delay(const Pair& pair) const {
    const auto found = delays_.find(pair);
    return found == delays_.end() ? 0 : found->second;
  }
  // Bytes per second.
  double Rate(LinkId id) const {
    const auto found = rates_.find(id);
    return found != rates_.end() ? found->second : fastest_ > 0 ? fastest_ : kAssumed;
  }
  // Whether anything is known about each link of a route.
  bool Knows(const Pair& pair) const {
    const std::vector<LinkId> route = Route(pair);
    return std::all_of(route.begin(), route.end(), [this](LinkId id) { return rates_.contains(id); });
  }
  bool measured() const { return fastest_ > 0; }

  // A transfer has arrived.
  void Arrive(const Pair& pair, const OverlayReport& report, Time now) {
    const double bytes = static_cast<double>(report.bytes) - kFrameBytes;  // the first message began it
    const double seconds = static_cast<double>(report.spread) / kSecond;
    if (bytes <= 0 || seconds <= 0) return;
    transfers_.push_back({pair, static_cast<double>(now) / kSecond - seconds, seconds, bytes / seconds});
    if (transfers_.size() > kMost) Read(false);
  }

  // Transfers since rates were made.
  std::size_t arrived() const { return transfers_.size(); }

  // Makes rates of what has arrived since the last call. `grow`: a round has ended.
  void Read(bool grow) {
    if (transfers_.empty()) return;
    std::map<LinkId, std::vector<std::pair<double, double>>> changes;
    std::map<Pair, std::vector<LinkId>> used;
    for (const Transfer& each : transfers_) {
      std::vector<LinkId>& route = used.try_emplace(each.pair, Route(each.pair)).first->second;
      for (const LinkId id : route) {
        changes[id].push_back({each.began, each.rate});
        changes[id].push_back({each.began + each.seconds, -each.rate});
      }
    }
    transfers_.clear();
    std::map<LinkId, double> seen;
    for (auto& [id, each] : changes) seen[id] = Largest(each);
    const std::set<LinkId> slower = Explain(used, seen);
    for (const auto& [id, rate] : seen) fastest_ = std::max(fastest_, rate);
    for (const auto& [id, rate] : seen) {
      const auto [known, fresh] = rates_.try_emplace(id, rate);
      double& value = known->second;
      if (fresh || rate >= value) {
        value = rate;
      } else if (slower.contains(id)) {
        value += kNewest * (rate - value);
      } else if (grow && rate < kExplained * value) {
        value = std::max(value, std::min(kGrowth * value, fastest_));
      }
    }
  }

  void Exchange(Archive& archive) { archive(rates_, transfers_, fastest_); }

 private:
  struct Transfer {
    Pair pair;
    double began = 0, seconds = 0, rate = 0;

    void Exchange(Archive& archive) { archive(pair, began, seconds, rate); }
  };
  static constexpr std::size_t kMost = 1 << 16;

  LinkId Own(NodeId node, bool out) const {
    const auto found = own_.find({node, out});
    return found != own_.end() ? found->second : kOwn + 2 * LinkId{node} + (out ? 0 : 1);
  }

  // The largest total that lasted, of rates that begin and end.
  static double Largest(std::vector<std::pair<double, double>>& changes) {
    std::sort(changes.begin(), changes.end());
    std::vector<std::pair<double, double>> lasted;  // total, seconds
    double total = 0, busy = 0;
    for (std::size_t i = 0; i + 1 < changes.size(); ++i) {
      total += changes[i].second;
      const double seconds = changes[i + 1].first - changes[i].first;
      if (seconds <= 0 || total <= 0) continue;
      lasted.push_back({total, seconds});
      busy += seconds;
    }
    std::sort(lasted.rbegin(), lasted.rend());
    double at_least = 0;
    for (const auto& [rate, seconds] : lasted) {
      at_least += seconds;
      if (at_least >= kLasting * busy) return rate;
    }
    return 0;
  }

  // The links that have become slower: few that explain all transfers.
  std::set<LinkId> Explain(const std::map<Pair, std::vector<LinkId>>& used,
                           const std::map<LinkId, double>& seen) const {
    const auto limits = [&](LinkId id) {
      const auto known = rates_.find(id);
      return known == rates_.end() || seen.at(id) >= kExplained * known->second;
    };
    std::map<LinkId, std::set<Pair>> open;
    for (const auto& [pair, route] : used) {
      if (std::any_of(route.begin(), route.end(), limits)) continue;
      for (const LinkId id : route) open[id].insert(pair);
    }
    std::set<LinkId> slower;
    while (!open.empty()) {
      std::size_t most = 0;
      for (const auto& [id, pairs] : open) most = std::max(most, pairs.size());
      if (most == 0) break;
      std::set<Pair> explained;
      for (const auto& [id, pairs] : open) {
        if (pairs.size() < most) continue;
        slower.insert(id);
        explained.insert(pairs.begin(), pairs.end());
      }
      for (auto& [id, pairs] : open) {
        std::erase_if(pairs, [&](const Pair& pair) { return explained.contains(pair); });
      }
    }
    return slower;
  }

  static constexpr LinkId kOwn = LinkId{1} << 33;  // above the numbers of named links
  std::map<Pair, std::vector<LinkId>> routes_;
  std::map<std::pair<NodeId, bool>, LinkId> own_;
  std::map<Pair, double> delays_;
  std::map<LinkId, double> rates_;
  std::vector<Transfer> transfers_;
  double fastest_ = 0;  // measured
};

}  // namespace geomx::tsengine
