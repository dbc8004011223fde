// Kernels by device queues: all devices have the bits of the processor, for arrays of any alignment and
// length, and these follow the definitions in float64. Uses this machine's devices, and one that runs
// the GPU's sources on the processor (emulated/).
#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <numeric>

#include "kernels/thread_pool.h"
#include "tests/devices.h"
#include "tests/numbers.h"

namespace geomx::kernels {
namespace {

using check::Between;
using check::Chance;
using check::Collect;
using check::Draw;
using check::Random;
using check::Values;

std::vector<std::unique_ptr<Queue>> Queues() {
  std::vector<std::unique_ptr<Queue>> queues;
  for (const check::OpenDevice& open : check::Devices()) queues.push_back(open());
  return queues;
}

// An array on a device, some bytes after an aligned address; bytes after its end must not change.
template <class T>
class There {
 public:
  There(Queue& queue, const std::vector<T>& values, std::size_t shift = 0)
      : queue_(queue), count_(values.size()), shift_(shift) {
    std::vector<std::byte> bytes(shift + count_ * sizeof(T) + kGuard, kMark);
    if (count_ > 0) std::memcpy(bytes.data() + shift, values.data(), count_ * sizeof(T));
    memory_ = queue.Take(bytes.size());
    queue.Copy(memory_, bytes.data(), bytes.size());
    queue.Wait();
  }
  There(const There&) = delete;
  ~There() { queue_.Give(memory_); }

  T* data() { return reinterpret_cast<T*>(memory_ + shift_); }

  std::vector<T> Back() {
    std::vector<std::byte> bytes(shift_ + count_ * sizeof(T) + kGuard);
    queue_.Copy(bytes.data(), memory_, bytes.size());
    queue_.Wait();
    const auto untouched = [](std::byte byte) { return byte == kMark; };
    CHECK(std::all_of(bytes.begin(), bytes.begin() + static_cast<long>(shift_), untouched));
    CHECK(std::all_of(bytes.end() - kGuard, bytes.end(), untouched));
    std::vector<T> values(count_);
    if (count_ > 0) std::memcpy(values.data(), bytes.data() + shift_, count_ * sizeof(T));
    return values;
  }

 private:
  static constexpr std::byte kMark{0x5a};
  static constexpr long kGuard = 64;

