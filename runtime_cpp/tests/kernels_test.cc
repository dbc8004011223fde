// The array kernels: all vector levels and numbers of threads have the bits of the portable level on one
// thread, for any numbers, sizes and addresses, and these follow the definitions.
//
// Runs long, so it is optimised.
#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <functional>
#include <numbers>
#include <span>
#include <stdexcept>
#include <thread>

#include "kernels/chunks.h"
#include "kernels/cosines.h"
#include "kernels/half.h"
#include "kernels/integers.h"
#include "kernels/level.h"
#include "kernels/memory.h"
#include "kernels/thread_pool.h"
#include "kernels/sparse.h"
#include "kernels/steps.h"
#include "kernels/sums.h"
#include "kernels/ternary.h"
#include "tests/numbers.h"

namespace geomx::kernels {
namespace {

using check::Between;
using check::Chance;
using check::Collect;
using check::Draw;
using check::Random;
using check::Values;

// Returns the results of all kernels on random numbers.
std::vector<std::uint32_t> Everything(std::uint64_t seed, std::uint64_t n, bool any) {
  Random random(seed);
  std::vector<std::uint32_t> bits;
  // Views begin `shift` floats, or bytes, after an aligned address.
  const std::uint64_t shift = Between(random, 0, 15);
  const auto draw = [&] { return Draw(random, n + shift, any); };
  const auto view = [&](Values& values) { return values.data() + shift; };
  Values a = draw(), b = draw(), c = draw(), d = draw(), e = draw();
  std::vector<std::byte> bytes(4 * n + shift);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());

  std::vector<std::uint16_t> halves(n + shift);
  Narrow(view(a), halves.data() + shift, n);
  for (std::uint16_t& half : halves) half = (half & 0x7fffu) > 0x7c00u ? 0x7e00u : half;
  Collect(bits, halves);
  Widen(bytes.data() + shift, view(b), n);
  Collect(bits, b);
  WidenAdd(bytes.data() + shift, view(b), n);
  Collect(bits, b);

  for (std::size_t count = 0; count <= 6; ++count) {
    const float* const terms[] = {view(b), view(c), view(d), view(b), view(e), view(c)};
    Values sum = a;
    Add(view(sum), terms, count, n);
    Collect(bits, sum);
  }
  Values sum = a;
  if (!any) std::memcpy(bytes.data() + shift, view(c), 4 * n);
  AddBytes(bytes.data() + shift, view(sum), n);
  Collect(bits, sum);
  Collect(bits, SumOfSquares(view(a), n));
  Collect(bits, SumOfMagnitudes(view(a), n));
  for (const float* more : {static_cast<const float*>(view(c)), static_cast<const float*>(nullptr)}) {
    const Norms norms = NormsOf(view(a), more, n);
    Collect(bits, norms.magnitudes);
    Collect(bits, norms.squares);
  }

  FindScratch scratch;
  Entries found;
  for (const std::uint32_t threshold : {1u, 0x3f000000u, 0x7f800001u}) {
    Values total = c, velocity = d;
    Accumulate({.scale = 0.7f, .momentum = 0.9f}, view(a), view(velocity), view(total), n,
               threshold, scratch, found);
    Collect(bits, total);
    Collect(bits, velocity);
    Collect(bits, found.indices);
    Collect(bits, found.values);
    Accumulate({}, view(a), nullptr, view(total), n, threshold, scratch, found);
    Collect(bits, total);
    Collect(bits, found.indices);
    Find(view(a), n, threshold, scratch, found);
    Collect(bits, found.indices);
    Collect(bits, found.values);
  }

  std::vector<std::byte> codes((n + 3) / 4);
  for (const float* added : {static_cast<const float*>(view(c)), static_cast<const float*>(nullptr)}) {
    Values residual = a;
    Quantise({.scale = 0.25f, .threshold = 0.125f}, added, view(residual), codes.data(), n);
    Collect(bits, residual);
    Collect(bits, codes);
  }
  Values worth = a;
  WorthAdd(0.3f, bytes.data(), view(worth), n);
  Collect(bits, worth);
  Worth(0.3f, bytes.data(), view(worth), n);
  Collect(bits, worth);

