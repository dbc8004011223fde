// Callers that have not proven yet that they are members, and who of them goes when there are too
// many.
//
// A flood of callers must not keep members out. Each host has a share of the places, so a flood
// from one host displaces its own callers only; if many hosts fill all places, the host with most
// callers loses one, and hosts of known members last. Of one host's callers, those go first that
// have said least, and of these the oldest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>

namespace geomx::io {

class Strangers {
 public:
  static constexpr std::size_t kMost = 256;
  static constexpr std::size_t kMostOfOneHost = kMost / 2;

  // What a caller has said so far.
  enum class Said : std::uint8_t { kNothing, kSomething, kHello };

  bool empty() const { return hosts_.empty(); }
  std::size_t size() const { return hosts_.size(); }
  // REQUIRES: !empty().
  std::uint64_t oldest() const { return hosts_.begin()->first; }

  // Ids grow with the time of arrival.
  void Add(std::uint64_t id, const std::string& host) {
    hosts_[id] = {host, Said::kNothing};
    callers_[host].insert({Said::kNothing, id});
  }
  void Advance(std::uint64_t id, Said said) {
    const auto found = hosts_.find(id);
    if (found == hosts_.end() || found->second.second >= said) return;
    auto& callers = callers_[found->second.first];
    callers.erase({found->second.second, id});
    callers.insert({found->second.second = said, id});
  }
  // Returns false if it is no stranger.
  bool Remove(std::uint64_t id) {
    const auto found = hosts_.find(id);
    if (found == hosts_.end()) return false;
    const auto callers = callers_.find(found->second.first);
    callers->second.erase({found->second.second, id});
    if (callers->second.empty()) callers_.erase(callers);
    hosts_.erase(found);
    return true;
  }

  // Members are known to be on this host.
  void Reserve(const std::string& host) { members_.insert(host); }

  // Returns true if one must go before another from `host` can be added.
  bool Full(const std::string& host) const { return size() >= kMost || FullOf(host); }
  // The one to go for another from `host`. REQUIRES: !empty().
  std::uint64_t Victim(const std::string& host) const {
    if (FullOf(host)) return callers_.at(host).begin()->second;
    auto chosen = callers_.begin();
    for (auto each = std::next(chosen); each != callers_.end(); ++each) {
      if (Rank(*each) > Rank(*chosen)) chosen = each;
    }
    return chosen->second.begin()->second;
  }

 private:
  using Callers = std::set<std::pair<Said, std::uint64_t>>;

  bool FullOf(const std::string& host) const {
    const auto found = callers_.find(host);
    return found != callers_.end() && found->second.size() >= kMostOfOneHost;
  }
  std::pair<bool, std::size_t> Rank(const std::pair<const std::string, Callers>& host) const {
    return {!members_.contains(host.first), host.second.size()};
  }

  std::map<std::uint64_t, std::pair<std::string, Said>> hosts_;  // by id
  std::map<std::string, Callers> callers_;                       // by host
  std::set<std::string> members_;
};

}  // namespace geomx::io
