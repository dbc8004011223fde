// Bi-Sparse's codecs: nothing is lost, sizes equal the layout, the correct rows are sent, and invalid
// bytes are refused. A reference follows the definition entry by entry.
//
// Runs long, so it is optimised.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <set>

#include "core/natives.h"
#include "rows.h"
#include "tests/cluster.h"

namespace geomx {
namespace {

using check::Between;
using check::Random;
using Values = std::vector<float>;

Options PushOptions(double ratio, double momentum = 0.9) {
  return {{"ratio", ratio}, {"momentum", momentum}, {"masking", 1},
          {"clip", 0},      {"warmup_rounds", 0},   {"exact", 0},
          {"flush", 0}};
}

std::shared_ptr<const CodecFactory> Native(const std::string& name, const Options& options) {
  return NativeCodecs::Instance().Create(name, options);
}

std::shared_ptr<const CodecFactory> PullNative(double ratio, double times, double warmup = 0) {
  return Native("bisparse_pull", {{"ratio", ratio}, {"times", times}, {"warmup_rounds", warmup}, {"flush", 0}});
}

std::vector<std::byte> SliceOf(const Parts& parts, std::uint64_t first, std::uint64_t count) {
  std::vector<std::byte> bytes;
  for (const Part& part : parts.parts) {
    if (!part.IsIn(first)) continue;
    const std::byte* start = part.data + (part.whole ? 0 : part.BytesFor(first));
    bytes.insert(bytes.end(), start, start + part.BytesFor(count));
  }
  return bytes;
}

// One link of one shard: encodes a value, and decodes it at the other end.
class Link {
 public:
  Link(const CodecChain::Factories& codecs, std::uint64_t elements)
      : sender_(codecs, ShardInfo{}), receiver_(codecs, ShardInfo{}), elements_(elements) {}

  double SquaredResidual() const { return sender_.SquaredResidual(); }

  // Encodes and decodes in slices of random size; checks the sizes against the layout.
  Values Send(const Values& values, Random& random) {
    ++round_;
    const Parts promised = receiver_.Layout(elements_, round_);
    Parts parts = Parts::Dense(elements_, values.data(), nullptr);
    parts.round = round_;
    sender_.Encode(parts);
    CHECK_EQ(parts.rows, promised.rows);
    CHECK_EQ(parts.SliceBytes(0, parts.rows), promised.SliceBytes(0, promised.rows));
    rows_ = parts.rows;
    bytes_ = parts.SliceBytes(0, parts.rows);
    Values out(elements_, 0.0f);
    for (std::uint64_t first = 0; first < parts.rows;) {
      const std::uint64_t eights = Between(random, 1, 1 + parts.rows / 8);
      const std::uint64_t count = std::min(8 * eights, parts.rows - first);
      std::vector<std::byte> slice = SliceOf(parts, first, count);
      slice.insert(slice.begin(), std::byte{0});  // payloads need not be aligned
      const char* reason = receiver_.DecodeInto(Bytes(slice).subspan(1), elements_, first, count,
                                                parts.rows, false, out.data(), round_);
      CHECK_EQ(std::string(reason == nullptr ? "" : reason), "");
      first += count;
    }
    return out;
  }

  std::uint64_t rows() const { return rows_; }
  std::uint64_t bytes() const { return bytes_; }

 private:
  CodecChain sender_, receiver_;
  std::uint64_t elements_, rows_ = 0, bytes_ = 0;
  Round round_ = 0;
};

Values Gradient(Random& random, std::uint64_t elements) {
  Values values(elements);
  for (float& value : values) {
    value = check::Uniform(random, -1, 1) * check::Uniform(random, 0, 1);
    if (check::Chance(random, 0.1)) value = 0;
  }
  return values;
}

// The reference. The codec must send exactly what has accumulated here.
struct Definition {
  double momentum, clip;
  bool masking;
  Values u, v;

  void Add(Values gradient) {
    double norm = 0;
    for (const float value : gradient) norm += double{value} * value;
    norm = std::sqrt(norm);
    const auto scale = static_cast<float>(clip > 0 && norm > clip ? clip / norm : 1);
    u.resize(gradient.size());
    v.resize(gradient.size());
    for (std::size_t i = 0; i < v.size(); ++i) {
      u[i] = scale * gradient[i] + static_cast<float>(momentum) * u[i];
      v[i] += u[i];
    }
  }

