// multiroot's trees and their coordinator: every contribution is added once and every value arrives once,
// links are used in proportion to their rates, and what is sent follows rates that change. Clusters are
// tested in Python.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/natives.h"
#include "core/overlay.h"
#include "tests/check.h"
#include "tests/overlay_rounds.h"
#include "tests/seeds.h"
#include "trees.h"

namespace geomx {
namespace {

using namespace multiroot;
using What = OverlayReport::What;

// A drawn network: each pair of nodes has its own link, or uses two links of others.
struct Mesh {
  std::vector<NodeId> members, roots;
  Options options = {{"expiry_rounds", 5}, {"seed", 1}};
};

Mesh Draw(check::Random& random) {
  Mesh mesh;
  const auto count = static_cast<NodeId>(check::Between(random, 2, 9));
  for (NodeId id = 1; id <= count; ++id) mesh.members.push_back(id);
  const auto roots = static_cast<NodeId>(check::Between(random, 1, 3));
  for (NodeId id = 0; id < roots; ++id) mesh.roots.push_back(100 + id);
  std::vector<NodeId> all = mesh.members;
  all.insert(all.end(), mesh.roots.begin(), mesh.roots.end());
  const auto links = static_cast<LinkId>(check::Between(random, 1, 20));
  for (const NodeId from : all) {
    for (const NodeId to : all) {
      if (from == to) continue;
      const std::string name = "route " + std::to_string(from) + " " + std::to_string(to);
      mesh.options[name] = 1e-3 * static_cast<double>(check::Between(random, 0, 50));
      const auto length = static_cast<int>(check::Between(random, 0, 2));  // none: on one site
      std::set<LinkId> chosen;
      for (int i = 0; i < length; ++i) chosen.insert(static_cast<LinkId>(check::Between(random, 0, links - 1)));
      std::size_t at = 0;
      for (const LinkId link : chosen) mesh.options[name + " " + std::to_string(at++)] = link;
    }
  }
  for (const NodeId member : mesh.members) mesh.options["member " + std::to_string(member)] = 1;
  return mesh;
}

TEST(MultirootAddsEveryContributionOnceAndForwardsEveryValueOnce) {
  check::ForSeeds(100, [](std::uint64_t seed) {
    check::Random random(seed);
    const Mesh mesh = Draw(random);
    check::OverlayRounds rounds("multiroot", mesh.options, mesh.members, mesh.roots, random);
    const auto shards = static_cast<std::uint32_t>(check::Between(random, 1, 6));
    for (Round round = 1; round <= 4; ++round) rounds.Run(shards, round);
  });
}

// Two members; the first is joined to the root by link 0, the second by link 1, and to each other by 2 (and 3).
Links Triangle(std::map<Pair, Route>& routes) {
  routes = {{{1, 100}, {{0}}}, {{2, 100}, {{1}}}, {{1, 2}, {{2}}}, {{2, 1}, {{3}}}};
  return Links(routes, 5);
}

void Measure(Links& links, const std::map<Pair, Route>& routes, const std::map<LinkId, double>& rates, Round round,
             Time& now) {
  for (const auto& [pair, route] : routes) {
    const Time began = now;
    links.Begin(pair, now);
    now += static_cast<Time>(4e6 / rates.at(route.links.front()) * kSecond);
    links.End(pair, 4e6, began, round, now);
  }
}

TEST(MultirootDividesShardsInProportionToRates) {
  check::ForSeeds(20, [](std::uint64_t seed) {
    check::Random random(seed);
    std::map<Pair, Route> routes;
    Links links = Triangle(routes);
    Time now = 0;
    for (Round round = 0; round < 30;) {  // every 10 rounds, the links are drawn anew
      std::map<LinkId, double> rates;
      for (LinkId link = 0; link < 4; ++link) rates[link] = 1e6 * static_cast<double>(check::Between(random, 2, 20));
      for (int times = 0; times < 10; ++times) Measure(links, routes, rates, ++round, now);
      for (const auto& [link, rate] : rates) CHECK_NEAR(links.Rate(link), rate, 0.02 * rate);
      std::map<LinkId, double> loads;
      constexpr int kShards = 200;
      std::vector<std::pair<Pair, double>> planned;
      for (int shard = 0; shard < kShards; ++shard) {
        const auto tree = GrowTree(links, {1, 2}, 100, true, 1e4, round);
        CHECK_EQ(tree.size(), 2u);
        for (const auto& [member, neighbour] : tree) {
          const Pair pair{member, neighbour};
          planned.push_back({pair, 1e4});
          loads[routes.at(pair).links.front()] += 1e4;
        }
      }
      for (const auto& [pair, bytes] : planned) links.Drop(pair, bytes);
      double longest = 0;
      for (const auto& [link, load] : loads) longest = std::max(longest, load / rates[link]);
      // No division is faster: one member sends everything, x of it through the other one; that adds to its load
      // nothing, as contributions are added. Direct links carry 1 - x and 1 - y of the shards with x + y <= 1.
      double best = 1e9;
      for (int x = 0; x <= 100; ++x) {
        for (int y = 0; x + y <= 100; ++y) {
          best = std::min(best, std::max({(100 - x) / rates[0], x / rates[2], (100 - y) / rates[1], y / rates[3]}));
        }
      }
      CHECK(longest <= 1.1 * best * kShards * 1e4 / 100);
    }
  });
}

// A pair that crosses the links of two others is left to them, unless delays are longer than the transfer.
TEST(MultirootAddsOnTheWayUnlessDelaysAreLonger) {
  for (const double delay : {0.001, 1.0}) {
    const std::map<Pair, Route> routes = {
        {{1, 100}, {{0}, delay}}, {{2, 1}, {{1}, delay}}, {{2, 100}, {{1, 0}, delay}}};
    Links links(routes, 5);
    Time now = 0;
    for (const Pair& pair : {Pair{1, 100}, Pair{2, 1}}) {  // the shared link has room for both
      const Time began = now;
      links.Begin(pair, now);
      now += (pair.first == 1 ? 1 : 10) * kSecond * (delay < 1 ? 1 : 10);
      links.End(pair, 1e8, began, 1, now);
    }
    const auto tree = GrowTree(links, {1, 2}, 100, true, 1e6, 1);
    CHECK_EQ(tree.at(1), 100u);
    CHECK_EQ(tree.at(2), delay < 1 ? 1u : 100u);
  }
}

TEST(MultirootIgnoresInvalidReports) {
  check::Random random(1);
  const Mesh mesh = Draw(random);
  auto coordinator = NativeCoordinators::Instance().Create("multiroot", mesh.options);
  for (const std::vector<double>& report : {std::vector<double>{}, {0, 1, 2}, {9, 1, 1, 1, 1, 1, -1, 0, 0}}) {
    CHECK(coordinator->OnReport(1, report, 0).empty());
  }
  // A root that does not exist, a reporter that is no member, and the end of a transfer that was not ordered.
  CHECK(coordinator->OnReport(1, OverlayReport{.what = What::kReady, .root = 7, .round = 1}.Pack(), 0).empty());
  CHECK(coordinator->OnReport(50, OverlayReport{.what = What::kReady, .root = 100, .round = 1}.Pack(), 0).empty());
  const OverlayReport ended{.what = What::kMerged, .root = 100, .round = 1, .from = 50};
  CHECK(coordinator->OnReport(100, ended.Pack(), 0).empty());
}

}  // namespace
}  // namespace geomx
