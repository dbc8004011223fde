// SparseLoCo's codec: the largest values of every chunk are sent, everything that is not sent is kept,
// sizes follow the formula, and invalid bytes are refused.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/natives.h"
#include "core/plugin_failure.h"
#include "tests/cluster.h"
#include "tests/random_pairs.h"
#include "tests/slices.h"

namespace geomx {
namespace {

using check::Between;
using check::Draw;
using check::Random;
using check::Send;
using check::Values;

Options Defaults() {
  return {{"chunk", 4096}, {"kept", 64}, {"times", 1}, {"bits", 2}, {"decay", 1}, {"shared", 0}};
}

CodecChain Chain(const Options& options, std::uint64_t elements) {
  return check::ChainOf("sparseloco", options, elements);
}

// What was sent and what is kept add up to what was fed, in every round and with any options.
TEST(SparseLocoLosesNothing) {
  check::ForSeeds(30, [](std::uint64_t seed) {
    Random random(seed);
    const std::uint64_t elements = Between(random, 40, 9000);
    Options options = Defaults();
    options["chunk"] = static_cast<double>(Between(random, 64, 4096));
    options["kept"] = static_cast<double>(Between(random, 1, 64));
    options["times"] = static_cast<double>(Between(random, 1, 3));
    options["bits"] = check::Chance(random, 0.5) ? 2 : 32;
    options["decay"] = check::Chance(random, 0.7) ? 1 : 0.5;
    CodecChain chain = Chain(options, elements);
    if (chain.Layout(elements).Find("chunks") == nullptr) return;  // dense is not longer
    check::LosesNothing(chain, elements, options["decay"], 8, random);
  });
}

TEST(SparseLocoSendsAllInTheLastRound) {
  Random random(1);
  Options options = Defaults();
  options["flush"] = 1;
  CodecChain chain = Chain(options, 5000);
  check::LastSendsAll(chain, 5000, 3, random);
}

// The values that are sent are the largest of their chunk. Each is one of two magnitudes, with its
// sign; these are the means of the smaller and of the larger ones, to the precision of bfloat16.
TEST(SparseLocoSendsTheLargestOfEveryChunk) {
  check::ForSeeds(20, [](std::uint64_t seed) {
    Random random(seed);
    const std::uint64_t elements = 4096 * Between(random, 1, 3);
    CodecChain chain = Chain(Defaults(), elements);
    const Values fed = Draw(random, elements), sent = Send(chain, fed, random);
    for (std::size_t first = 0; first < elements; first += 4096) {
      std::vector<float> magnitudes;
      float least = HUGE_VALF, most = 0;
      for (std::size_t i = first; i < first + 4096; ++i) {
        const float magnitude = std::fabs(fed[i]);
        if (sent[i] == 0) {
          most = std::max(most, magnitude);
        } else {
          least = std::min(least, magnitude);
          magnitudes.push_back(magnitude);
          CHECK_EQ(std::signbit(sent[i]), std::signbit(fed[i]));
        }
      }
      CHECK_EQ(magnitudes.size(), 64u);
      CHECK(least >= most);
      const double mean = std::accumulate(magnitudes.begin(), magnitudes.end(), 0.0) / 64;
      double sums[2] = {0, 0}, counts[2] = {0, 0};
      for (const float magnitude : magnitudes) {
        sums[magnitude >= mean] += magnitude;
        counts[magnitude >= mean] += 1;
      }
      for (std::size_t i = first; i < first + 4096; ++i) {
        if (sent[i] == 0) continue;
        const bool large = std::fabs(fed[i]) >= mean;
        const double expected = sums[large] / counts[large];
        CHECK_NEAR(std::fabs(sent[i]), expected, expected / 256);
      }
    }
  });
}

TEST(SparseLocoWithEverythingKeptIsDense) {
  check::ForSeeds(10, [](std::uint64_t seed) {
    Random random(seed);
    Options options = Defaults();
    options["kept"] = 4096;
    options["bits"] = 32;
    const std::uint64_t elements = Between(random, 1, 9000);
    CodecChain chain = Chain(options, elements);
    CHECK_EQ(chain.Layout(elements).SliceBytes(0, elements), 4 * elements);
    for (int round = 0; round < 3; ++round) {
      const Values fed = Draw(random, elements);
      CHECK(Send(chain, fed, random) == fed);
    }
  });
}

TEST(SparseLocoSizesFollowTheFormula) {
  const auto bytes = [](const Options& options, std::uint64_t elements) {
    return Chain(options, elements).Layout(elements).SliceBytes(0, elements);
  };
  // 64 places of 12 bits, 64 values of 2 and two magnitudes of 16: 0.2266 bits a value.
  CHECK_EQ(bytes(Defaults(), 4096), 116u);
  CHECK_EQ(bytes(Defaults(), 1'000 * 4096), 116'000u);
  CHECK(8.0 * static_cast<double>(bytes(Defaults(), 50'000)) / 50'000 < 0.23);
  // Two chunks of 2,504 (a multiple of eight), and 39 values of each.
  CHECK_EQ(bytes(Defaults(), 5'000), 2 * (4 + (2 * 39 + 7) / 8 + (12 * 39 + 7) / 8));
  Options twice = Defaults();
  twice["times"] = 2;
  CHECK_EQ(bytes(twice, 4096), 4 + 32 + 192u);
  Options full = Defaults();
  full["bits"] = 32;
  CHECK_EQ(bytes(full, 4096), 256 + 96u);
  CHECK_EQ(bytes(Defaults(), 1), 4u);  // dense is shorter
}

TEST(SparseLocoRefusesPlacesBeyondAChunk) {
  constexpr std::uint64_t kElements = 3000;  // twelve bits can also represent 3,000 to 4,095
  const CodecChain chain = Chain(Defaults(), kElements);
  check::ForSeeds(100, [&](std::uint64_t seed) {
    Random random(seed);
    std::vector<std::byte> bytes(chain.Layout(kElements).SliceBytes(0, kElements));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    Values out(kElements, 0.0f);
    std::string reason;
    try {
      chain.DecodeInto(bytes, kElements, 0, kElements, kElements, true, out.data());
    } catch (const Refusal& refusal) {
      reason = refusal.what();
    }
    CHECK_EQ(reason, "sparseloco: a place beyond its chunk");  // some of 46 random places are
  });
}

TEST(SparseLocoSendsNaN) {
  Random random(1);
  CodecChain chain = Chain(Defaults(), 8192);
  check::SendsNaN(chain, 8192, 5000, 0, random);
}

// Of a chunk with an infinity or NaN, the others that are chosen arrive as without it.
TEST(SparseLocoSendsFiniteValuesBesideOthers) {
  for (const float odd : {HUGE_VALF, -HUGE_VALF, std::nanf("")}) {
    Random random(1);
    CodecChain chain = Chain(Defaults(), 4096);
    Values fed(4096, 0.0f);
    for (std::size_t i = 0; i < 63; ++i) fed[64 * i] = i % 2 == 0 ? 1.0f : -1.0f;
    fed[4095] = odd;
    const Values sent = Send(chain, fed, random);
    CHECK(std::isnan(odd) ? std::isnan(sent[4095]) : sent[4095] == odd);
    CHECK(std::equal(fed.begin(), fed.begin() + 4095, sent.begin()));
    CHECK_EQ(chain.SquaredResidual(), 0.0);
  }
}

// What a member of an overlay relays leaves with its own value: it is neither kept nor decayed, also where a
// shard stays dense. Each value has fewer entries than are sent, so nothing is left of any.
TEST(SparseLocoSendsWhatItRelaysLikeItsOwn) {
  check::ForSeeds(6, [](std::uint64_t seed) {
    Options options = Defaults();
    options["bits"] = 32;
    options["decay"] = 0.5;
    for (const double kept : {64, 4096}) {  // with all of 4,096, no shard is encoded
      options["kept"] = kept;
      check::Plan plan;
      plan.parties = {1, 1, 1, 1};
      plan.coordinator = [] { return std::make_shared<check::RandomPairs>(); };
      plan.wan_push.codecs = {NativeCodecs::Instance().Create("sparseloco", options)};
      check::Cluster cluster(seed, plan);
      const std::vector<std::uint32_t> sizes = {1, 4096};
      for (Key key = 0; key < sizes.size(); ++key) {
        cluster.Declare(key, sizes[key], {{.elements = sizes[key]}});
        cluster.Init(key, Values(sizes[key], 0.0f));
        cluster.RequestAll(key);
      }
      cluster.Drive();
      for (int round = 0; round < 3; ++round) {
        for (Key key = 0; key < sizes.size(); ++key) {
          Values sum(sizes[key], 0.0f);
          for (const NodeId worker : cluster.workers) {
            Values value = cluster.RandomIntegers(sizes[key]);
            for (std::size_t i = 0; i < value.size(); ++i) {
              if (i % 128 != 0) value[i] = 0;
              sum[i] += value[i];
            }
            cluster.Push(worker, key, value);
          }
          cluster.Drive();
          for (const NodeId worker : cluster.workers) CHECK(cluster.Value(worker, key) == sum);
        }
      }
      CheckNoErrors(cluster);
    }
  });
}

}  // namespace
}  // namespace geomx
