// Linear codecs: encoded values of several senders are added wherever contributions meet, and decode to
// the sum of the values. The codec of these tests belongs to no plugin.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/codec.h"
#include "tests/check.h"
#include "tests/cluster.h"
#include "tests/random_pairs.h"

namespace geomx {
namespace {

using check::Between;
using check::Cluster;
using check::Plan;
using check::Random;
using check::RandomPairs;

const float* Floats(const Part& part) { return reinterpret_cast<const float*>(part.data); }

// Encodes sums of four values, and decodes each of the four as a quarter. The groups of four change with
// the sum of the last round, so that a node without that sum decodes incorrectly.
class Quarters final : public Codec {
 public:
  explicit Quarters(std::uint64_t elements) : elements_(elements) {}

  void Layout(Parts& parts) const override {
    parts.rows = 0;
    parts.parts = {{.name = "sums", .bits = 32, .whole = true, .items = (elements_ + 3) / 4}};
  }
  void Encode(Parts& parts) override {
    const float* values = Floats(*parts.Find("values"));
    Layout(parts);
    const std::size_t bytes = parts.parts[0].BytesFor(0);
    auto* sums = reinterpret_cast<float*>(parts.Allocate(bytes));
    std::memset(sums, 0, bytes);
    for (std::uint64_t i = 0; i < elements_; ++i) sums[Place(i)] += values[i];
    parts.parts[0].data = reinterpret_cast<const std::byte*>(sums);
  }
  void Decode(Parts& parts) const override {
    const float* sums = Floats(*parts.Find("sums"));
    std::byte* data = parts.Allocate(elements_ * sizeof(float));
    for (std::uint64_t i = 0; i < elements_; ++i) {
      const float value = sums[Place(i)] / 4;
      std::memcpy(data + i * sizeof value, &value, sizeof value);
    }
    parts.parts = {{.name = "values", .bits = 32, .data = data}};
    parts.rows = elements_;
  }
  bool Linear() const override { return true; }
  void Settle(const Parts& sum) override {
    moved_ += static_cast<std::uint64_t>(std::abs(Floats(sum.parts[0])[0])) % 7 + 1;
  }

 private:
  std::uint64_t Place(std::uint64_t i) const { return (i + moved_) % elements_ / 4; }