  for (const unsigned width : {8u, 4u}) {
    const Integers format{.bits = width, .chunk = 64};
    std::vector<std::byte> integers((n * width + 7) / 8);
    Values residual = a, scales((n + 63) / 64), out = c;
    EncodeIntegers(format, view(c), view(residual), integers.data(), scales.data(), n);
    Collect(bits, residual);
    Collect(bits, integers);
    Collect(bits, scales);
    const auto* levels = reinterpret_cast<const std::byte*>(scales.data());
    DecodeIntegersAdd(format, bytes.data() + shift, levels, view(out), n);
    Collect(bits, out);
    DecodeIntegers(format, bytes.data() + shift, levels, view(out), n);
    Collect(bits, out);
  }
  Values total = a;
  std::vector<Entries> chosen((n + 103) / 104);
  TakeLargest({.added = view(c), .decay = 0.75f}, view(total), n, 104, 9,
              [&](std::uint64_t chunk, const Entries& entries) { chosen[chunk] = entries; });
  Collect(bits, total);
  for (const Entries& entries : chosen) {
    Collect(bits, entries.indices);
    Collect(bits, entries.values);
  }

  const Tile tile{.height = 1u << Between(random, 0, 6), .width = 1u << Between(random, 0, 6)};
  Values cosines = Draw(random, tile.size() + shift, any);
  CosineTransform(tile, view(cosines));
  Collect(bits, cosines);
  InverseCosineTransform(tile, view(cosines));
  Collect(bits, cosines);