  Queue& queue_;
  std::size_t count_, shift_;
  std::byte* memory_;
};

std::vector<std::uint16_t> OneNan(std::vector<std::uint16_t> narrow, std::uint16_t infinity) {
  for (std::uint16_t& value : narrow) {
    if ((value & 0x7fffu) > infinity) value = static_cast<std::uint16_t>(infinity | 1u);
  }
  return narrow;
}

// Returns the results of all operations of a queue except sparsification, on random numbers.
std::vector<std::uint32_t> Everything(Queue& queue, std::uint64_t seed, std::uint64_t n, bool any) {
  Random random(seed);
  std::vector<std::uint32_t> bits;
  const bool aligned = Chance(random, 0.4);
  const auto shift = [&](std::uint64_t unit) {
    return aligned ? 0 : unit * Between(random, 0, 16 / unit);
  };
  const Values a = Draw(random, n, any), b = Draw(random, n, any), c = Draw(random, n, any);
  std::vector<std::byte> bytes(4 * n);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  There<float> term(queue, b, shift(4));

  {
    There<float> in(queue, a, shift(4));
    There<std::uint16_t> out(queue, std::vector<std::uint16_t>(n), shift(2));
    queue.Narrow(in.data(), out.data(), n);
    Collect(bits, OneNan(out.Back(), 0x7c00));
    queue.NarrowBfloat(in.data(), out.data(), n);
    Collect(bits, OneNan(out.Back(), 0x7f80));
    There<std::byte> narrow(queue, bytes, shift(1));
    There<float> wide(queue, b, shift(4));
    queue.Widen(narrow.data(), wide.data(), n);
    Collect(bits, wide.Back());
    queue.WidenBfloatAdd(narrow.data(), wide.data(), n);
    Collect(bits, wide.Back());
    queue.WidenBfloat(narrow.data(), wide.data(), n);
    queue.WidenAdd(narrow.data(), wide.data(), n);
    Collect(bits, wide.Back());
    queue.AddBytes(narrow.data(), wide.data(), n);
    Collect(bits, wide.Back());
  }
  for (const std::size_t count : {0u, 1u, 2u, 5u, 8u, 11u}) {
    There<float> sum(queue, a, shift(4)), other(queue, c, shift(4));
    std::vector<const float*> terms;
    for (std::size_t i = 0; i < count; ++i) terms.push_back((i % 3 == 1 ? other : term).data());
    queue.Add(sum.data(), terms.data(), count, n);
    Collect(bits, sum.Back());
  }
  {
    There<float> first(queue, a, shift(4));
    There<double> squares(queue, std::vector<double>(1));
    There<double> norms(queue, std::vector<double>(4));
    queue.SumOfSquares(first.data(), n, squares.data());
    auto* both = reinterpret_cast<Norms*>(norms.data());
    queue.NormsOf(first.data(), term.data(), n, both);
    queue.NormsOf(first.data(), nullptr, n, both + 1);
    Collect(bits, squares.Back());
    Collect(bits, norms.Back());
    std::vector<Range> ranges = {{0, n}, {n / 3, n / 2}, {n, 0}};
    for (std::uint64_t at = 0; at + 8 < n; at += 1 + n / 5) ranges.push_back({at, 8});
    There<double> averages(queue, std::vector<double>(ranges.size(), 0.5));
    queue.Contribute(first.data(), ranges.data(), ranges.size(), 0.3, averages.data());
    Collect(bits, averages.Back());
  }
  for (const bool added : {false, true}) {
    There<float> residual(queue, a, shift(4));
    There<std::byte> codes(queue, std::vector<std::byte>((n + 3) / 4), shift(1));
    queue.Quantise({.scale = 0.25f, .threshold = 0.125f}, added ? term.data() : nullptr,
                   residual.data(), codes.data(), n);
    Collect(bits, residual.Back());
    Collect(bits, codes.Back());
    queue.WorthAdd(0.3f, codes.data(), residual.data(), n);
    Collect(bits, residual.Back());
    There<float> level(queue, {7.0f});
    queue.QuantiseToLevel(added ? term.data() : nullptr, residual.data(), level.data(),
                          codes.data(), n);
    Collect(bits, level.Back());
    Collect(bits, residual.Back());
    Collect(bits, codes.Back());
    queue.Worth(0.3f, codes.data(), residual.data(), n);
    Collect(bits, residual.Back());
  }
  {
    std::vector<std::uint32_t> some;
    for (std::uint32_t row = 0; row < n; row += 1 + random() % 3) some.push_back(row);
    There<float> values(queue, a, shift(4)), chosen(queue, Values(some.size()), shift(4));
    There<std::uint32_t> rows(queue, some, shift(4));
    queue.Gather(values.data(), rows.data(), some.size(), chosen.data());
    Collect(bits, chosen.Back());
    queue.Scatter(term.data(), rows.data(), some.size(), values.data());
    Collect(bits, values.Back());
  }
  for (const std::uint32_t wide : {1u, 7u, 13u, 24u, 31u, 32u}) {
    std::vector<std::uint32_t> numbers(n);
    for (auto& number : numbers) number = static_cast<std::uint32_t>(random() >> (64 - wide));
    There<std::uint32_t> in(queue, numbers), out(queue, std::vector<std::uint32_t>(n));
    There<std::byte> packed(queue, std::vector<std::byte>((n * wide + 7) / 8), shift(1));
    queue.PackBits(in.data(), n, wide, packed.data());
    Collect(bits, packed.Back());
    queue.UnpackBits(packed.data(), n, wide, out.data());
    CHECK(out.Back() == numbers);
  }
  for (const bool ascending : {true, false}) {
    std::vector<std::uint32_t> where(n / 3);
    for (std::size_t i = 0; i < where.size(); ++i) {
      where[i] = static_cast<std::uint32_t>(ascending ? 3 * i : Between(random, 0, n - 1));
    }
    There<std::uint32_t> indices(queue, where, shift(1));
    There<float> values(queue, Values(b.begin(), b.begin() + static_cast<long>(where.size())),
                        shift(1));
    There<float> out(queue, a, shift(4));
    There<std::uint32_t> refused(queue, {7u});
    const auto add = [&](std::uint64_t elements) {
      queue.ScatterAdd(reinterpret_cast<std::byte*>(values.data()),
                       reinterpret_cast<std::byte*>(indices.data()), where.size(), elements,
                       out.data(), refused.data());
      Collect(bits, out.Back());
      Collect(bits, refused.Back());
    };
    add(n);
    add(n / 4);
  }

  const Descent step{.rate = 0.01f, .wd = 0.02f, .rescale = 0.5f, .clip = 3.0f};
  const Moments moments{.beta1 = 0.9f, .beta2 = 0.99f, .epsilon = 1e-8f};
  const RmsProp rms{.gamma = 0.9f, .momentum = 0.8f, .epsilon = 1e-8f, .largest = 2.0f};
  const Compensation late{.lamda = 0.4f, .momentum = 0.9f, .decay = 0.9f, .epsilon = 1e-7f};
  const float* g = term.data();
  const std::function<void(float*, float*, float*, float*)> steps[] = {
      [&](float* w, float*, float*, float*) { queue.Sgd(step, w, g, n); },
      [&](float* w, float* x, float*, float*) { queue.Momentum(step, 0.9f, w, g, x, n); },
      [&](float* w, float* x, float*, float*) { queue.Nesterov(step, 0.9f, w, g, x, n); },
      [&](float* w, float* x, float* y, float*) { queue.Adam(step, moments, w, g, x, y, n); },
      [&](float* w, float* x, float* y, float*) {
        queue.AdamW(step, moments, 1.5f, w, g, x, y, n);
      },
      [&](float* w, float* x, float*, float*) { queue.RmsPropPlain(step, rms, w, g, x, n); },
      [&](float* w, float* x, float* y, float* z) {
        queue.RmsPropCentered(step, rms, w, g, x, y, z, n);
      },
      [&](float* w, float* x, float*, float*) { queue.AdaGrad(step, 1e-7f, w, g, x, n); },
      [&](float* w, float* x, float* y, float* z) { queue.DcAsgd(step, late, w, g, x, y, z, n); },
      [&](float* w, float* x, float* y, float*) {
        queue.DcAsgd(step, late, w, g, x, y, nullptr, n);
      },
      [&](float* w, float* x, float*, float* z) {
        queue.DcAsgd(step, late, w, g, x, nullptr, z, n);
      },
      [&](float* w, float* x, float*, float*) {
        queue.DcAsgd(step, late, w, g, x, nullptr, nullptr, n);
      },
  };
  for (const auto& update : steps) {
    There<float> w(queue, a, shift(4)), x(queue, c, shift(4)), y(queue, b, shift(4)), z(queue, a);
    update(w.data(), x.data(), y.data(), z.data());
    for (There<float>* array : {&w, &x, &y, &z}) Collect(bits, array->Back());
  }
  return bits;
}

// Returns the results and the state of several rounds of sparsification of one tensor.
std::vector<std::uint32_t> Sparsified(Queue& queue, std::uint64_t seed) {
  Random random(seed);
  std::vector<std::uint32_t> bits;
  const std::uint64_t n = Between(random, 1, Chance(random, 0.5) ? 30000 : 300);
  const std::uint64_t rows = Chance(random, 0.2) ? Between(random, 1, n)
                                                 : 1 + n / Between(random, 20, 500);
  Sparsification how{.momentum = Chance(random, 0.7) ? 0.9f : 0.0f,
                     .clip = Chance(random, 0.3) ? 2.0 : 0.0,
                     .masking = Chance(random, 0.7),
                     .exact = Chance(random, 0.5),
                     .seed = 0};
  const std::size_t shift = Chance(random, 0.5) ? 0 : 4 * Between(random, 1, 3);
  There<float> velocity(queue, Values(n), shift), sum(queue, Values(n), shift);
  There<std::uint64_t> next_fill(queue, {0u});
  const auto kind = Between(random, 0, 4);
  for (std::uint64_t round = 1; round <= 4; ++round) {
    how.seed = seed ^ round << 20;
    Values gradient = Draw(random, n, kind == 1);
    for (float& value : gradient) {
      if (kind == 2) value = value < 0.2f ? -0.5f : 0.25f;         // many equal magnitudes
      if (kind == 3 && !Chance(random, 0.003)) value = 0;          // few nonzero values
      if (kind == 4) value = round == 1 ? 0.001f : 0.0f;           // zeros after the first round
    }
    There<float> term(queue, gradient, shift);
    There<std::uint32_t> indices(queue, std::vector<std::uint32_t>(rows));
    There<float> values(queue, Values(rows));
    const Values before = sum.Back(), moved_before = velocity.Back();
    queue.Sparsify(how, term.data(), how.momentum != 0 ? velocity.data() : nullptr, sum.data(), n,
                   rows, next_fill.data(), indices.data(), values.data());
    const auto chosen = indices.Back();
    Collect(bits, chosen);
    Collect(bits, values.Back());
    Collect(bits, sum.Back());
    Collect(bits, velocity.Back());
    Collect(bits, next_fill.Back());

    // By definition, nothing is lost, indices ascend, and exact selection takes the largest.
    double norm = 0;
    for (const float value : gradient) norm += double{value} * value;
    norm = std::sqrt(norm);
    const double scale = how.clip > 0 && norm > how.clip ? how.clip / norm : 1;
    Values sent(n), left = sum.Back();
    for (std::size_t row = 0; row < rows; ++row) sent[chosen[row]] = values.Back()[row];
    CHECK(std::adjacent_find(chosen.begin(), chosen.end(), std::greater_equal<>()) == chosen.end());
    double least = HUGE_VAL, most = 0;
    for (std::uint64_t i = 0; i < n && kind != 1; ++i) {
      const double step = scale * gradient[i] + double{how.momentum} * moved_before[i];
      CHECK_NEAR(double{sent[i]} + left[i], before[i] + step, 1e-5 * (1 + std::fabs(step)));
      most = std::max(most, std::fabs(double{left[i]}));
    }
    for (const std::uint32_t row : chosen) least = std::min(least, std::fabs(double{sent[row]}));
    if (how.exact && kind != 1) CHECK(least >= most);
  }
  return bits;
}

TEST(DeviceKernelsHaveTheBitsOfTheProcessor) {
  const auto queues = Queues();
  check::ForSeeds(12, [&](std::uint64_t seed) {
    Random random(seed);
    const std::uint64_t sizes[] = {0, 1, 3, 16, 1023, 1024, Between(random, 2, 600),
                                   Between(random, 3000, 9000)};
    const std::uint64_t n = sizes[seed % std::size(sizes)];
    for (const bool any : {false, true}) {
      const auto expected = Everything(*queues.front(), seed, n, any);
      for (const auto& queue : queues) CHECK(Everything(*queue, seed, n, any) == expected);
    }
  });
}

// Casts, sums, codes and optimizer steps, compared with formulas in float64.
TEST(DeviceKernelsFollowTheirDefinitions) {
  const auto queues = Queues();
  check::ForSeeds(6, [&](std::uint64_t seed) {
    Random random(seed);
    const std::uint64_t n = Between(random, 1, 5000);
    const Values a = Draw(random, n), b = Draw(random, n), c = Draw(random, n), d = Draw(random, n);
    Values positive = d;
    for (float& value : positive) value = std::fabs(value);
    for (const auto& queue : queues) {
      There<float> x(*queue, a), y(*queue, b), z(*queue, c), s(*queue, positive);
      There<std::uint16_t> brief(*queue, std::vector<std::uint16_t>(n));
      auto* bytes = reinterpret_cast<std::byte*>(brief.data());
      const auto near = [&](const Values& found, double tolerance, auto expected) {
        for (std::uint64_t i = 0; i < n; ++i) {
          const double wanted = expected(i);
          CHECK_NEAR(found[i], wanted, tolerance * (1e-3 + std::fabs(wanted)));
        }
      };
      queue->Narrow(x.data(), brief.data(), n);
      queue->Widen(bytes, z.data(), n);
      near(z.Back(), 0x1p-11, [&](std::uint64_t i) { return double{a[i]}; });
      queue->NarrowBfloat(x.data(), brief.data(), n);
      queue->WidenBfloat(bytes, z.data(), n);
      near(z.Back(), 0x1p-8, [&](std::uint64_t i) { return double{a[i]}; });
      const float* const terms[] = {x.data(), y.data(), x.data()};
      queue->Add(z.data(), terms, 3, n);
      const Values sum = z.Back();
      queue->Copy(z.data(), c.data(), 4 * n);
      queue->Add(z.data(), terms, 2, n);
      near(z.Back(), 1e-4, [&](std::uint64_t i) { return double{c[i]} + a[i] + b[i]; });
      CHECK(n < 10 || sum != z.Back());

      const Descent step{.rate = 0.1f, .wd = 0.01f, .rescale = 0.5f, .clip = 0.4f};
      const auto g = [&](std::uint64_t i) { return std::clamp(0.5 * b[i], -0.4, 0.4); };
      const auto decayed = [&](std::uint64_t i) {
        return std::clamp(0.5 * b[i] + 0.01 * a[i], -0.4, 0.4);
      };
      const auto fresh = [&] {
        queue->Copy(x.data(), a.data(), 4 * n);
        queue->Copy(z.data(), c.data(), 4 * n);
        queue->Copy(s.data(), positive.data(), 4 * n);
      };
      constexpr double kClose = 1e-4;
      fresh();
      queue->Sgd(step, x.data(), y.data(), n);
      near(x.Back(), kClose, [&](std::uint64_t i) { return a[i] - 0.1 * (0.01 * a[i] + g(i)); });
      fresh();
      queue->Momentum(step, 0.9f, x.data(), y.data(), z.data(), n);
      near(x.Back(), kClose, [&](std::uint64_t i) {
        return a[i] + 0.9 * c[i] - 0.1 * (0.01 * a[i] + g(i));
      });
      const Moments moments{.beta1 = 0.9f, .beta2 = 0.99f, .epsilon = 1e-2f};
      fresh();
      queue->Adam(step, moments, x.data(), y.data(), z.data(), s.data(), n);
      near(x.Back(), kClose, [&](std::uint64_t i) {
        const double mean = 0.9 * c[i] + 0.1 * decayed(i);
        const double square = 0.99 * positive[i] + 0.01 * decayed(i) * decayed(i);
        return a[i] - 0.1 * mean / (std::sqrt(square) + 1e-2);
      });
      fresh();
      queue->AdamW(step, moments, 1.5f, x.data(), y.data(), z.data(), s.data(), n);
      near(x.Back(), kClose, [&](std::uint64_t i) {
        const double mean = 0.9 * c[i] + 0.1 * g(i);
        const double square = 0.99 * positive[i] + 0.01 * g(i) * g(i);
        return a[i] - 0.1 * (1.5 * mean / (std::sqrt(square) + 1e-2) + 0.01 * a[i]);
      });
      fresh();
      queue->AdaGrad(step, 1e-2f, x.data(), y.data(), s.data(), n);
      near(x.Back(), kClose, [&](std::uint64_t i) {
        return a[i] - 0.1 * (g(i) / std::sqrt(positive[i] + g(i) * g(i) + 1e-2) + 0.01 * a[i]);
      });
      const RmsProp rms{.gamma = 0.9f, .momentum = 0.8f, .epsilon = 1e-2f, .largest = 0.9f};
      fresh();
      queue->RmsPropPlain(step, rms, x.data(), y.data(), s.data(), n);
      near(x.Back(), kClose, [&](std::uint64_t i) {
        const double square = 0.9 * positive[i] + 0.1 * decayed(i) * decayed(i);
        return std::clamp(a[i] - 0.1 * decayed(i) / std::sqrt(square + 1e-2), -0.9, 0.9);
      });
    }
  });
}

TEST(DeviceSumsKeepTheirOrderOverManyBlocks) {
  Random random(5);
  const std::uint64_t n = 3 * kBlock + 4321;
  const Values values = Draw(random, n);
  double squares = 0;
  for (const float value : values) squares += double{value} * value;
  std::vector<std::uint32_t> expected;
  for (const auto& queue : Queues()) {
    There<float> there(*queue, values);
    There<double> sum(*queue, std::vector<double>(1)), norms(*queue, std::vector<double>(2));
    There<double> averages(*queue, std::vector<double>(1));
    const Range all{0, n};
    queue->SumOfSquares(there.data(), n, sum.data());
    queue->NormsOf(there.data(), nullptr, n, reinterpret_cast<Norms*>(norms.data()));
    queue->Contribute(there.data(), &all, 1, 0, averages.data());
    std::vector<std::uint32_t> bits;
    for (There<double>* found : {&sum, &norms, &averages}) Collect(bits, found->Back());
    if (expected.empty()) expected = bits;
    CHECK(bits == expected);
    CHECK_NEAR(sum.Back()[0], squares, 1e-9 * squares);
    CHECK_NEAR(norms.Back()[1], squares, 1e-5 * squares);
  }
}

TEST(DeviceSparsificationHasTheBitsOfTheProcessor) {
  const auto queues = Queues();
  check::ForSeeds(12, [&](std::uint64_t seed) {
    const auto expected = Sparsified(*queues.front(), seed);
    for (const auto& queue : queues) CHECK(Sparsified(*queue, seed) == expected);
  });
}

TEST(DeviceQueuesAreFoundByName) {
  CHECK_EQ(Devices().front().name, std::string("cpu"));
  CHECK_EQ(OpenQueue("cpu")->device().name, std::string("cpu"));
  std::string said;
  try {
    OpenQueue("abacus");
  } catch (const std::invalid_argument& error) {
    said = error.what();
  }
  CHECK(said.starts_with("no device abacus; there is cpu"));
}

}  // namespace
}  // namespace geomx::kernels
