#include "tests/layout.h"

#include <algorithm>

namespace geomx::check {
namespace {

bool Contains(const std::vector<NodeId>& ids, NodeId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

Layout::Layout(const Plan& plan) : plan_(plan) {
  NodeId next = 1;
  for (std::uint32_t i = 0; i < plan.global_servers; ++i) globals.push_back(next++);
  for (const std::uint32_t size : plan.parties) {
    servers.push_back(next++);
    parties.emplace_back();
    for (std::uint32_t i = 0; i < size; ++i) parties.back().push_back(next++);
    workers.insert(workers.end(), parties.back().begin(), parties.back().end());
  }
  for (std::size_t i = 0; plan.standbys && i < globals.size(); ++i) standbys.push_back(next++);
}

std::vector<NodeId> Layout::All() const {
  std::vector<NodeId> all = {scheduler};
  for (const auto& some : {globals, servers, workers, standbys}) all.insert(all.end(), some.begin(), some.end());
  return all;
}

// ---- links -----------------------------------------------------------------------------------

void Layout::AddLink(NodeConfig& config, std::vector<NodeId>& relatives, NodeId peer, Role role,
                     const LinkPlan& push, const LinkPlan& pull) const {
  relatives.push_back(peer);
  config.peers.push_back({peer, Name(peer), role});
  config.links[{peer, Direction::kPush}] = push;
  config.links[{peer, Direction::kPull}] = pull;
}

void Layout::AddOverlays(NodeConfig& config) const {
  if (!plan_.coordinator) return;
  constexpr std::uint32_t kNumber = 3;
  std::vector<OverlayGroup> groups;
  for (std::size_t party = 0; party < servers.size(); ++party) {
    groups.push_back({servers[party], parties[party], servers[party], kNumber, plan_.overlay_push,
                      plan_.overlay_pull, plan_.overlay_ahead});
  }
  for (const NodeId global : globals) {
    groups.push_back(
        {global, servers, scheduler, kNumber, plan_.overlay_push, plan_.overlay_pull, plan_.overlay_ahead});
  }
  for (const OverlayGroup& group : groups) {
    if (group.members.size() < 2) continue;
    if (config.id == group.host) {
      config.coordinators.try_emplace(kNumber, plan_.coordinator());
      if (!group.ahead) config.coordinated[group.root] = static_cast<std::uint32_t>(group.members.size());
    }
    const bool member = Contains(group.members, config.id);
    if (!member && config.id != group.root) continue;
    config.groups.push_back(group);
    for (const NodeId sibling : group.members) {
      if (!member || sibling == config.id || config.links.contains({sibling, Direction::kPush})) {
        continue;
      }
      config.peers.push_back({sibling, Name(sibling), config.role});
      for (const Direction direction : {Direction::kPush, Direction::kPull}) {
        config.links[{sibling, direction}] = config.links.at({group.root, direction});
      }
    }
  }
}

NodeConfig Layout::Config(NodeId id) const {
  NodeConfig config;
  config.id = id;
  config.name = Name(id);
  config.frame_bytes = plan_.frame_bytes;
  config.most_early_bytes = plan_.most_early_bytes;
  config.phantom = plan_.phantom;
  config.rounds = plan_.rounds;
  config.rounds.early = plan_.quorum > 0 || plan_.round_policy || plan_.party_rounds;
  if (plan_.device && (Contains(globals, id) || Contains(servers, id))) {
    config.device = plan_.device();
  }
  config.heartbeat_interval = plan_.heartbeat_interval;
  config.failure_timeout = 5 * kSecond;
  config.patience = plan_.patience;
  config.continues = plan_.continues;
  config.open = !plan_.strict;
  config.declared = plan_.declared;
  config.non_finite = plan_.non_finite;
  if (id == scheduler) {
    config.role = Role::kScheduler;
    for (const NodeId global : globals) {
      for (const NodeId server : servers) config.tree.emplace_back(global, server);
    }
    for (std::size_t party = 0; party < servers.size(); ++party) {
      for (const NodeId worker : parties[party]) config.tree.emplace_back(servers[party], worker);
    }
    for (std::size_t i = 0; i < standbys.size(); ++i) {
      config.tree.emplace_back(globals[i], standbys[i]);
      config.standbys.emplace_back(globals[i], standbys[i]);
      config.peers.push_back({standbys[i], Name(standbys[i]), Role::kStandby});
    }
    std::sort(config.tree.begin(), config.tree.end());
    config.experiment = "experiment";
    for (const NodeId each : globals) {
      config.peers.push_back({each, Name(each), Role::kGlobalServer});
    }
    for (const NodeId each : servers) config.peers.push_back({each, Name(each), Role::kServer});
    for (const NodeId each : workers) config.peers.push_back({each, Name(each), Role::kWorker});
    AddOverlays(config);
    return config;
  }
  config.scheduler = scheduler;
  config.peers.push_back({scheduler, Name(scheduler), Role::kScheduler});
  if (Contains(globals, id)) {
    config.role = Role::kGlobalServer;
    if (plan_.quorum > 0) config.round_policy = std::make_shared<QuorumRounds>(plan_.quorum, plan_.deadline);
    if (plan_.round_policy) config.round_policy = plan_.round_policy();
    if (plan_.party_rounds && plan_.rounds.together && !config.round_policy) {
      config.round_policy = std::make_shared<QuorumRounds>(static_cast<std::uint32_t>(servers.size()), 0);
    }
    config.quorum = static_cast<std::uint32_t>(workers.size());
    for (std::size_t party = 0; party < servers.size(); ++party) {
      AddLink(config, config.children, servers[party], Role::kServer, plan_.wan_push, plan_.wan_pull);
      config.stands_for[servers[party]] = static_cast<std::uint32_t>(parties[party].size());
    }
  }
  for (std::size_t i = 0; i < standbys.size(); ++i) {
    if (id == globals[i]) {
      config.standby = standbys[i];
      config.peers.push_back({standbys[i], Name(standbys[i]), Role::kStandby});
    } else if (id == standbys[i]) {
      config.role = Role::kStandby;
      AddLink(config, config.parents, globals[i], Role::kGlobalServer, {}, {});
    }
  }
  for (std::uint32_t party = 0; party < servers.size(); ++party) {
    const std::vector<NodeId>& members = parties[party];
    if (id == servers[party]) {
      config.role = Role::kServer;
      config.quorum = static_cast<std::uint32_t>(members.size());
      if (plan_.policy) config.policy = plan_.policy(party);
      if (plan_.party_rounds) config.round_policy = plan_.party_rounds(party);
      for (const NodeId worker : plan_.parameter_scale > 0 ? members : std::vector<NodeId>()) {
        config.parameter_scales[worker] = plan_.parameter_scale;
      }
      for (const NodeId global : globals) {
        AddLink(config, config.parents, global, Role::kGlobalServer, plan_.wan_push, plan_.wan_pull);
      }
      for (const NodeId worker : members) {
        AddLink(config, config.children, worker, Role::kWorker, plan_.lan_push, plan_.lan_pull);
      }
    } else if (Contains(members, id)) {
      config.role = Role::kWorker;
      AddLink(config, config.parents, servers[party], Role::kServer, plan_.lan_push, plan_.lan_pull);
    }
  }
  const bool leads = Contains(globals, id) || id == servers.front();
  if (leads) config.master = Contains(globals, id) ? servers.front() : workers.front();
  AddOverlays(config);
  return config;
}

}  // namespace geomx::check