  const Descent step{.rate = 0.01f, .wd = 0.02f, .rescale = 0.5f, .clip = 3.0f};
  const Moments moments{.beta1 = 0.9f, .beta2 = 0.99f, .epsilon = 1e-8f};
  const RmsProp rms{.gamma = 0.9f, .momentum = 0.8f, .epsilon = 1e-8f, .largest = 2.0f};
  const Compensation compensation{.lamda = 0.4f, .momentum = 0.9f, .decay = 0.9f, .epsilon = 1e-7f};
  const std::function<void(float*, float*, float*, float*)> steps[] = {
      [&](float* w, float*, float*, float*) { Sgd(step, w, view(b), n); },
      [&](float* w, float* x, float*, float*) { Momentum(step, 0.9f, w, view(b), x, n); },
      [&](float* w, float* x, float*, float*) { Nesterov(step, 0.9f, w, view(b), x, n); },
      [&](float* w, float* x, float* y, float*) { Adam(step, moments, w, view(b), x, y, n); },
      [&](float* w, float* x, float* y, float*) { AdamW(step, moments, 1.5f, w, view(b), x, y, n); },
      [&](float* w, float* x, float*, float*) { RmsPropPlain(step, rms, w, view(b), x, n); },
      [&](float* w, float* x, float* y, float* z) {
        RmsPropCentered(step, rms, w, view(b), x, y, z, n);
      },
      [&](float* w, float* x, float*, float*) { AdaGrad(step, 1e-7f, w, view(b), x, n); },
      [&](float* w, float* x, float* y, float* z) {
        DcAsgd(step, compensation, w, view(b), x, y, z, n);
      },
      [&](float* w, float* x, float*, float*) {
        DcAsgd(step, compensation, w, view(b), x, nullptr, nullptr, n);
      },
  };
  for (const auto& update : steps) {
    Values w = a, x = c, y = d, z = e;
    update(view(w), view(x), view(y), view(z));
    for (const Values& values : {w, x, y, z}) Collect(bits, values);
  }
  return bits;
}

class AtLevel {
 public:
  explicit AtLevel(Level level) { Use(level); }
  ~AtLevel() { Use(Levels().back()); }
};

TEST(KernelsHaveEqualBitsAtEveryLevel) {
  CHECK_EQ(std::string(Name(Levels().front())), "portable");
  CHECK(Current() == Levels().back());
  check::ForSeeds(30, [](std::uint64_t seed) {
    Random random(seed);
    const std::uint64_t sizes[] = {0, 1, 7, 16, 63, 64, 65, Between(random, 2, 600), 2047,
                                   Between(random, 4000, 9000)};
    const std::uint64_t n = sizes[seed % std::size(sizes)];
    for (const bool any : {false, true}) {
      std::vector<std::uint32_t> portable;
      {
        const AtLevel level(Level::kPortable);
        portable = Everything(seed, n, any);
      }
      for (const Level level : Levels()) {
        const AtLevel at(level);
        CHECK(Everything(seed, n, any) == portable);
      }
    }
  });
}

TEST(KernelsHaveEqualBitsWithAnyNumberOfThreads) {
  const std::uint64_t n = 5 * kBlock + 4321;
  const auto alone = Everything(1, n, true);
  for (const unsigned threads : {2u, 3u}) {
    SetThreads(threads);
    CHECK_EQ(Threads(), threads);
    CHECK(Everything(1, n, true) == alone);
  }
  SetThreads(0);
  CHECK_EQ(Threads(), 1u);
}

TEST(KernelsFollowTheirDefinitions) {
  check::ForSeeds(20, [](std::uint64_t seed) {
    Random random(seed);
    const std::uint64_t n = Between(random, 0, 5000);
    const Values a = Draw(random, n, false), b = Draw(random, n, false);
    double magnitudes = 0, squares = 0, of_sums = 0;
    for (std::uint64_t i = 0; i < n; ++i) {
      magnitudes += std::fabs(a[i]);
      squares += double{a[i]} * a[i];
      of_sums += std::pow(double{a[i]} + b[i], 2);
    }
    CHECK_NEAR(SumOfMagnitudes(a.data(), n), magnitudes, 1e-4 + 1e-6 * magnitudes);
    CHECK_NEAR(SumOfSquares(a.data(), n), squares, 1e-9 * (1 + squares));
    CHECK_NEAR(NormsOf(a.data(), b.data(), n).squares, of_sums, 1e-4 + 1e-6 * of_sums);

    CHECK(AllFinite(a.data(), n));
    for (const float bad : {INFINITY, -INFINITY, NAN, -NAN}) {
      if (n == 0) break;
      Values with = a;
      with[Between(random, 0, n - 1)] = bad;
      CHECK(!AllFinite(with.data(), n));
    }

    Values residual = a;
    std::vector<std::byte> codes((n + 3) / 4);
    Quantise({.scale = 0.5f, .threshold = 0.25f}, b.data(), residual.data(), codes.data(), n);
    Values worth(n);
    Worth(0.5f, codes.data(), worth.data(), n);
    for (std::uint64_t i = 0; i < n; ++i) {
      const float pending = a[i] + b[i];
      CHECK_EQ(worth[i], std::fabs(pending) < 0.25f ? 0.0f : std::copysign(0.5f, pending));
      CHECK_EQ(residual[i], pending - worth[i]);
    }
  });
}

TEST(KernelsFindLargeValues) {
  check::ForSeeds(40, [](std::uint64_t seed) {
    Random random(seed);
    const std::uint64_t n = Between(random, 1, Chance(random, 0.3) ? 20000 : 300);
    Values values = Draw(random, n, Chance(random, 0.5));
    if (Chance(random, 0.3)) {  // many equal magnitudes
      for (float& value : values) value = value < 0.2f ? -0.5f : 0.25f;
    }
    std::vector<std::uint32_t> sorted(n), scratch;
    for (std::uint64_t i = 0; i < n; ++i) sorted[i] = Magnitude(values[i]);
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    const std::uint64_t rank = Between(random, 0, n - 1);
    CHECK_EQ(MagnitudeOfRank(values.data(), n, rank, scratch), sorted[rank]);

    FindScratch find_scratch;
    Entries found;
    const std::uint32_t threshold = std::max(1u, sorted[rank]);
    Find(values.data(), n, threshold, find_scratch, found);
    std::vector<std::uint32_t> expected;
    for (std::uint32_t i = 0; i < n; ++i) {
      if (Magnitude(values[i]) >= threshold) expected.push_back(i);
    }
    CHECK(found.indices == expected);
    if (found.size() == 0) return;

    const std::uint64_t count = Between(random, 1, found.size());
    std::uint64_t equal = count;
    for (const float value : found.values) equal -= Magnitude(value) > sorted[count - 1];
    expected.clear();
    for (const std::uint32_t index : found.indices) {
      if (Magnitude(values[index]) < sorted[count - 1]) continue;
      const bool equals = Magnitude(values[index]) == sorted[count - 1];
      if (!equals || equal > 0) expected.push_back(index);
      equal -= equals && equal > 0;
    }
    KeepLargest(found, count, scratch);
    CHECK_EQ(found.size(), count);
    CHECK(found.indices == expected);
    for (std::size_t i = 0; i < found.size(); ++i) {
      CHECK_EQ(Magnitude(found.values[i]), Magnitude(values[found.indices[i]]));
    }
  });
}

TEST(KernelsTakeTheLargestOfEveryChunk) {
  check::ForSeeds(20, [](std::uint64_t seed) {
    Random random(seed);
    const std::uint64_t n = Between(random, 1, 3000), span = Between(random, 1, 700);
    const std::uint64_t kept = Between(random, 1, span);
    Values sum = Draw(random, n, false), added = Draw(random, n, false);
    if (Chance(random, 0.3)) {  // mostly zeros, and equal magnitudes
      for (float& value : sum) value = value < 0.4f ? 0.0f : -0.5f;
      added.assign(n, 0.0f);
    }
    Values expected(n);
    for (std::uint64_t i = 0; i < n; ++i) expected[i] = 0.5f * sum[i] + added[i];
    std::uint64_t next = 0;
    TakeLargest({.added = added.data(), .decay = 0.5f}, sum.data(), n, span, kept,
                [&](std::uint64_t chunk, const Entries& entries) {
                  CHECK_EQ(chunk, next++);
                  const std::uint64_t first = chunk * span, count = std::min(span, n - first);
                  const auto magnitude = [&](std::uint32_t i) { return Magnitude(sum[first + i]); };
                  std::vector<std::uint32_t> order(count);
                  for (std::uint32_t i = 0; i < count; ++i) order[i] = i;
                  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t i, std::uint32_t j) {
                    return magnitude(i) > magnitude(j);
                  });
                  order.resize(std::min(kept, count));
                  std::sort(order.begin(), order.end());
                  CHECK(entries.indices == order);
                  for (std::size_t i = 0; i < order.size(); ++i) {
                    CHECK_EQ(Magnitude(entries.values[i]), magnitude(order[i]));
                  }
                });
    CHECK_EQ(next, (n + span - 1) / span);
    CHECK(sum == expected);
  });
}

