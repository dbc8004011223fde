// DeMo's codec: the largest cosine coefficients of every chunk are sent, everything that is not sent is
// kept, sizes follow the formula, and invalid bytes are refused.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "core/natives.h"
#include "core/plugin_failure.h"
#include "kernels/cosines.h"
#include "tests/seeds.h"
#include "tests/slices.h"

namespace geomx {
namespace {

using check::Between;
using check::Random;
using Values = std::vector<float>;

Options Defaults() {
  return {{"side", 64}, {"kept", 32}, {"times", 1}, {"bits", 16}, {"decay", 1}, {"shared", 0}};
}

CodecChain Chain(const Options& options, std::uint64_t elements) {
  return CodecChain({NativeCodecs::Instance().Create("demo", options)},
                    ShardInfo{.elements = static_cast<std::uint32_t>(elements)});
}

Values Draw(Random& random, std::uint64_t elements) {
  Values values(elements);
  for (float& value : values) value = check::Uniform(random, -1, 1);
  return values;
}

// Encodes, and decodes in slices of whole chunks in a random order.
Values Send(CodecChain& chain, const Values& values, Random& random) {
  Parts parts = Parts::Dense(values.size(), values.data(), nullptr);
  chain.Encode(parts);
  CHECK_EQ(parts.SliceBytes(0, parts.rows),
           chain.Layout(values.size()).SliceBytes(0, parts.rows));
  const std::uint64_t step = parts.Granule() * Between(random, 1, 3);
  return check::DecodeSlices(chain, parts, step, Values(values.size(), 7.0f), true, random);
}

// What was sent and what is kept add up to what was fed, in every round and with any options.
TEST(DemoLosesNothing) {
  check::ForSeeds(20, [](std::uint64_t seed) {
    Random random(seed);
    const std::uint64_t elements = Between(random, 40, 9000);
    Options options = Defaults();
    const std::uint64_t side = std::uint64_t{1} << Between(random, 3, 6);
    options["side"] = static_cast<double>(side);
    options["kept"] = static_cast<double>(Between(random, 1, side * side / 4));
    options["times"] = static_cast<double>(Between(random, 1, 2));
    options["bits"] = check::Chance(random, 0.5) ? 16 : 32;
    options["decay"] = check::Chance(random, 0.5) ? 1 : 0.75;
    CodecChain chain = Chain(options, elements);
    if (chain.Layout(elements).Find("coefficients") == nullptr) return;  // dense is not longer
    std::vector<double> due(elements, 0.0);
    for (int round = 0; round < 5; ++round) {
      const Values fed = Draw(random, elements);
      const Values sent = Send(chain, fed, random);
      const std::span<const float> kept = chain.Kept();
      for (std::size_t i = 0; i < elements; ++i) {
        due[i] = options["decay"] * due[i] + fed[i] - sent[i];
        CHECK_NEAR(kept[i], due[i], 1e-5);
      }
      const double squares = std::inner_product(due.begin(), due.end(), due.begin(), 0.0);
      CHECK_NEAR(chain.SquaredResidual(), squares, 1e-4 * (1 + squares));
    }
  });
}

TEST(DemoSendsTheLargestCoefficients) {
  check::ForSeeds(5, [](std::uint64_t seed) {
    constexpr kernels::Tile kTile{.height = 64, .width = 64};
    Random random(seed);
    Options options = Defaults();
    if (seed % 2 != 0) options["bits"] = 32;
    CodecChain chain = Chain(options, 2 * kTile.size());
    Values fed = Draw(random, 2 * kTile.size()), sent = Send(chain, fed, random);
    for (std::size_t first = 0; first < fed.size(); first += kTile.size()) {
      kernels::CosineTransform(kTile, fed.data() + first);
      kernels::CosineTransform(kTile, sent.data() + first);
      float least = HUGE_VALF, most = 0;
      int count = 0;
      for (std::size_t i = first; i < first + kTile.size(); ++i) {
        const bool chosen = std::fabs(sent[i]) > 1e-3f;
        count += chosen;
        if (chosen) {
          least = std::min(least, std::fabs(fed[i]));
          CHECK_NEAR(sent[i], fed[i], std::fabs(fed[i]) / 256 + 1e-5);
        } else {
          most = std::max(most, std::fabs(fed[i]));
        }
      }
      CHECK_EQ(count, 32);
      CHECK(least >= most);
    }
  });
}

// An answer: the sum of several pushes has as many coefficients as all of them, and arrives whole.
TEST(DemoAnswersWithAllThatPushesContain) {
  Random random(1);
  Options options = Defaults();
  options["bits"] = 32;
  Values sum(8192, 0.0f);
  for (int party = 0; party < 3; ++party) {
    CodecChain chain = Chain(options, sum.size());
    const Values sent = Send(chain, Draw(random, sum.size()), random);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += sent[i];
  }
  options["times"] = 3;
  CodecChain answers = Chain(options, sum.size());
  const Values received = Send(answers, sum, random);
  for (std::size_t i = 0; i < sum.size(); ++i) CHECK_NEAR(received[i], sum[i], 1e-5);
}

TEST(DemoSizesFollowTheFormula) {
  const auto bytes = [](const Options& options, std::uint64_t elements) {
    return Chain(options, elements).Layout(elements).SliceBytes(0, elements);
  };
  // 32 coefficients of 16 bits and 32 places of 12: 0.21875 bits a value.
  CHECK_EQ(bytes(Defaults(), 4096), 112u);
  CHECK_EQ(bytes(Defaults(), 1'000 * 4096), 112'000u);
  // Two chunks of 2,504 (a multiple of eight), and 19 coefficients of each.
  CHECK_EQ(bytes(Defaults(), 5'000), 2 * (2 * 19 + (12 * 19 + 7) / 8));
  Options more = Defaults();
  more["times"] = 2;
  CHECK_EQ(bytes(more, 4096), 128 + 96u);
  more["bits"] = 32;
  CHECK_EQ(bytes(more, 4096), 256 + 96u);
  CHECK_EQ(bytes(Defaults(), 1), 3u);
  Options all = Defaults();
  all["kept"] = 4096;
  all["bits"] = 32;
  CHECK_EQ(bytes(all, 9000), 36'000u);  // dense is shorter
}

TEST(DemoRefusesPlacesThatDoNotAscend) {
  const CodecChain chain = Chain(Defaults(), 4096);
  std::vector<std::byte> bytes(chain.Layout(4096).SliceBytes(0, 4096));
  Values out(4096, 0.0f);
  std::string reason;
  try {
    chain.DecodeInto(bytes, 4096, 0, 4096, 4096, true, out.data());
  } catch (const Refusal& refusal) {
    reason = refusal.what();
  }
  CHECK_EQ(reason, "demo: places are not ascending");
}

// NaN is sent, so that it is detected as without compression, and does not stay.
TEST(DemoSendsNaN) {
  Random random(1);
  CodecChain chain = Chain(Defaults(), 8192);
  Values fed = Draw(random, 8192);
  fed[5000] = std::nanf("");
  const Values sent = Send(chain, fed, random);
  CHECK(std::isnan(sent[5000]));
  CHECK(std::isfinite(sent[0]));  // another chunk
  const Values next = Send(chain, Draw(random, 8192), random);
  CHECK(std::all_of(next.begin(), next.end(), [](float value) { return std::isfinite(value); }));
}

}  // namespace
}  // namespace geomx
