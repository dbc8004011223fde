// DeMo's codec: the largest cosine coefficients of every chunk are sent, everything that is not sent is
// kept, sizes follow the formula, and invalid bytes are refused.
#include <algorithm>
#include <cmath>

#include "core/natives.h"
#include "core/plugin_failure.h"
#include "kernels/cosines.h"
#include "tests/slices.h"

namespace geomx {
namespace {

using check::Between;
using check::Draw;
using check::Random;
using check::Send;
using check::Values;

Options Defaults() {
  return {{"side", 64}, {"kept", 32}, {"times", 1}, {"bits", 16}, {"decay", 1}, {"shared", 0}};
}

CodecChain Chain(const Options& options, std::uint64_t elements) {
  return check::ChainOf("demo", options, elements);
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
    if (chain.Layout(elements).Find("chunks") == nullptr) return;  // dense is not longer
    check::LosesNothing(chain, elements, options["decay"], 5, random);
  });
}

TEST(DemoSendsAllInTheLastRound) {
  Random random(1);
  Options options = Defaults();
  options["flush"] = 1;
  CodecChain chain = Chain(options, 5000);
  check::LastSendsAll(chain, 5000, 3, random);
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

TEST(DemoSendsNaN) {
  Random random(1);
  CodecChain chain = Chain(Defaults(), 8192);
  check::SendsNaN(chain, 8192, 5000, 0, random);
}

}  // namespace
}  // namespace geomx