  const std::uint64_t elements_;
  std::uint64_t moved_ = 0;
};

class QuartersFactory final : public SingleCodecFactory {
 public:
  std::unique_ptr<Codec> Make(const ShardInfo& shard) const override {
    return std::make_unique<Quarters>(shard.elements);
  }
};

LinkPlan Encoded() { return {.codecs = {std::make_shared<QuartersFactory>()}}; }

Plan Linear(Random& random, bool trees) {
  Plan plan;
  plan.parties.clear();
  for (std::uint64_t i = Between(random, 1, 5); i > 0; --i) {
    plan.parties.push_back(static_cast<std::uint32_t>(Between(random, 1, 3)));
  }
  plan.global_servers = static_cast<std::uint32_t>(Between(random, 1, 2));
  plan.wan_push = Encoded();
  if (Between(random, 0, 1) == 0) plan.lan_push = Encoded();
  if (Between(random, 0, 1) == 0) plan.frame_bytes = 16;
  if (trees) plan.coordinator = [] { return std::make_shared<RandomPairs>(); };
  plan.rounds.update_at_party = Between(random, 0, 1) == 0;
  return plan;
}

std::uint64_t WanPayload(const Cluster& cluster, Kind kind) {
  std::uint64_t bytes = 0;
  const auto among = [](const std::vector<NodeId>& ids, NodeId id) {
    return std::find(ids.begin(), ids.end(), id) != ids.end();
  };
  for (const auto& [link, traffic] : cluster.traffic()) {
    const auto& [from, to, its_kind] = link;
    if (its_kind != kind || among(cluster.workers, from) || among(cluster.workers, to)) continue;
    bytes += traffic.bytes - traffic.messages * kHeaderBytes;
  }
  return bytes;
}

constexpr std::uint32_t kLinearElements = 40;

std::vector<ShardInfo> TwoShards(const Cluster& cluster) {
  const auto last = static_cast<std::uint32_t>(cluster.globals.size() - 1);
  return {{.elements = 24}, {.index = 1, .offset = 24, .elements = 16, .server = last}};
}

// Returns the value after encoding and decoding the sum of a round, which is exact for integers.
std::vector<float> Through(CodecChain& chain, const std::vector<float>& total, Round round,
                           bool settle) {
  const auto elements = static_cast<std::uint32_t>(total.size());
  Parts parts = Parts::Dense(elements, total.data(), nullptr);
  parts.round = round;
  chain.Encode(parts);
  const Buffer encoded = CodecChain::Gather(parts);
  const Buffer values = chain.Decoded(encoded, elements, round);
  if (settle) chain.Settle(encoded, elements, round);
  return {values.begin(), values.end()};
}

TEST(LinearEncodingsAreAddedWithoutDecoding) {
  check::ForSeeds(40, [](std::uint64_t seed) {
    Random random(seed);
    const bool trees = Between(random, 0, 1) == 0;
    const Plan plan = Linear(random, trees);
    Cluster cluster(seed, plan);
    const std::vector<ShardInfo> shards = TwoShards(cluster);
    cluster.Declare(0, kLinearElements, shards);
    cluster.Init(0, cluster.RandomIntegers(kLinearElements));
    cluster.RequestAll(0);
    cluster.Drive();
    std::vector<CodecChain> chains;
    for (const ShardInfo& shard : shards) chains.emplace_back(Encoded().codecs, shard);
    constexpr Round kRounds = 4;
    for (Round round = 1; round <= kRounds; ++round) {
      std::vector<float> total(kLinearElements, 0.0f);
      for (const NodeId worker : cluster.workers) {
        const std::vector<float> value = cluster.RandomIntegers(kLinearElements);
        for (std::uint32_t i = 0; i < kLinearElements; ++i) total[i] += value[i];
        cluster.Push(worker, 0, value);
      }
      cluster.Drive();
      // Local servers decode their sums, so with codecs on the LAN, values are encoded twice.
      CodecChain before(plan.lan_push.codecs, shards[0]), after(plan.lan_push.codecs, shards[1]);
      std::vector<float> expected;
      for (std::size_t i = 0; i < shards.size(); ++i) {
        const auto first = total.begin() + shards[i].offset;
        std::vector<float> part(first, first + shards[i].elements);
        CodecChain& inside = i == 0 ? before : after;
        if (!inside.Dense()) part = Through(inside, part, round, false);
        part = Through(chains[i], part, round, plan.rounds.update_at_party);
        expected.insert(expected.end(), part.begin(), part.end());
      }
      for (const NodeId worker : cluster.workers) {
        CHECK(cluster.Value(worker, 0) == expected);
      }
    }
    for (const auto kind : {Event::Kind::kPeerError, Event::Kind::kDead}) {
      CHECK_EQ(cluster.Count(kind), 0u);
    }
    // Every party sends one encoding, merged or not; sums are returned encoded.
    const std::uint64_t encoded = kRounds * cluster.servers.size() * (6 + 4) * sizeof(float);
    const std::uint64_t dense = kRounds * cluster.servers.size() * kLinearElements * sizeof(float);
    CHECK_EQ(WanPayload(cluster, Kind::kPush), encoded);
    const std::uint64_t plain = cluster.servers.size() * kLinearElements * sizeof(float);  // initial values
    CHECK_EQ(WanPayload(cluster, Kind::kValue), (plan.rounds.update_at_party ? encoded : dense) + plain);
    cluster.ReplayAll();
  });
}

TEST(SimulatedSizesOfLinearCodecsEqualTheTraffic) {
  check::ForSeeds(10, [](std::uint64_t seed) {
    std::map<std::tuple<NodeId, NodeId, Kind>, check::Wire::Traffic> traffic[2];
    for (const bool phantom : {false, true}) {
      Random random(seed);
      Plan plan = Linear(random, seed % 2 == 0);
      plan.phantom = phantom;
      Cluster cluster(seed, plan);
      cluster.Declare(0, kLinearElements, TwoShards(cluster));
      cluster.Init(0, cluster.RandomIntegers(kLinearElements));
      cluster.RequestAll(0);
      cluster.Drive();
      for (int round = 0; round < 3; ++round) {
        for (const NodeId worker : cluster.workers) {
          cluster.Push(worker, 0, std::vector<float>(kLinearElements, 1.0f));
        }
        cluster.Drive();
      }
      traffic[phantom] = cluster.traffic();
    }
    CHECK(traffic[0] == traffic[1]);
  });
}

TEST(AChainIsLinearIfAllEffectiveCodecsAre) {
  class Plainly final : public Codec {
    void Layout(Parts&) const override {}
    void Encode(Parts&) override {}
    void Decode(Parts&) const override {}
  };
  class Factory final : public SingleCodecFactory {
    std::unique_ptr<Codec> Make(const ShardInfo&) const override {
      return std::make_unique<Plainly>();
    }
  };
  const auto linear = std::make_shared<QuartersFactory>();
  const auto other = std::make_shared<Factory>();
  const ShardInfo shard{.elements = 16};
  CHECK(CodecChain({linear}, shard).Linear());
  CHECK(!CodecChain({linear}, shard).SurvivesHoles());
  CHECK(CodecChain({linear, other}, shard).Linear());  // no values are left for the other
  CHECK(!CodecChain({other, linear}, shard).Linear());
  CHECK(!CodecChain({}, shard).Linear());
  const auto by_size = std::make_shared<BySizeFactory>(16, CodecChain::Factories{},
                                                       CodecChain::Factories{linear});
  CHECK(CodecChain({by_size}, shard).Linear());
  CHECK(!CodecChain({by_size}, {.elements = 15}).Linear());
}

TEST(InvalidBytesOfLinearCodecsAreRefused) {
  const CodecChain chain(Encoded().codecs, {.elements = 16});
  Buffer kept;
  const std::vector<std::byte> bytes(17);
  CHECK(chain.Keep({bytes.data(), 16}, 16, 0, 0, 0, kept, 1) == nullptr);
  CHECK_EQ(kept.size(), 4u);
  for (const std::size_t size : {0u, 15u, 17u}) {
    CHECK(chain.Keep({bytes.data(), size}, 16, 0, 0, 0, kept, 1) != nullptr);
  }
}

}  // namespace
}  // namespace geomx