TEST(KernelsTransformByTheFormulaAndBack) {
  const auto weight = [](unsigned frequency, unsigned at, unsigned size) {
    return std::sqrt((frequency == 0 ? 1.0 : 2.0) / size) *
           std::cos(std::numbers::pi * (at + 0.5) * frequency / size);
  };
  check::ForSeeds(10, [&](std::uint64_t seed) {
    Random random(seed);
    const Tile tile{.height = 1u << Between(random, 0, 6), .width = 1u << Between(random, 0, 6)};
    const Values values = Draw(random, tile.size());
    Values transformed = values;
    CosineTransform(tile, transformed.data());
    for (int i = 0; i < 20; ++i) {
      const auto k = static_cast<unsigned>(Between(random, 0, tile.height - 1));
      const auto l = static_cast<unsigned>(Between(random, 0, tile.width - 1));
      double sum = 0;
      for (unsigned y = 0; y < tile.height; ++y) {
        for (unsigned x = 0; x < tile.width; ++x) {
          sum += values[y * tile.width + x] * weight(k, y, tile.height) * weight(l, x, tile.width);
        }
      }
      CHECK_NEAR(transformed[l * tile.height + k], sum, 1e-5);
    }
    InverseCosineTransform(tile, transformed.data());
    for (std::size_t i = 0; i < values.size(); ++i) CHECK_NEAR(transformed[i], values[i], 1e-5);
  });
}

