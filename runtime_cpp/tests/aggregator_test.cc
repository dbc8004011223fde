// Aggregation: sums do not depend on the order of arrival, bit by bit.
#include "core/aggregator.h"

#include <algorithm>
#include <numeric>

#include "tests/seeds.h"

namespace geomx {
namespace {

using check::Between;

std::vector<Buffer> RandomContributions(check::Random& random, std::size_t members,
                                        std::size_t elements) {
  std::vector<Buffer> values(members, Buffer(elements));
  for (Buffer& value : values) {
    // With very different magnitudes, float32 addition depends on its order.
    for (float& x : value) {
      x = std::ldexp(check::Uniform(random, -1, 1), static_cast<int>(Between(random, 0, 30)));
    }
  }
  return values;
}

TEST(SumsDoNotDependOnTheOrderOfArrival) {
  check::ForSeeds(50, [](std::uint64_t seed) {
    check::Random random(seed);
    const std::size_t members = Between(random, 1, 8), elements = Between(random, 1, 40);
    std::vector<NodeId> order(members);
    for (std::size_t i = 0; i < members; ++i) order[i] = static_cast<NodeId>(3 + 2 * i);
    Aggregator sum(order, static_cast<std::uint32_t>(members));
    for (int round = 0; round < 3; ++round) {
      const auto values = RandomContributions(random, members, elements);
      Buffer expected = values[0];
      for (std::size_t i = 1; i < members; ++i) {
        for (std::size_t j = 0; j < elements; ++j) expected[j] += values[i][j];
      }
      std::vector<std::size_t> arrival(members);
      std::iota(arrival.begin(), arrival.end(), 0u);
      for (std::size_t i = members; i > 1; --i) {
        std::swap(arrival[i - 1], arrival[Between(random, 0, i - 1)]);
      }
      for (std::size_t i = 0; i < members; ++i) {
        CHECK(!sum.complete());
        CHECK(sum.Add(order[arrival[i]], 1, values[arrival[i]]));
        CHECK_EQ(sum.merge_count(), i + 1);
      }
      CHECK(sum.complete());
      CHECK(sum.Take() == expected);
      CHECK_EQ(sum.merge_count(), 0u);
    }
  });
}

TEST(ASecondContributionToARoundIsRefused) {
  const NodeId order[] = {1, 2};
  Aggregator sum(order, 2);
  CHECK(sum.Add(2, 1, {5}));
  CHECK(!sum.Add(2, 1, {7}));
  CHECK_EQ(sum.merge_count(), 1u);
  CHECK(sum.Add(1, 1, {1}));
  CHECK(!sum.Add(1, 1, {1}));
  CHECK(sum.Take() == Buffer{6});
  CHECK(sum.Add(2, 1, {7}));
}

// With any reduction tree, a contribution of three merged workers counts as three.
TEST(MergeCountsCompleteARound) {
  check::ForSeeds(30, [](std::uint64_t seed) {
    check::Random random(seed);
    const std::size_t members = 6;
    const NodeId order[] = {0, 1, 2, 3, 4, 5};
    auto values = RandomContributions(random, members, 5);
    for (Buffer& value : values) {
      for (float& x : value) x = std::floor(x);
    }
    Buffer expected(5, 0.0f);
    Aggregator sum(order, static_cast<std::uint32_t>(members));
    std::size_t at = 0;
    while (at < members) {
      CHECK(!sum.complete());
      const std::size_t group = Between(random, 1, members - at);
      Buffer merged(5, 0.0f);
      for (std::size_t i = at; i < at + group; ++i) {
        for (std::size_t j = 0; j < 5; ++j) merged[j] += values[i][j];
      }
      // The last member of the group sends it.
      CHECK(sum.Add(order[at + group - 1], static_cast<std::uint32_t>(group), merged));
      at += group;
    }
    CHECK(sum.complete());
    for (const Buffer& value : values) {
      for (std::size_t j = 0; j < 5; ++j) expected[j] += value[j];
    }
    const Buffer total = sum.Take();
    for (std::size_t j = 0; j < 5; ++j) {
      CHECK_NEAR(total[j], expected[j], 1e-6 * (1 << 30));
    }
    // The merged contributions do not affect the next round.
    for (std::size_t i = members; i-- > 0;) CHECK(sum.Add(order[i], 1, values[i]));
    Buffer ascending = values[0];
    for (std::size_t i = 1; i < members; ++i) {
      for (std::size_t j = 0; j < 5; ++j) ascending[j] += values[i][j];
    }
    CHECK(sum.Take() == ascending);
  });
}

TEST(ContributionsOfUnknownMembersAreRefused) {
  const NodeId order[] = {2, 4};
  Aggregator sum(order, 2);
  for (const NodeId stranger : {1u, 3u, 5u}) CHECK(!sum.Add(stranger, 1, {1}));
  CHECK_EQ(sum.merge_count(), 0u);
  CHECK(!sum.Has(3));
  CHECK(sum.Add(4, 1, {5}));
  CHECK_EQ(sum.First(), 4u);
}

// The check for repeated contributions must not search all members.
TEST(TheTimeOfARoundIsLinearInItsMembers) {
  const auto takes = [](std::size_t members) {
    std::vector<NodeId> order(members);
    std::iota(order.begin(), order.end(), 0u);
    Aggregator sum(order, static_cast<std::uint32_t>(members));
    return check::LeastSeconds(7, [&] {
      for (const NodeId id : order) sum.Add(id, 1, {});
      sum.Take();
    });
  };
  const double ratio = takes(32'000) / takes(2'000);  // 16 times as many
  if (ratio > 80) check::Report(__FILE__, __LINE__, "16 times the members took " + check::Show(ratio));
}

TEST(PhantomSumsAreEmpty) {
  const NodeId order[] = {1, 2};
  Aggregator sum(order, 2);
  sum.Add(2, 1, {});
  sum.Add(1, 1, {});
  CHECK(sum.complete());
  CHECK(sum.Take().empty());
}

}  // namespace
}  // namespace geomx
