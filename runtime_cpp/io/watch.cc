#include "io/watch.h"

#include <algorithm>

namespace geomx::io {
namespace {

constexpr std::size_t kNamed = 8;    // nodes by name in one line
constexpr int kLooksPerPatience = 4;
constexpr int kShareOfTime = 100;    // checking takes at most 1 / this of the thread's time

std::string Listed(const std::vector<NodeId>& nodes, const Watch::NameOf& name) {
  std::string text;
  const std::size_t named = std::min(nodes.size(), kNamed);
  for (std::size_t i = 0; i < named; ++i) {
    const bool last = i + 1 == nodes.size();
    text += (i == 0 ? "" : last ? " and " : ", ") + name(nodes[i]);
  }
  if (named < nodes.size()) text += " and " + std::to_string(nodes.size() - named) + " others";
  return text;
}

std::string OfKeys(const Wait& wait, const Watch::KeyName& key) {
  const std::string more = std::to_string(wait.keys - 1);
  return key(wait.key) + (wait.keys > 1 ? " (and of " + more + " other keys)" : "");
}

std::string Deed(const Wait& wait, const Watch::KeyName& key) {
  switch (wait.kind) {
    case Wait::Kind::kScheduler: return "to be reached";
    case Wait::Kind::kRoster: return "to say that every node has joined";
    case Wait::Kind::kJoin: return "to join";
    case Wait::Kind::kConnect: return "to be connected to it";
    case Wait::Kind::kReady: return "to be connected to all of its peers";
    case Wait::Kind::kStart: return "to say that every node is connected";
    case Wait::Kind::kPush:
      return "to push round " + std::to_string(wait.round) + " of " + OfKeys(wait, key);
    case Wait::Kind::kAnswer:
      return "to answer round " + std::to_string(wait.round) + " of " + OfKeys(wait, key);
    case Wait::Kind::kInitial: return "to give the initial value of " + OfKeys(wait, key);
    case Wait::Kind::kBarrier: return "to come to barrier " + std::to_string(wait.round);
    case Wait::Kind::kRelease:
      return "to say that all workers have come to barrier " + std::to_string(wait.round);
    case Wait::Kind::kLeave: return "to leave the run, as other workers have";
    case Wait::Kind::kStop: return "to say that all workers have left the run";
    case Wait::Kind::kOrder: return "to give an order";
    case Wait::Kind::kReply: return "to answer a report to coordinator " + std::to_string(wait.key);
  }
  return "";
}

}  // namespace

std::vector<std::string> Watch::Look(Time now, const std::vector<Wait>& waits,
                                     const std::string& self, const NameOf& name,
                                     const KeyName& key, const CoordinatorName& coordinator,
                                     const std::string& scheduler) {
  std::vector<std::string> lines;
  std::int64_t order_due = -1, initial_due = -1;
  decltype(since_) since;
  for (const Wait& wait : waits) {
    const Who who{wait.kind, wait.whom};
    const auto id = std::pair(who, std::pair(wait.round, wait.key));
    const auto before = since_.find(id);
    const Time began = before == since_.end() ? now : before->second;
    since.emplace(id, began);
    if (wait.kind == Wait::Kind::kOrder && now - began >= patience_) order_due = wait.key;
    const bool initial = wait.kind == Wait::Kind::kInitial && wait.whom.empty();
    if (initial && now - began >= patience_) initial_due = wait.key;
    Time& due = due_.try_emplace(who, patience_).first->second;
    if (now - began < due) continue;
    while (due <= now - began) due *= 2;
    const std::string whom =
        wait.kind == Wait::Kind::kScheduler ? scheduler
        : wait.kind == Wait::Kind::kOrder   ? coordinator(wait.key)
        : wait.whom.empty()                 ? "the master worker"
                                            : Listed(wait.whom, name);
    lines.push_back(self + " has waited " + std::to_string((now - began) / kSecond) + " s for " +
                    whom + " " + Deed(wait, key));
  }
  since_ = std::move(since);
  order_due_ = order_due;
  initial_due_ = initial_due;
  next_ = std::max(now + patience_ / kLooksPerPatience, now + kShareOfTime * (Now() - now));
  return lines;
}

}  // namespace geomx::io
