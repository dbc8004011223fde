// A cluster of loops in one process, over loopback.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "io/loop.h"
#include "tests/check.h"

namespace geomx::io {

inline constexpr double kPatience = 30.0;  // seconds; reached only by a hang
// No port of it was another program's before, whose peers may still call there.
inline const char* const kOwnHost = "127.0.0.2";
inline const char* const kToken = "a token";

// Two parties of two workers, each with a server, one global server and the scheduler.
struct Cluster {
  static constexpr NodeId kScheduler = 0, kGlobal = 1, kServers = 2, kWorkers = 4, kNodes = 8;

  std::vector<NodeConfig> configs{kNodes};
  std::vector<std::unique_ptr<Loop>> loops;

  Cluster() {
    const auto peer = [](NodeId id) { return Peer{id, Name(id), RoleOf(id)}; };
    const auto link = [&](NodeId child, NodeId parent) {
      configs[kScheduler].tree.emplace_back(parent, child);
      configs[child].parents.push_back(parent);
      configs[child].peers.push_back(peer(parent));
      configs[parent].children.push_back(child);
      configs[parent].peers.push_back(peer(child));
    };
    for (NodeId id = 0; id < kNodes; ++id) {
      configs[id].id = id;
      configs[id].name = Name(id);
      configs[id].role = RoleOf(id);
      configs[id].heartbeat_interval = 100 * kMillisecond;
      configs[id].failure_timeout = 20 * kSecond;  // sanitizers are slow
      configs[id].open = true;
      if (id == kScheduler) continue;
      configs[id].scheduler = kScheduler;
      configs[id].peers.push_back(peer(kScheduler));
      configs[kScheduler].peers.push_back(peer(id));
    }
    for (NodeId server = 0; server < 2; ++server) {
      link(kServers + server, kGlobal);
      for (NodeId worker = 0; worker < 2; ++worker) {
        link(kWorkers + 2 * server + worker, kServers + server);
      }
      configs[kServers + server].quorum = 2;
    }
    auto& tree = configs[kScheduler].tree;
    std::sort(tree.begin(), tree.end());
    configs[kGlobal].quorum = 4;
    configs[kGlobal].stands_for = {{kServers, 2}, {kServers + 1, 2}};
    configs[kScheduler].experiment = "the experiment";
  }

  static std::string Name(NodeId id) {
    static const char* const names[] = {"scheduler", "global", "server0", "server1",
                                        "worker0",   "worker1", "worker2", "worker3"};
    return names[id];
  }
  static Role RoleOf(NodeId id) {
    if (id >= kWorkers) return Role::kWorker;
    if (id >= kServers) return Role::kServer;
    return id == kGlobal ? Role::kGlobalServer : Role::kScheduler;
  }

  void Start(const std::map<NodeId, Shape>& shapes = {}) {
    for (NodeId id = 0; id < kNodes; ++id) {
      loops.push_back(std::make_unique<Loop>(kOwnHost, 0, kToken));
    }
    const auto shape = [&](NodeId id) {
      const auto found = shapes.find(id);
      return found == shapes.end() ? std::nullopt : std::optional(found->second);
    };
    for (NodeId id = 1; id < kNodes; ++id) {  // some connect before the scheduler knows them
      loops[id]->StartJoin(loops[kScheduler]->address(), Name(id), id, kPatience);
    }
    loops[kScheduler]->Run(configs[kScheduler], {}, shape(kScheduler));
    for (NodeId id = 1; id < kNodes; ++id) {
      const auto joined = loops[id]->WaitJoined(kPatience);
      CHECK(joined.has_value());
      if (!joined) return;
      CHECK_EQ(joined->experiment, std::string("the experiment"));
      CHECK_EQ(joined->roster.size(), std::size_t{kNodes - 1});
      loops[id]->Run(configs[id], joined->roster, shape(id));
    }
    for (auto& loop : loops) CHECK(loop->WaitStarted(kPatience).has_value());
  }

  Loop& worker(NodeId index) { return *loops[kWorkers + index]; }

  void Declare(Key key, std::uint32_t elements, std::vector<ShardInfo> shards) {
    for (NodeId i = 0; i < 4; ++i) worker(i).Declare(key, elements, shards);
  }

  // Every worker w pushes (w + 1) * scale. Waits for the round; returns worker 0's value.
  std::vector<float> PushAll(Key key, std::size_t elements, float scale) {
    Round round = 0;
    for (NodeId i = 0; i < 4; ++i) {
      auto value = std::make_shared<std::vector<float>>(elements);
      for (std::size_t j = 0; j < elements; ++j) {
        (*value)[j] = static_cast<float>(i + 1) * scale * static_cast<float>(1 + j % 7);
      }
      round = worker(i).Push(key, *value, value, {.loss = 1.0f});
    }
    std::vector<float> result(elements), other(elements);
    for (NodeId i = 0; i < 4; ++i) {
      CHECK(worker(i).Wait(key, round, kPatience).has_value());
      worker(i).Value(key, i == 0 ? result : other);
      if (i > 0) CHECK(result == other);
    }
    return result;
  }

  void Stop() {
    for (NodeId i = 0; i < 4; ++i) worker(i).Leave();
    for (auto& loop : loops) CHECK(loop->WaitStopped(kPatience));
    for (auto& loop : loops) loop->Close();
    for (auto& loop : loops) CHECK(!loop->failure().has_value());
  }
};

inline void CheckSums(const std::vector<float>& value, float scale) {
  for (std::size_t j = 0; j < value.size(); ++j) {
    if (value[j] != 10.0f * scale * static_cast<float>(1 + j % 7)) {
      CHECK_EQ(value[j], 10.0f * scale * static_cast<float>(1 + j % 7));
      return;
    }
  }
}

}  // namespace geomx::io
