// Connections between two members that have ended, as one of them reports it to the scheduler.
//
// Either end may be at fault: the scheduler looks a moment later which of the two is silent.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/archive.h"
#include "core/types.h"

namespace geomx {

struct EndedLink {
  Time due = 0;
  NodeId one = 0, other = 0;
  std::string reason;

  void Exchange(Archive& archive) { archive(due, one, other, reason); }
};

class EndedLinks {
 public:
  // `link.one` reports it; its first report counts. REQUIRES: due at the end of all others.
  void Add(EndedLink link) {
    const auto same = [&](const EndedLink& each) { return each.one == link.one && each.other == link.other; };
    if (std::none_of(links_.begin(), links_.end(), same)) links_.push_back(std::move(link));
  }
  // The process of a member is gone, and with it the ends of its connections.
  void Forget(NodeId member) {
    std::erase_if(links_, [&](const EndedLink& link) { return link.one == member || link.other == member; });
  }
  // Removes and returns the next that is due.
  std::optional<EndedLink> Take(Time now) {
    if (NextDue() > now) return std::nullopt;
    EndedLink first = std::move(links_.front());
    links_.erase(links_.begin());
    return first;
  }
  Time NextDue() const { return links_.empty() ? kNever : links_.front().due; }
  void Exchange(Archive& archive) { archive(links_); }

 private:
  std::vector<EndedLink> links_;  // by the time at which they count
};

}  // namespace geomx
