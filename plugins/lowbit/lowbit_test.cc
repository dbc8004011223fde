// The codecs of 8 and 4 bits: errors are bounded and added to the next value, sizes follow the formula,
// slices decode alone, and selected rows have the errors of their elements.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/natives.h"
#include "tests/slices.h"

namespace geomx {
namespace {

using check::Between;
using check::Draw;
using check::Random;
using check::Send;
using check::Values;

std::shared_ptr<const CodecFactory> LowBit(unsigned bits, std::uint64_t chunk) {
  return NativeCodecs::Instance().Create(
      "lowbit",
      {{"bits", static_cast<double>(bits)}, {"chunk", static_cast<double>(chunk)}, {"shared", 0}});
}

// A value is off by at most half a scale, which the next value makes good.
TEST(LowBitLoseNothing) {
  check::ForSeeds(30, [](std::uint64_t seed) {
    Random random(seed);
    const std::uint64_t elements = Between(random, 1, 5000), chunk = 16u << Between(random, 0, 8);
    const unsigned bits = check::Chance(random, 0.5) ? 8 : 4;
    CodecChain chain({LowBit(bits, chunk)}, ShardInfo{});
    std::vector<double> due(elements, 0.0);
    for (int round = 0; round < 20; ++round) {
      const Values fed = Draw(random, elements);
      for (std::size_t i = 0; i < elements; ++i) due[i] += fed[i];
      const Values sent = Send(chain, fed, random);
      for (std::size_t first = 0; first < elements; first += chunk) {
        double largest = 0;
        const std::size_t end = std::min(elements, first + chunk);
        for (std::size_t i = first; i < end; ++i) largest = std::max(largest, std::fabs(due[i]));
        const double most = 0.5 * largest / (bits == 8 ? 127 : 7);
        for (std::size_t i = first; i < end; ++i) {
          due[i] -= sent[i];
          CHECK(std::fabs(due[i]) < 1.0001 * most + 1e-6);
        }
      }
      const double squares = std::inner_product(due.begin(), due.end(), due.begin(), 0.0);
      CHECK_NEAR(chain.SquaredResidual(), squares, 1e-4 * (1e-3 + squares));
    }
  });
}

TEST(LowBitHaveASizePerChunk) {
  for (const std::uint64_t elements : {1u, 15u, 256u, 257u, 100'001u}) {
    const std::uint64_t scales = (elements + 255) / 256 * 4;
    const Parts eight = CodecChain({LowBit(8, 256)}, ShardInfo{}).Layout(elements);
    const Parts four = CodecChain({LowBit(4, 256)}, ShardInfo{}).Layout(elements);
    CHECK_EQ(eight.SliceBytes(0, elements), elements + scales);
    CHECK_EQ(four.SliceBytes(0, elements), (elements + 1) / 2 + scales);
    CHECK_EQ(four.SliceBytes(256, 256), 128u + 4);
  }
}

// With rows that another codec has selected, errors belong to elements and not to rows.
TEST(LowBitAfterASelection) {
  const auto names = NativeCodecs::Instance().Names();
  if (std::find(names.begin(), names.end(), "bisparse") == names.end()) return;
  const auto sparse = NativeCodecs::Instance().Create(
      "bisparse", {{"ratio", 0.1}, {"momentum", 0}, {"masking", 1},
                   {"clip", 0},    {"exact", 1},    {"warmup_rounds", 0}, {"flush", 0}});
  check::ForSeeds(10, [&](std::uint64_t seed) {
    Random random(seed);
    const std::uint64_t elements = Between(random, 200, 3000);
    CodecChain alone({sparse}, ShardInfo{}), both({LowBit(4, 16), sparse}, ShardInfo{});
    std::vector<double> owed(elements, 0.0);
    for (int round = 0; round < 20; ++round) {
      const Values gradient = Draw(random, elements);
      const Values chosen = Send(alone, gradient, random);
      const Values sent = Send(both, gradient, random);
      for (std::size_t i = 0; i < elements; ++i) {
        CHECK(sent[i] == 0 || chosen[i] != 0);
        owed[i] += double{chosen[i]} - sent[i];
        CHECK(std::fabs(owed[i]) < 3);  // half a scale of sums of up to some tens of gradients
      }
    }
  });
}

// NaN and infinities are sent, so that they are detected, and do not stay.
TEST(LowBitSendWhatIsNotFinite) {
  Random random(1);
  for (const unsigned bits : {8u, 4u}) {
    for (const float bad : {std::nanf(""), HUGE_VALF}) {
      CodecChain chain({LowBit(bits, 16)}, ShardInfo{});
      Values fed = Draw(random, 64);
      fed[20] = bad;
      const Values sent = Send(chain, fed, random);
      for (std::size_t i = 0; i < 64; ++i) CHECK_EQ(std::isfinite(sent[i]), i < 16 || i >= 32);
      const Values next = Send(chain, Draw(random, 64), random);
      CHECK(std::all_of(next.begin(), next.end(), [](float value) { return std::isfinite(value); }));
    }
  }
}

}  // namespace
}  // namespace geomx
