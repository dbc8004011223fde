// The links of the network between the sites, what their rates were recently seen to be, and what is
// planned to cross them.
//
// A transfer between two nodes crosses the links of its route, which the network description gives.
// Rates are measured: what arrived over a link since it was idle or last read, divided by that time. A
// transfer that crosses several links is as fast as the slowest lets it be, and others may share that one:
// the links are at least as fast. So readings of such transfers count only if they are larger than the
// known rate, or the largest of several rounds.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "core/archive.h"
#include "core/types.h"

namespace geomx::multiroot {

using LinkId = std::uint32_t;
using Pair = std::pair<NodeId, NodeId>;  // (sender, receiver)

constexpr double kWindow = 2e6;       // bytes per reading of a busy link
constexpr double kAssumed = 12.5e6;   // bytes per second of a link about which nothing is known
constexpr double kNewest = 0.5;       // weight of a reading in the rate
constexpr Round kShared = 3;          // rounds of which the largest reading counts, where links are shared
constexpr double kDelays = 4;         // a reading lasts longer than so many delays

struct Route {
  std::vector<LinkId> links = {};
  double delay = 0;  // seconds from an order to the report of the transfer's end, without the transfer itself
};

class Links {
 public:
  Links(std::map<Pair, Route> routes, Round expiry) : routes_(std::move(routes)), expiry_(expiry) {}

  bool Knows(const Pair& pair) const { return routes_.contains(pair); }
  std::size_t Length(const Pair& pair) const { return routes_.at(pair).links.size(); }

  // Something of `bytes` will cross the links of `pair`, or no longer.
  void Plan(const Pair& pair, double bytes) {
    for (const LinkId id : routes_.at(pair).links) links_[id].planned += bytes;
  }
  void Drop(const Pair& pair, double bytes) {
    for (const LinkId id : routes_.at(pair).links) links_[id].planned = std::max(0.0, links_[id].planned - bytes);
  }

  // Returns the seconds until `bytes` more have crossed the most loaded link of `pair`, after all that is
  // planned for it.
  double Finish(const Pair& pair, double bytes, Round round) const {
    double latest = 0;
    for (const LinkId id : routes_.at(pair).links) {
      const Link link = At(id);
      latest = std::max(latest, (link.planned + bytes) / Expected(link, round));
    }
    return latest;
  }
  double Delay(const Pair& pair) const { return routes_.at(pair).delay; }
  // Returns the seconds for which `bytes` occupy the links of `pair`, one after the other.
  double Occupies(const Pair& pair, double bytes, Round round) const {
    double seconds = 0;
    for (const LinkId id : routes_.at(pair).links) seconds += bytes / Expected(At(id), round);
    return seconds;
  }

  // A planned transfer begins.
  void Begin(const Pair& pair, Time now) {
    for (const LinkId id : routes_.at(pair).links) {
      Link& link = links_[id];
      if (link.open++ > 0) continue;
      link.since = now;
      link.arrived = 0;
      link.alone = true;
    }
  }

  // It has ended, had begun at `began`, and was of `bytes` on the wire.
  void End(const Pair& pair, double bytes, Time began, Round round, Time now) {
    const std::vector<LinkId>& route = routes_.at(pair).links;
    for (const LinkId id : route) {
      Link& link = links_[id];
      --link.open;
      // Transfers of one pair follow each other; those of several pairs share a link, so that a part of
      // what arrives now may have crossed it before it was last read.
      const double before = static_cast<double>(std::max<Time>(0, link.since - began));
      const double took = static_cast<double>(std::max<Time>(1, now - began));
      link.arrived += route.size() == 1 ? bytes : bytes * (1 - before / took);
      link.alone = link.alone && route.size() == 1;
      if (link.arrived < kWindow && link.open > 0) continue;
      const double seconds = static_cast<double>(std::max<Time>(1, now - link.since)) / kSecond;
      // Where most of the time was delay, it may have been idle.
      Read(link, link.arrived / seconds, seconds > kDelays * Delay(pair), round);
      link.since = now;
      link.arrived = 0;
      link.alone = true;
    }
  }

  // Bytes per second; 0: unknown.
  double Rate(LinkId id) const { return At(id).rate; }

  void Exchange(Archive& archive) { archive(links_, fastest_); }

 private:
  struct Link {
    double planned = 0;  // bytes that will cross it
    double rate = 0;     // bytes per second; 0: unknown
    Round read = 0;      // the round of the last reading
    // Since it was idle or last read:
    Time since = 0;
    double arrived = 0;
    std::uint32_t open = 0;
    bool alone = true;  // the transfers crossed no other link
    // Since the rate was last set: the largest reading of others, and the round.
    double best = 0;
    Round since_round = 0;

    void Exchange(Archive& archive) { archive(planned, rate, read, since, arrived, open, alone, best, since_round); }
  };

  Link At(LinkId id) const {
    const auto found = links_.find(id);
    return found == links_.end() ? Link{} : found->second;
  }

  // A link without a recent reading may be as fast as the fastest, until something is sent over it.
  double Expected(const Link& link, Round round) const {
    const bool old = round > link.read + expiry_ && link.planned == 0;
    const double rate = link.rate == 0 || old ? fastest_ : link.rate;
    return rate > 0 ? rate : kAssumed;
  }

  void Read(Link& link, double rate, bool busy, Round round) {
    if (busy && link.alone) {
      link.rate = link.rate == 0 ? rate : link.rate + kNewest * (rate - link.rate);
    } else if (rate > (link.rate > 0 ? link.rate : kAssumed)) {
      link.rate = rate;
    } else if (busy) {
      link.best = std::max(link.best, rate);
      if (round < link.since_round + kShared) return;
      link.rate = link.best;
    } else {
      return;
    }
    link.best = 0;
    link.read = link.since_round = round;
    fastest_ = std::max(fastest_, link.rate);
  }

  std::map<Pair, Route> routes_;
  Round expiry_;
  std::map<LinkId, Link> links_;
  double fastest_ = 0;
};

}  // namespace geomx::multiroot
