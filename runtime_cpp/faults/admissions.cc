#include "faults/admissions.h"

#include <algorithm>

namespace geomx::faults {

Admissions::Admissions(const Experiment& experiment)
    : alone_(!experiment.plan.rounds.together),
      applies_(experiment.on_loss == OnLoss::kContinue && !experiment.early() && !experiment.logged &&
               !experiment.sliced() && !experiment.plan.policy),
      servers_(check::Layout(experiment.plan).servers.front()) {}

void Admissions::OnBegin(NodeId server) {
  returns_.erase(server);
  latest_.erase(server);
}

void Admissions::OnBack(NodeId server, NodeId child) {
  if (applies_) returns_[server][child] = {};
}

void Admissions::OnRequest(NodeId server, NodeId child, const Header& request) {
  const auto found = returns_[server].find(child);
  if (found == returns_[server].end()) return;
  if (alone_ && server < servers_) found->second.first[{request.key, request.shard}] = LatestOf(server) + 1;
  if (!std::exchange(found->second.asked, true)) first_[child] = LatestOf(server) + 1;
}

void Admissions::OnValue(NodeId server, Round round) {
  Round& latest = LatestOf(server);
  latest = std::max(latest, round);
  for (const auto& [child, its] : returns_[server]) {
    if (its.asked) first_[child] = std::max(first_[child], round + 1);
  }
}

std::string Admissions::OnPush(NodeId server, NodeId child, const Header& push) {
  Round& latest = LatestOf(server);
  latest = std::max(latest, push.round);
  const auto found = returns_[server].find(child);
  if (found == returns_[server].end() || !found->second.asked) return {};
  const auto requested = found->second.first.find({push.key, push.shard});
  const Round first = requested == found->second.first.end() ? first_[child] : requested->second;
  if (!found->second.pushed.insert({push.key, push.shard}).second || push.round <= first) return {};
  return "members take part soon: node" + std::to_string(child) + " takes part from round " +
         std::to_string(push.round) + " of key " + std::to_string(push.key) + " on, not from round " +
         std::to_string(first);
}

}  // namespace geomx::faults