TEST(KernelsScatterAllOrNothing) {
  const std::uint32_t indices[] = {3, 0, 3, 4};
  const float values[] = {1, 2, 4, 8};
  const auto* where = reinterpret_cast<const std::byte*>(indices);
  const auto* what = reinterpret_cast<const std::byte*>(values);
  for (const Level level : Levels()) {
    const AtLevel at(level);
    Values out(5, 0.5f);
    CHECK(!ScatterAdd(what, where, 4, 4, out.data()));
    CHECK(out == Values(5, 0.5f));
    CHECK(ScatterAdd(what, where, 4, 5, out.data()));
    CHECK((out == Values{2.5f, 0.5f, 0.5f, 5.5f, 8.5f}));
    CHECK(ScatterAdd(what, where, 0, 0, out.data()));
  }
}

// ---- threads ----

TEST(PoolCoversEveryElementOnce) {
  for (const unsigned threads : {1u, 3u}) {
    SetThreads(threads);
    // More than 2^32 elements, which are never accessed.
    for (const std::uint64_t n : {std::uint64_t{0}, std::uint64_t{1}, kBlock, 9 * kBlock + 1,
                                  (std::uint64_t{1} << 33) + 5}) {
      std::atomic<std::uint64_t> elements{0}, places{0};
      ForBlocks(n, [&](std::uint64_t first, std::uint64_t count) {
        CHECK_EQ(first % kBlock, 0u);
        elements += count;
        places += first / kBlock;
      });
      const std::uint64_t blocks = Blocks(n);
      CHECK_EQ(elements.load(), n);
      CHECK_EQ(places.load(), blocks * (blocks - (blocks > 0)) / 2);
    }
  }
  SetThreads(1);
}

TEST(PoolRethrowsExceptions) {
  for (const unsigned threads : {1u, 2u}) {
    SetThreads(threads);
    std::atomic<int> calls{0};
    bool thrown = false;
    try {
      ForBlocks(8 * kBlock, [&](std::uint64_t, std::uint64_t) {
        ++calls;
        throw std::runtime_error("no");
      });
    } catch (const std::runtime_error&) {
      thrown = true;
    }
    CHECK(thrown);
    CHECK(calls.load() >= 1 && calls.load() <= static_cast<int>(threads));
    ForBlocks(8 * kBlock, [&](std::uint64_t, std::uint64_t) { ++calls; });  // the pool still works
  }
  SetThreads(1);
}

TEST(PoolServesSeveralCallersAtOnce) {
  SetThreads(2);
  const std::uint64_t n = 6 * kBlock;
  std::vector<std::thread> callers;
  std::atomic<int> wrong{0};
  for (int caller = 1; caller <= 3; ++caller) {
    callers.emplace_back([&, caller] {
      Values sum(n, 0.0f);
      const Values term(n, static_cast<float>(caller));
      const float* const terms[] = {term.data(), term.data()};
      for (int round = 0; round < 20; ++round) Add(sum.data(), terms, 2, n);
      wrong += sum != Values(n, static_cast<float>(40 * caller));
    });
  }
  SetThreads(3);  // during the calls
  for (std::thread& caller : callers) caller.join();
  SetThreads(1);
  CHECK_EQ(wrong.load(), 0);
}

// ---- memory ----

TEST(LargeMemoryIsReused) {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{100}, std::size_t{70000},
                                  std::size_t{100000}, std::size_t{9} << 20}) {
    void* memory = TakeMemory(bytes);
    CHECK_EQ(reinterpret_cast<std::uintptr_t>(memory) % 64, 0u);
    std::memset(memory, 1, bytes);
    const std::size_t before = KeptMemory();
    GiveMemory(memory, bytes);
    if (bytes < 70000) {
      CHECK_EQ(KeptMemory(), before);
      continue;
    }
    CHECK(KeptMemory() >= before + bytes && KeptMemory() <= before + bytes + bytes / 4);
    void* again = TakeMemory(bytes - bytes / 100);  // a slightly smaller size
    CHECK(again == memory);
    CHECK_EQ(KeptMemory(), before);
    GiveMemory(again, bytes - bytes / 100);
  }
  GiveMemory(nullptr, 100);
  Array<float> zeros(50000);
  zeros.assign(50000, 1.0f);
  zeros = {};
  zeros.resize(50000);  // reused memory is cleared too
  CHECK(std::all_of(zeros.begin(), zeros.end(), [](float value) { return value == 0; }));
}

}  // namespace
}  // namespace geomx::kernels
