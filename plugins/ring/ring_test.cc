// The ring: every contribution is added once and every value arrives once, and each link of the ring carries
// the parts of all roots but one in each direction. Clusters are tested in Python.
#include <stdexcept>
#include <string>
#include <vector>

#include "core/natives.h"
#include "core/overlay.h"
#include "tests/check.h"
#include "tests/overlay_rounds.h"
#include "tests/seeds.h"

namespace geomx {
namespace {

TEST(RingUsesEachOfItsLinksForAllPartsButOne) {
  check::ForSeeds(40, [](std::uint64_t seed) {
    check::Random random(seed);
    const auto count = static_cast<NodeId>(check::Between(random, 2, 9));
    std::vector<NodeId> members, roots;
    Options options = {{"seed", 1}};
    for (NodeId at = 0; at < count; ++at) {
      members.push_back(1 + at);
      roots.push_back(100 + at);
      options["place " + std::to_string(at)] = 1 + at;
      options["home " + std::to_string(100 + at)] = at;
    }
    check::OverlayRounds rounds("ring", options, members, roots, random);
    const auto shards = static_cast<std::uint32_t>(check::Between(random, 1, 4));
    constexpr Round kRounds = 3;
    for (Round round = 1; round <= kRounds; ++round) rounds.Run(shards, round);
    const int each = static_cast<int>(kRounds * shards);
    for (const auto& [pair, sent] : rounds.sent) {
      const auto [from, to] = pair;
      if (from > count || to > count) {  // between a root and the member beside it
        CHECK_EQ(from > to ? from - 100 : from - 1, from > to ? to - 1 : to - 100);
        CHECK_EQ(sent, each);
      } else {
        CHECK_EQ(from % count + 1, to);
        CHECK_EQ(sent, 2 * each * static_cast<int>(count - 1));
      }
    }
    CHECK_EQ(rounds.sent.size(), std::size_t{3} * count);
  });
}

TEST(RingIgnoresInvalidReportsAndRefusesAHomeNowhere) {
  const Options options = {{"place 0", 1}, {"place 1", 2}, {"home 100", 0}, {"home 101", 1}};
  auto ring = NativeCoordinators::Instance().Create("ring", options);
  CHECK(ring->OnReport(1, std::vector<double>{0, 1, 2}, 0).empty());
  CHECK(ring->OnReport(1, OverlayReport{.root = 7, .round = 1}.Pack(), 0).empty());
  CHECK(!ring->OnReport(1, OverlayReport{.root = 100, .round = 1}.Pack(), 0).empty());
  CHECK(ring->OnReport(2, OverlayReport{.root = 100, .round = 1}.Pack(), 0).empty());  // it is planned
  bool refused = false;
  try {
    NativeCoordinators::Instance().Create("ring", {{"place 0", 1}, {"home 9", 1}});
  } catch (const std::invalid_argument&) {
    refused = true;
  }
  CHECK(refused);
}

}  // namespace
}  // namespace geomx
