// DGT's slicer: number, selection and order of reliable blocks, and the channels of the others.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "core/natives.h"
#include "tests/cluster.h"

namespace geomx {
namespace {

using check::Between;
using check::Random;

constexpr std::uint32_t kRows = 16;  // rows of a block in these tests

Options Defaults() {
  return {{"k", 0.8},     {"k_min", 0.2},       {"adaptive", 0},
          {"alpha", 0.3}, {"block_bytes", 64.0}, {"channels", 3}};
}

std::unique_ptr<Slicer> Make(Options options) {
  return NativeSlicers::Instance().Create("dgt", options)->Make(ShardInfo{});
}

std::vector<Slice> Cut(Slicer& slicer, const Parts& parts, double loss_ratio = std::nan("")) {
  static const ShardInfo shard{.key = 1, .elements = 1};
  std::vector<Slice> slices = {{.rows = static_cast<std::uint32_t>(parts.rows), .priority = 7}};
  slicer.Cut({shard, 1, parts, true, loss_ratio}, slices);
  return slices;
}

// Returns a shard whose block i has mean magnitude magnitudes[i].
std::vector<float> Blocks(const std::vector<float>& magnitudes) {
  std::vector<float> values;
  for (const float magnitude : magnitudes) {
    for (std::uint32_t row = 0; row < kRows; ++row) {
      values.push_back(row % 2 == 0 ? magnitude : -magnitude);
    }
  }
  return values;
}

std::vector<Slice> Cut(Slicer& slicer, const std::vector<float>& values,
                       double loss_ratio = std::nan("")) {
  return Cut(slicer, Parts::Dense(values.size(), values.data(), nullptr), loss_ratio);
}

std::vector<std::uint32_t> PerChannel(const std::vector<Slice>& slices) {
  std::vector<std::uint32_t> counts;
  for (const Slice& slice : slices) {
    counts.resize(std::max<std::size_t>(counts.size(), slice.channel + 1u));
    ++counts[slice.channel];
  }
  return counts;
}

std::vector<std::uint32_t> Order(const std::vector<Slice>& slices) {
  std::vector<std::uint32_t> order;
  for (const Slice& slice : slices) order.push_back(slice.first_row / kRows);
  return order;
}

std::vector<float> Descending(std::size_t blocks) {
  std::vector<float> magnitudes(blocks);
  for (std::size_t i = 0; i < blocks; ++i) magnitudes[i] = static_cast<float>(blocks - i);
  return magnitudes;
}

TEST(DgtShareOfReliableBlocks) {
  const auto counts = [](std::size_t blocks, double k, double channels) {
    Options options = Defaults();
    options["k"] = k;
    options["channels"] = channels;
    return PerChannel(Cut(*Make(options), Blocks(Descending(blocks))));
  };
  using Counts = std::vector<std::uint32_t>;
  CHECK((counts(10, 0.8, 3) == Counts{8, 1, 1}));
  CHECK((counts(128, 0.8, 3) == Counts{102, 9, 9, 8}));
  CHECK((counts(32, 0.5, 3) == Counts{16, 6, 5, 5}));
  CHECK((counts(2, 0.8, 3) == Counts{2}));
  CHECK((counts(13, 0.5, 7) == Counts{7, 1, 1, 1, 1, 1, 1}));
  CHECK((counts(1, 0.0, 3) == Counts{1}));
  CHECK((counts(10, 0.0, 3) == Counts{1, 3, 3, 3}));
  CHECK((counts(10, 1.0, 3) == Counts{10}));
}

// The tensors of GeoMX's example, in blocks of 4096 bytes.
TEST(DgtBlocksOfTheExampleNetwork) {
  Options options = Defaults();
  options["block_bytes"] = 4096;
  const std::pair<std::size_t, std::size_t> blocks[] = {
      {400, 1}, {16, 1}, {12800, 13}, {32, 1}, {131072, 128}, {256, 1}, {32768, 32}, {128, 1},
      {1280, 2}, {10, 1}};
  for (const auto& [elements, count] : blocks) {
    CHECK_EQ(Cut(*Make(options), std::vector<float>(elements, 1.0f)).size(), count);
  }
}

// With alpha 0.3, magnitudes 1 and 0 give contributions 0.7 and 0.21, which is between blocks with
// contributions 0.22 and 0.20.
TEST(DgtContributionIsAMovingAverage) {
  const auto slicer = Make(Defaults());
  CHECK((Order(Cut(*slicer, Blocks({1, 0, 0}))) == std::vector<std::uint32_t>{0, 1, 2}));
  CHECK((Order(Cut(*slicer, Blocks({0, 0.22f / 0.7f, 0.20f / 0.7f}))) ==
         std::vector<std::uint32_t>{1, 0, 2}));
}

TEST(DgtOrderIsByContributionAndCoversTheShard) {
  check::ForSeeds(30, [](std::uint64_t seed) {
    Random random(seed);
    Options options = Defaults();
    options["alpha"] = 0;
    options["k"] = check::Uniform(random, 0, 1);
    const auto slicer = Make(options);
    std::vector<float> magnitudes(Between(random, 1, 40));
    for (float& magnitude : magnitudes) magnitude = static_cast<float>(Between(random, 0, 9));
    std::vector<float> values = Blocks(magnitudes);
    values.resize(values.size() - Between(random, 0, kRows - 1));
    const auto slices = Cut(*slicer, values);
    CHECK_EQ(slices.size(), magnitudes.size());
    std::vector<int> covered(values.size(), 0);
    for (std::size_t i = 0; i < slices.size(); ++i) {
      CHECK_EQ(slices[i].priority, 7);
      for (std::uint32_t row = 0; row < slices[i].rows; ++row) ++covered[slices[i].first_row + row];
      if (i == 0) continue;
      const std::uint32_t before = slices[i - 1].first_row / kRows;
      const std::uint32_t here = slices[i].first_row / kRows;
      CHECK(magnitudes[before] >= magnitudes[here]);
      if (magnitudes[before] == magnitudes[here]) CHECK(before < here);
      CHECK(slices[i - 1].channel <= slices[i].channel);
    }
    CHECK(std::all_of(covered.begin(), covered.end(), [](int times) { return times == 1; }));
  });
}

TEST(DgtShareFollowsTheLoss) {
  Options options = Defaults();
  options["adaptive"] = 1;
  const auto reliable = [&](double loss_ratio) {
    return PerChannel(Cut(*Make(options), Blocks(Descending(100)), loss_ratio))[0];
  };
  CHECK_EQ(reliable(std::nan("")), 80u);
  CHECK_EQ(reliable(1.0), 80u);
  CHECK_EQ(reliable(0.5), 40u);
  CHECK_EQ(reliable(0.25), 20u);
  CHECK_EQ(reliable(0.01), 20u);  // k_min
  CHECK_EQ(reliable(1.1), 88u);
  CHECK_EQ(reliable(50), 100u);
  CHECK_EQ(reliable(-1), 20u);
  CHECK_EQ(reliable(HUGE_VAL), 100u);
  options["adaptive"] = 0;
  CHECK_EQ(reliable(0.25), 80u);
}

// Half-precision values are ranked by their value, and not by their bits as integers.
TEST(DgtRanksHalvesByTheirValue) {
  const std::uint16_t halves[] = {0x0001, 0x3c00, 0xc000, 0x0400, 0xb800};  // 2^-24 1 -2 2^-14 -0.5
  const std::uint32_t rows = 32;  // 64 bytes of halves
  std::vector<std::uint16_t> values;
  for (const std::uint16_t half : halves) values.insert(values.end(), rows, half);
  Parts parts = Parts::Dense(values.size(), nullptr, nullptr);
  parts.parts[0].bits = 16;
  parts.parts[0].data = reinterpret_cast<const std::byte*>(values.data());
  const auto slices = Cut(*Make(Defaults()), parts);
  std::vector<std::uint32_t> order;
  for (const Slice& slice : slices) order.push_back(slice.first_row / rows);
  CHECK((order == std::vector<std::uint32_t>{2, 1, 4, 3, 0}));
}

// Of integers, a block counts by its scales; of two-bit codes, by how many are not zero.
TEST(DgtRanksCodesByTheirScalesAndShares) {
  const std::vector<float> magnitudes = {1, 9, 5};
  const std::vector<std::uint32_t> expected = {1, 2, 0};
  const std::vector<float> scales = {1, 1, 9, 9, 5, 5};  // of 16 rows each
  const std::vector<std::byte> zeros(96);
  Parts parts = Parts::Dense(96, nullptr, nullptr);
  parts.parts = {{.name = "integers", .bits = 8, .data = zeros.data()},
                 {.name = "scales", .bits = 32, .span = 16,
                  .data = reinterpret_cast<const std::byte*>(scales.data())}};
  Options options = Defaults();
  options["block_bytes"] = 40;  // 32 rows of 10 bits
  const auto order = [&](std::uint32_t rows) {
    std::vector<std::uint32_t> blocks;
    for (const Slice& slice : Cut(*Make(options), parts)) blocks.push_back(slice.first_row / rows);
    return blocks;
  };
  CHECK(order(32) == expected);

  std::vector<std::byte> codes;  // 256 rows are 64 bytes
  for (const float magnitude : magnitudes) {
    for (int i = 0; i < 64; ++i) codes.push_back(std::byte(i < 5 * magnitude ? 0xeb : 0));
  }
  parts = Parts::Dense(768, nullptr, nullptr);
  parts.parts = {{.name = "codes", .bits = 2, .data = codes.data()}};
  options["block_bytes"] = 64;
  CHECK(order(256) == expected);
}

// A block that is not finite is the first of its round, and is ranked by its values again in the next ones.
TEST(DgtForgetsWhatIsNotFinite) {
  for (const float bad : {HUGE_VALF, std::nanf("")}) {
    for (const double alpha : {0.0, 0.3}) {
      Options options = Defaults();
      options["alpha"] = alpha;
      const auto slicer = Make(options);
      Cut(*slicer, Blocks({3, 2, 1}));
      CHECK((Order(Cut(*slicer, Blocks({3, bad, 1}))) == std::vector<std::uint32_t>{1, 0, 2}));
      for (int round = 0; round < 3; ++round) Cut(*slicer, Blocks({1, 2, 3}));
      CHECK((Order(Cut(*slicer, Blocks({1, 2, 3}))) == std::vector<std::uint32_t>{2, 1, 0}));
    }
  }
}

TEST(DgtDoesNotSliceCodecsThatNeedAllSlices) {
  const std::vector<float> values = Blocks(Descending(10));
  const Parts parts = Parts::Dense(values.size(), values.data(), nullptr);
  const ShardInfo shard;
  std::vector<Slice> slices = {{.rows = 160}};
  Make(Defaults())->Cut({shard, 1, parts, false, 1.0}, slices);
  CHECK_EQ(slices.size(), 1u);
  CHECK_EQ(slices[0].channel, 0);
}

TEST(DgtSlicesSimulatedSizesInTheSameNumbers) {
  const std::vector<float> values = Blocks(Descending(50));
  const auto real = PerChannel(Cut(*Make(Defaults()), values));
  const auto phantom =
      PerChannel(Cut(*Make(Defaults()), Parts::Dense(values.size(), nullptr, nullptr)));
  CHECK(real == phantom);
}

// In a cluster, the slicer receives the ratio of the party's loss to its first loss.
TEST(DgtReceivesTheLossOfTheWorkers) {
  Options options = Defaults();
  options["adaptive"] = 1;
  check::Plan plan;
  plan.parties = {2};
  plan.wan_push.slicers = {NativeSlicers::Instance().Create("dgt", options)};
  check::Cluster cluster(1, plan);
  cluster.faults.loss = 1;
  cluster.Declare(0, 100 * kRows, {{.elements = 100 * kRows}});
  std::uint64_t lost_before = 0;
  const std::pair<float, std::uint64_t> rounds[] = {{2.0f, 20}, {1.0f, 60}, {0.1f, 80}};
  for (const auto& [loss, expected] : rounds) {
    // The mean over the party's workers is used.
    cluster.Push(cluster.workers[0], 0, cluster.RandomValues(100 * kRows), false, 0.5f * loss);
    cluster.Push(cluster.workers[1], 0, cluster.RandomValues(100 * kRows), false, 1.5f * loss);
    cluster.Drive();
    const auto& traffic =
        cluster.traffic().at({cluster.servers[0], cluster.globals[0], Kind::kPush});
    CHECK_EQ(traffic.lost - lost_before, expected);
    lost_before = traffic.lost;
  }
  CHECK_EQ(cluster.Count(Event::Kind::kValueReady), 6u);
  CHECK_EQ(cluster.Count(Event::Kind::kPeerError), 0u);
}

}  // namespace
}  // namespace geomx
