// The half-precision codec: all values of binary16, and rounding.
#include <bit>
#include <cmath>
#include <cstring>

#include "core/natives.h"
#include "tests/cluster.h"

namespace geomx {
namespace {

using check::Between;
using check::Random;

std::shared_ptr<const CodecFactory> Fp16() { return NativeCodecs::Instance().Create("fp16", {}); }

CodecChain Chain() { return CodecChain({Fp16()}, ShardInfo{}); }

// Encodes `values`. Single values use the portable path; eight or more use vector instructions if
// available.
std::vector<std::uint16_t> Narrow(const std::vector<float>& values) {
  CodecChain chain = Chain();
  Parts parts = Parts::Dense(values.size(), values.data(), nullptr);
  chain.Encode(parts);
  CHECK_EQ(parts.Find("values")->bits, 16u);
  std::vector<std::uint16_t> halves(values.size());
  std::memcpy(halves.data(), parts.Find("values")->data, 2 * halves.size());
  return halves;
}

std::vector<float> Widen(const std::vector<std::uint16_t>& halves, std::size_t shift = 0) {
  std::vector<std::byte> bytes(2 * halves.size() + shift);
  std::memcpy(bytes.data() + shift, halves.data(), 2 * halves.size());
  std::vector<float> values(halves.size(), -1.0f);
  const std::uint64_t n = halves.size();
  const Bytes payload = Bytes(bytes).subspan(shift);
  CHECK(Chain().DecodeInto(payload, n, 0, n, n, true, values.data()) == nullptr);
  return values;
}

// Returns the value of a half by its definition.
double Worth(std::uint16_t half) {
  const int exponent = (half >> 10) & 31;
  const int mantissa = half & 1023;
  const double sign = (half & 0x8000) != 0 ? -1 : 1;
  if (exponent == 31) return mantissa == 0 ? sign * HUGE_VAL : std::nan("");
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

// Rounds to nearest even by the FPU, scaled so that the last bit of the half is 1.
double Rounded(float value) {
  if (!std::isfinite(value)) return value;
  int exponent = 0;
  std::frexp(value, &exponent);
  const int last_bit = std::max(exponent - 11, -24);
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(double{value}, -last_bit)), last_bit);
  return std::fabs(rounded) > 65504 ? std::copysign(HUGE_VAL, value) : rounded;
}

bool Same(double left, double right) {
  if (std::isnan(left) || std::isnan(right)) return std::isnan(left) && std::isnan(right);
  return left == right && std::signbit(left) == std::signbit(right);
}

std::vector<std::uint16_t> AllHalves() {
  std::vector<std::uint16_t> all(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  return all;
}

TEST(Fp16DecodesEveryHalf) {
  const auto all = AllHalves();
  for (const std::size_t shift : {0u, 1u}) {  // aligned and not
    const auto wide = Widen(all, shift);
    for (std::size_t i = 0; i < all.size(); ++i) CHECK(Same(wide[i], Worth(all[i])));
  }
  const auto again = Narrow(Widen(all));
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!std::isnan(Worth(all[i]))) CHECK_EQ(again[i], all[i]);
    if (std::isnan(Worth(all[i]))) CHECK(std::isnan(Worth(again[i])));
  }
}

TEST(Fp16RoundsToNearestEven) {
  // Every half, the midpoint to its neighbour, and the float32 values next to both.
  std::vector<float> values = {0.0f, -0.0f, 65504.0f, 65519.99f, 65520.0f, 1e38f, -1e38f, HUGE_VALF,
                               -HUGE_VALF, 0x1p-24f, 0x1p-25f, 0x1.000002p-25f, 0x1p-149f};
  for (std::uint32_t i = 0; i < 0x7c00; ++i) {
    const auto low = static_cast<float>(Worth(static_cast<std::uint16_t>(i)));
    const auto next = static_cast<std::uint16_t>(i + 1);
    const auto high = next == 0x7c00 ? 65536.0f : static_cast<float>(Worth(next));
    const float middle = low + (high - low) / 2;
    for (const float x : {low, middle}) {
      for (const float y : {x, std::nextafter(x, HUGE_VALF), std::nextafter(x, -HUGE_VALF)}) {
        values.push_back(y);
        values.push_back(-y);
      }
    }
  }
  const auto halves = Narrow(values);
  for (std::size_t i = 0; i < values.size(); ++i) CHECK(Same(Worth(halves[i]), Rounded(values[i])));
}