  // Checks that sent values equal the accumulated ones, and clears these. Returns their number.
  std::size_t Take(const Values& sent) {
    std::size_t count = 0;
    for (std::size_t i = 0; i < v.size(); ++i) {
      if (sent[i] == 0) continue;
      ++count;
      CHECK_NEAR(sent[i], v[i], 1e-6 * (1 + std::fabs(v[i])));
      v[i] = 0;
      if (masking) u[i] = 0;
    }
    return count;
  }
};

TEST(BisparseLosesNothing) {
  check::ForSeeds(30, [](std::uint64_t seed) {
    Random random(seed);
    const std::uint64_t elements = Between(random, 2, check::Chance(random, 0.3) ? 30000 : 3000);
    const double ratio = check::Uniform(random, 0.002f, 0.3f);
    Definition definition{check::Chance(random, 0.5) ? 0.9 : 0.0,
                          check::Chance(random, 0.3) ? 2.0 : 0.0,
                          check::Chance(random, 0.7), {}, {}};
    Options options = PushOptions(ratio, definition.momentum);
    options["masking"] = definition.masking;
    options["clip"] = definition.clip;
    options["exact"] = check::Chance(random, 0.5);
    options["warmup_rounds"] = static_cast<double>(Between(random, 0, 4));
    Link link({Native("bisparse", options)}, elements);
    for (int round = 1; round <= 12; ++round) {
      const Values gradient = Gradient(random, elements);
      definition.Add(gradient);
      const Values before = definition.v;
      const Values sent = link.Send(gradient, random);
      const std::size_t count = definition.Take(sent);
      CHECK(count <= link.rows());
      if (options["exact"] == 0 || link.rows() == elements) continue;
      // Exactly the largest.
      float least = HUGE_VALF, most = 0;
      for (std::size_t i = 0; i < sent.size(); ++i) {
        if (sent[i] != 0) least = std::min(least, std::fabs(sent[i]));
        if (sent[i] == 0) most = std::max(most, std::fabs(before[i]));
      }
      CHECK_EQ(count, link.rows());
      CHECK(least >= most * 0.999999f);
    }
  });
}

TEST(BisparseMomentumFollowsTheFormula) {
  const double expected[] = {1, 1.9, 2.71, 3.439, 4.0951};
  for (int rounds = 1; rounds <= 5; ++rounds) {
    Random random(1);
    Link link({Native("bisparse", PushOptions(0.005))}, 200);  // one row
    Values sent;
    for (int round = 1; round <= rounds; ++round) {
      Values gradient(200, 0.0f);
      if (round == 1) gradient[0] = 1;
      if (round < rounds) gradient[150] = 100;  // occupies the only row until the last round
      sent = link.Send(gradient, random);
      CHECK_EQ(link.rows(), 1u);
    }
    CHECK_NEAR(sent[0], expected[rounds - 1], 1e-6);
  }
}

TEST(BisparseSizesFollowTheFormula) {
  const Options options = PushOptions(0.01);
  const auto layout = [](const CodecChain::Factories& codecs, std::uint64_t elements,
                         Round round) {
    const Parts parts = CodecChain(codecs, ShardInfo{}).Layout(elements, round);
    return std::pair{parts.rows, parts.SliceBytes(0, parts.rows)};
  };
  const CodecChain::Factories push = {Native("bisparse", options)};
  // k rows of 32 bits and ceil(log2 n) bits.
  CHECK((layout(push, 12800, 1) == std::pair<std::uint64_t, std::uint64_t>{128, 512 + 224}));
  CHECK((layout(push, 131072, 1) == std::pair<std::uint64_t, std::uint64_t>{1310, 5240 + 2784}));
  CHECK((layout(push, 32768, 1) == std::pair<std::uint64_t, std::uint64_t>{327, 1308 + 614}));
  CHECK((layout(push, 1280, 1) == std::pair<std::uint64_t, std::uint64_t>{12, 48 + 17}));
  CHECK((layout(push, 4, 1) == std::pair<std::uint64_t, std::uint64_t>{1, 4 + 1}));
  CHECK((layout(push, 1, 1) == std::pair<std::uint64_t, std::uint64_t>{1, 4}));  // dense is smaller
  CHECK((layout({PullNative(0.01, 2)}, 12800, 1) ==
         std::pair<std::uint64_t, std::uint64_t>{256, 1024 + 448}));
  CHECK((layout({PullNative(0.01, 100)}, 12800, 1) ==
         std::pair<std::uint64_t, std::uint64_t>{12800, 4 * 12800}));

  // Warm-up: from 25 % to the ratio in equal factors.
  Options slow = options;
  slow["warmup_rounds"] = 2;
  const CodecChain::Factories warm = {Native("bisparse", slow)};
  CHECK_EQ(layout(warm, 10000, 1).first, 2500u);
  CHECK_EQ(layout(warm, 10000, 2).first, 500u);
  CHECK_EQ(layout(warm, 10000, 3).first, 100u);
  CHECK_EQ(layout({PullNative(0.01, 1, 2)}, 10000, 2).first, 500u);
}

TEST(BisparseSendsEveryElementEventually) {
  for (const double exact : {0.0, 1.0}) {
    for (const std::uint64_t elements : {1000u, 40000u}) {
      Random random(3);
      Options options = PushOptions(0.05, 0);
      options["exact"] = exact;
      Link link({Native("bisparse", options)}, elements);
      std::vector<int> times(elements, 0);
      for (int round = 0; round < 40; ++round) {  // twice the necessary rounds
        const Values sent = link.Send(Values(elements, 0.001f), random);
        for (std::size_t i = 0; i < elements; ++i) times[i] += sent[i] != 0;
      }
      CHECK(*std::min_element(times.begin(), times.end()) >= 1);
      CHECK(*std::max_element(times.begin(), times.end()) <= 3);
    }
  }
}

// The threshold from a sample selects nearly the same magnitude as an exact selection.
TEST(BisparseSampledThresholdIsNearlyExact) {
  check::ForSeeds(10, [](std::uint64_t seed) {
    Random random(seed);
    constexpr std::uint64_t kElements = 50000;
    Link link({Native("bisparse", PushOptions(0.01, 0))}, kElements);
    const Values gradient = Gradient(random, kElements);
    const Values sent = link.Send(gradient, random);
    Values sorted = gradient;
    std::sort(sorted.begin(), sorted.end(),
              [](float a, float b) { return std::fabs(a) > std::fabs(b); });
    const auto add = [](double sum, float value) { return sum + std::fabs(value); };
    const double best = std::accumulate(sorted.begin(), sorted.begin() + 500, 0.0, add);
    const double got = std::accumulate(sent.begin(), sent.end(), 0.0, add);
    CHECK_EQ(link.rows(), 500u);
    CHECK(got > 0.9 * best);
  });
}

TEST(BisparseIndicesAreExactBeyondFloat32) {
  constexpr std::uint64_t kElements = (1u << 24) + 2;  // float32 cannot represent 2^24 + 1
  Random random(1);
  Values gradient(kElements, 0.0f);
  const std::uint64_t places[] = {0, 77, (1u << 24) - 1, 1u << 24, (1u << 24) + 1};
  for (const std::uint64_t place : places) gradient[place] = static_cast<float>(place % 1000 + 1);
  const CodecChain::Factories codecs = {Native("bisparse", PushOptions(1e-6, 0))};
  const Parts layout = CodecChain(codecs, ShardInfo{}).Layout(kElements);
  CHECK_EQ(layout.rows, 16u);
  CHECK_EQ(layout.Find("indices")->bits, 25u);
  CHECK(Link(codecs, kElements).Send(gradient, random) == gradient);
}

TEST(BisparseComposesWithHalfPrecision) {
  const auto names = NativeCodecs::Instance().Names();
  if (std::find(names.begin(), names.end(), "fp16") == names.end()) return;
  check::ForSeeds(10, [](std::uint64_t seed) {
    Random random(seed);
    const std::uint64_t elements = Between(random, 100, 5000);
    const auto sparse = Native("bisparse", PushOptions(0.05));
    const auto half = Native("fp16", {});
    Link alone({sparse}, elements), after({sparse, half}, elements);
    Link before({half, sparse}, elements);
    for (int round = 0; round < 4; ++round) {
      const Values gradient = Gradient(random, elements);
      const Values full = alone.Send(gradient, random);
      const Values narrow = after.Send(gradient, random);
      CHECK(before.Send(gradient, random) == narrow);  // the cast is always last
      CHECK_EQ(after.bytes(), alone.bytes() - 2 * alone.rows());
      for (std::size_t i = 0; i < elements; ++i) {
        CHECK_NEAR(narrow[i], full[i], std::fabs(full[i]) / 2048 + 1e-7);
      }
    }
  });
}

TEST(BisparsePullSendsAllEntriesOfAllParties) {
  check::ForSeeds(20, [](std::uint64_t seed) {
    Random random(seed);
    const std::uint64_t elements = Between(random, 50, 20000);
    const std::uint64_t parties = Between(random, 1, 6);
    const double ratio = 0.02;
    Link pull({PullNative(ratio, static_cast<double>(parties))}, elements);
    const auto each = std::max<std::uint64_t>(1, static_cast<std::uint64_t>(
                                                     static_cast<double>(elements) * ratio));
    for (int round = 0; round < 5; ++round) {
      Values sum(elements, 0.0f);
      for (std::uint64_t i = 0; i < each * parties; ++i) {
        sum[Between(random, 0, elements - 1)] += check::Uniform(random, -1, 1);
      }
      CHECK(pull.Send(sum, random) == sum);
      CHECK(pull.rows() == std::min(elements, each * parties) || pull.rows() == elements);
    }
  });
}

TEST(BisparsePullReselectsAndLosesNothing) {
  check::ForSeeds(20, [](std::uint64_t seed) {
    Random random(seed);
    const std::uint64_t elements = Between(random, 200, 20000);
    Link pull({PullNative(0.02, 1)}, elements);
    const auto rows = static_cast<std::uint64_t>(static_cast<double>(elements) * 0.02);
    Values left(elements, 0.0f);
    for (int round = 0; round < 100; ++round) {
      // Sums of three parties for some rounds, then zeros, with which the residual is sent.
      Values sum(elements, 0.0f);
      for (std::uint64_t i = 0; round < 20 && i < 3 * rows; ++i) {
        sum[Between(random, 0, elements - 1)] += check::Uniform(random, -1, 1);
      }
      const Values sent = pull.Send(sum, random);
      CHECK_EQ(pull.rows(), rows);
      double squares = 0;
      for (std::size_t i = 0; i < elements; ++i) {
        left[i] += sum[i] - sent[i];
        squares += double{left[i]} * left[i];
      }
      CHECK_NEAR(pull.SquaredResidual(), squares, 1e-4 * (1 + squares));
    }
    for (const float value : left) CHECK_NEAR(value, 0, 1e-5);
  });
}

TEST(BisparseRefusesInvalidBytes) {
  constexpr std::uint64_t kElements = 1000;  // ten bits can also represent 1000 to 1023
  const CodecChain::Factories codecs = {Native("bisparse", PushOptions(0.05))};
  const CodecChain chain(codecs, ShardInfo{});
  check::ForSeeds(200, [&](std::uint64_t seed) {
    Random random(seed);
    const std::uint64_t first = 8 * Between(random, 0, 6);
    const std::uint64_t rows = Between(random, 1, 50 - first);
    const Parts layout = chain.Layout(kElements);
    std::vector<std::byte> bytes(layout.SliceBytes(first, rows));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    Values out(kElements, 0.0f);
    const auto decode = [&](const std::vector<std::byte>& slice, std::uint64_t total) {
      return chain.DecodeInto(slice, kElements, first, rows, total, false, out.data());
    };
    const char* reason = decode(bytes, 50);  // random indices are sometimes out of range
    CHECK_EQ(std::string(reason == nullptr ? "index out of range" : reason), "index out of range");
    CHECK_EQ(std::string(decode(bytes, 51)), "more rows than the codec makes");
    std::vector<std::byte> longer(bytes.size() + 1);
    CHECK_EQ(std::string(decode(longer, 50)), "slice of the wrong size");
    bytes.pop_back();
    CHECK_EQ(std::string(decode(bytes, 50)), "slice of the wrong size");
  });
}

// NaN is sent, so that it is detected as without compression.
TEST(BisparseSendsNaN) {
  Random random(1);
  Values gradient(5000, 0.5f);
  gradient[4999] = std::nanf("");
  const Values sent = Link({Native("bisparse", PushOptions(0.01))}, 5000).Send(gradient, random);
  CHECK(std::isnan(sent[4999]));
}

TEST(BisparseInAClusterLosesNothing) {
  check::ForSeeds(4, [](std::uint64_t seed) {
    check::Plan plan;
    plan.parties = {1, 2, 1};
    plan.global_servers = 2;
    plan.frame_bytes = 64;
    plan.wan_push.codecs = {Native("bisparse", PushOptions(0.1, 0))};
    plan.wan_pull.codecs = {PullNative(0.1, 3)};
    check::Cluster cluster(seed, plan);
    constexpr std::uint32_t kElements = 1500;
    cluster.Declare(0, kElements, cluster.RandomShards(kElements, 4));
    std::vector<double> pushed(kElements, 0.0), pulled(kElements, 0.0);
    for (int round = 0; round < 40; ++round) {
      for (const NodeId worker : cluster.workers) {
        Values values(kElements, 0.0f);
        if (round < 10) values = cluster.RandomIntegers(kElements);
        for (std::uint32_t i = 0; i < kElements; ++i) pushed[i] += values[i];
        cluster.Push(worker, 0, values);
      }
      cluster.Drive();
      const Values value = cluster.Value(cluster.workers[0], 0);
      for (std::uint32_t i = 0; i < kElements; ++i) pulled[i] += value[i];
      for (const NodeId worker : cluster.workers) CHECK(cluster.Value(worker, 0) == value);
    }
    CHECK_EQ(cluster.Count(Event::Kind::kPeerError), 0u);
    CHECK(pulled == pushed);  // exact, as sums of integers are
  });
}

}  // namespace
}  // namespace geomx
