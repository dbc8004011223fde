// The 2-bit codec: MXNet's test vector, residuals, the adaptive scale, and slices.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <set>

#include "core/natives.h"
#include "tests/cluster.h"
#include "tests/seeds.h"
#include "tests/slices.h"

namespace geomx {
namespace {

using check::Between;
using check::Random;
using Values = std::vector<float>;

std::shared_ptr<const CodecFactory> TwoBit(double threshold) {
  return NativeCodecs::Instance().Create("twobit", {{"threshold", threshold}});
}

Parts Encode(CodecChain& chain, const Values& values) {
  Parts parts = Parts::Dense(values.size(), values.data(), nullptr);
  chain.Encode(parts);
  return parts;
}

// Decodes slices in a random order.
Values Decode(const CodecChain& chain, const Parts& parts, Random& random) {
  const Parts promised = chain.Layout(parts.elements);
  CHECK_EQ(parts.SliceBytes(0, parts.rows), promised.SliceBytes(0, promised.rows));
  const std::uint64_t step = 8 * Between(random, 1, 1 + parts.rows / 8);
  return check::DecodeSlices(chain, parts, step, Values(parts.elements, 0.0f), false, random);
}

TEST(TwoBitEqualsMxnets) {
  Random random(1);
  CodecChain chain({TwoBit(0.5)}, ShardInfo{});
  const Parts parts = Encode(chain, {0.6f, -0.7f, 0.2f, 0.5f, -0.5f, 0.0f});
  CHECK_EQ(parts.SliceBytes(0, 6), 2u);  // MXNet's e3 80 00 00 without the padding
  CHECK_EQ(std::to_integer<int>(parts.Find("codes")->data[0]), 0xe3);
  CHECK_EQ(std::to_integer<int>(parts.Find("codes")->data[1]), 0x80);
  CHECK((Decode(chain, parts, random) == Values{0.5f, -0.5f, 0, 0.5f, -0.5f, 0}));
  // With the residual 0.1, -0.2, 0.2, 0, 0, 0, these reach the threshold, or nearly.
  const Values next = Decode(chain, Encode(chain, {0.4f, -0.3f, 0.3f, 0.49f, -0.49f, 0}), random);
  CHECK((next == Values{0.5f, -0.5f, 0.5f, 0, 0, 0}));
}

TEST(TwoBitLosesNothing) {
  check::ForSeeds(20, [](std::uint64_t seed) {
    Random random(seed);
    const std::uint64_t elements = Between(random, 1, 5000);
    const bool fixed = check::Chance(random, 0.5);
    CodecChain chain({TwoBit(fixed ? 0.25 : 0)}, ShardInfo{});
    std::vector<double> left(elements, 0.0);
    for (int round = 0; round < 100; ++round) {
      Values gradient(elements, 0.0f);
      for (float& value : gradient) {
        if (round < 30) value = check::Uniform(random, -0.1f, 0.1f);
      }
      for (std::size_t i = 0; i < elements; ++i) left[i] += gradient[i];
      double magnitudes = 1e-30, squares = 0;
      for (const double value : left) {
        magnitudes += std::fabs(value);
        squares += value * value;
      }
      const Values sent = Decode(chain, Encode(chain, gradient), random);
      for (std::size_t i = 0; i < elements; ++i) {
        const double worth = fixed ? 0.25 : squares / magnitudes;
        CHECK(sent[i] == 0 || std::fabs(std::fabs(sent[i]) - worth) < 1e-5);
        CHECK(sent[i] == 0 || std::fabs(left[i]) < 1e-5 || (sent[i] > 0) == (left[i] > 0));
        left[i] -= sent[i];
      }
      const double kept = std::inner_product(left.begin(), left.end(), left.begin(), 0.0);
      CHECK_NEAR(chain.SquaredResidual(), kept, 1e-4 * (1 + kept));
    }
    // The residual is below a fixed threshold, and nearly 0 with an adaptive scale.
    for (const double value : left) CHECK(std::fabs(value) < (fixed ? 0.25001 : 0.02));
  });
}

// An infinity or NaN is not sent again in later rounds. With an adaptive scale, all values become NaN; with a
// threshold there is no code for it.
TEST(TwoBitDoesNotKeepWhatIsNotFinite) {
  Random random(1);
  for (const float bad : {std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
    for (const double threshold : {0.0, 0.5}) {
      CodecChain chain({TwoBit(threshold)}, ShardInfo{});
      Values fed(100, 0.25f);
      fed[20] = bad;
      const Values sent = check::Send(chain, fed, random);
      for (std::size_t i = 0; i < sent.size(); ++i) {
        if (threshold == 0) {
          CHECK(std::isnan(sent[i]));
        } else {
          CHECK_EQ(sent[i], i != 20 || std::isnan(bad) ? 0.0f : std::copysign(0.5f, bad));
        }
      }
      for (const float value : check::Send(chain, Values(100, 0.0f), random)) CHECK_EQ(value, 0.0f);
    }
  }
}

// A local server keeps a residual for each shard, and its report is the norm of all of them.
TEST(ANodeReportsTheNormOfItsResiduals) {
  check::Plan plan;
  plan.parties = {1, 2};
  plan.wan_push.codecs = {TwoBit(1)};
  check::Cluster cluster(1, plan);
  constexpr std::uint32_t kElements = 40;
  cluster.Declare(0, kElements, {{.elements = 24}, {.index = 1, .offset = 24, .elements = 16}});
  cluster.Init(0, Values(kElements, 0.0f));
  cluster.RequestAll(0);
  cluster.Drive();
  for (const double kept : {0.25, 0.5, 0.75, 0.0, 0.25}) {  // of the party of two: 1 is sent
    for (const NodeId worker : cluster.workers) cluster.Push(worker, 0, Values(kElements, 0.125f));
    cluster.Drive();
    const double norm = cluster.node(cluster.servers[1]).ResidualNorm(Direction::kPush);
    CHECK_NEAR(norm, kept * std::sqrt(static_cast<double>(kElements)), 1e-6);
  }
  const Node& other = cluster.node(cluster.servers[0]);
  CHECK_NEAR(other.ResidualNorm(Direction::kPush), 0.625 * std::sqrt(40.0), 1e-6);
  CHECK_EQ(other.ResidualNorm(Direction::kPull), 0.0);
  for (const NodeId id : {cluster.workers[0], cluster.globals[0]}) {
    CHECK_EQ(cluster.node(id).ResidualNorm(Direction::kPush), 0.0);
  }
}

TEST(TwoBitSizesFollowTheFormula) {
  for (const std::uint64_t elements : {1u, 4u, 5u, 1000u, 131072u}) {
    const Parts fixed = CodecChain({TwoBit(0.5)}, ShardInfo{}).Layout(elements);
    const Parts follows = CodecChain({TwoBit(0)}, ShardInfo{}).Layout(elements);
    CHECK_EQ(fixed.SliceBytes(0, elements), (elements + 3) / 4);
    CHECK_EQ(follows.SliceBytes(0, elements), (elements + 3) / 4 + 4);
    CHECK_EQ(follows.SliceBytes(8, 8), 2u + 4);  // the scale is in every slice
  }
}

// With rows that another codec has selected, residuals belong to elements and not to rows.
TEST(TwoBitAfterASelection) {
  const auto names = NativeCodecs::Instance().Names();
  if (std::find(names.begin(), names.end(), "bisparse") == names.end()) return;
  const auto sparse = NativeCodecs::Instance().Create(
      "bisparse", {{"ratio", 0.05}, {"momentum", 0}, {"masking", 1},
                   {"clip", 0},     {"exact", 1},    {"warmup_rounds", 0}, {"flush", 0}});
  check::ForSeeds(10, [&](std::uint64_t seed) {
    Random random(seed);
    const std::uint64_t elements = Between(random, 200, 3000);
    CodecChain alone({sparse}, ShardInfo{});
    CodecChain both({TwoBit(0), sparse}, ShardInfo{});  // the selection is first in any order
    std::vector<double> owed(elements, 0.0);
    for (int round = 0; round < 30; ++round) {
      Values gradient(elements);
      for (float& value : gradient) value = check::Uniform(random, -1, 1);
      const Values chosen = Decode(alone, Encode(alone, gradient), random);
      const Parts parts = Encode(both, gradient);
      CHECK_EQ(parts.Find("codes")->bits, 2u);
      const Values sent = Decode(both, parts, random);
      std::set<float> levels;
      for (std::size_t i = 0; i < elements; ++i) {
        CHECK(sent[i] == 0 || chosen[i] != 0);
        if (sent[i] != 0) levels.insert(std::fabs(sent[i]));
        owed[i] += chosen[i];
        owed[i] -= sent[i];
      }
      CHECK(levels.size() <= 1);
    }
    double total = 0;
    for (const double value : owed) total += std::fabs(value) / static_cast<double>(elements);
    CHECK(total < 5);  // the residual is bounded
  });
}

TEST(TwoBitDecodesAnything) {
  const CodecChain chain({TwoBit(0.5)}, ShardInfo{});
  check::ForSeeds(50, [&](std::uint64_t seed) {
    Random random(seed);
    const std::uint64_t elements = Between(random, 1, 100);
    std::vector<std::byte> bytes((elements + 3) / 4);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    Values out(elements, 0.0f);
    CHECK(chain.DecodeInto(bytes, elements, 0, elements, elements, true, out.data()) == nullptr);
    for (const float value : out) CHECK(value == 0 || std::fabs(value) == 0.5f);
    bytes.pop_back();
    CHECK(chain.DecodeInto(bytes, elements, 0, elements, elements, true, out.data()) != nullptr);
  });
}

}  // namespace
}  // namespace geomx