TEST(Fp16PathsAgree) {
  check::ForSeeds(4, [](std::uint64_t seed) {
    Random random(seed);
    std::vector<float> values(4000);
    for (float& x : values) x = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    const auto together = Narrow(values);
    for (std::size_t i = 0; i < values.size(); ++i) CHECK_EQ(Narrow({values[i]})[0], together[i]);
  });
  const auto all = AllHalves();
  const auto together = Widen(all);
  for (std::size_t i = 0; i < all.size(); i += 7) {
    const float alone = Widen({all[i]})[0];
    CHECK_EQ(std::bit_cast<std::uint32_t>(alone), std::bit_cast<std::uint32_t>(together[i]));
  }
}

TEST(Fp16HalvesTheBytes) {
  check::Plan plan;
  check::Cluster dense(1, plan);
  for (LinkPlan* link : {&plan.lan_push, &plan.lan_pull, &plan.wan_push, &plan.wan_pull}) {
    link->codecs = {Fp16()};
  }
  plan.frame_bytes = 1000;
  check::Cluster half(1, plan);
  for (check::Cluster* cluster : {&dense, &half}) {
    cluster->Declare(0, 999, {{.elements = 999}});
    // A party's sum, 2049, is not a half, and is sent as 2048.
    const float values[] = {2048, 1, 2048, 1};
    for (std::size_t i = 0; i < 4; ++i) {
      cluster->Push(cluster->workers[i], 0, std::vector<float>(999, values[i]));
    }
    cluster->Drive();
    CHECK_EQ(cluster->Count(Event::Kind::kPeerError), 0u);
  }
  CHECK(half.Value(half.workers[0], 0) == std::vector<float>(999, 4096.0f));
  CHECK(dense.Value(dense.workers[0], 0) == std::vector<float>(999, 4098.0f));
  for (const auto& [link, traffic] : half.traffic()) {
    const auto& whole = dense.traffic().at(link);
    CHECK_EQ(2 * (traffic.bytes - kHeaderBytes * traffic.messages),
             whole.bytes - kHeaderBytes * whole.messages);
  }
}

// 2049 is not a half: a sum in half precision would remain 2048.
TEST(Fp16SumsInFloat32) {
  check::Plan plan;
  plan.parties = {4};
  plan.lan_push.codecs = {Fp16()};
  check::Cluster cluster(1, plan);
  cluster.Declare(0, 20, {{.elements = 20}});
  for (std::size_t i = 0; i < 4; ++i) {
    cluster.Push(cluster.workers[i], 0, std::vector<float>(20, i == 0 ? 2048.0f : 1.0f));
  }
  cluster.Drive();
  CHECK(cluster.Value(cluster.workers[0], 0) == std::vector<float>(20, 2051.0f));
}

TEST(Fp16DoesNotChangeOtherParts) {
  Parts parts = Parts::Dense(10, nullptr, nullptr);
  parts.parts.push_back({.name = "indices", .bits = 32});
  Codecs codecs;
  Fp16()->AddTo(codecs, ShardInfo{});
  const Codec& codec = *codecs.front();
  codec.Layout(parts);
  CHECK_EQ(parts.Find("values")->bits, 16u);
  CHECK_EQ(parts.Find("indices")->bits, 32u);
  codec.Layout(parts);  // idempotent
  CHECK_EQ(parts.SliceBytes(0, 10), 60u);
}

}  // namespace
}  // namespace geomx
