// Times every kernel on one device, next to what copying arrays takes there, and looks at arrays of
// more than 2^31 elements. Prints one JSON object per measurement; run.py, beside this file, builds it
// and makes the table.
//
//   device_timings DEVICE MILLISECONDS ELEMENTS      times of arrays of so many float32
//   device_timings DEVICE large ELEMENTS             probes up to an array's end: "ok", or what not
//
// A time is the least of batches that fill the milliseconds; a batch is queued as a whole and waited
// for once. `bytes` is what the operation must read and write at least.
#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "kernels/queue.h"

namespace geomx::kernels {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kRatio = 0.01;
constexpr int kBatch = 8;

double Since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

class Measuring {
 public:
  Measuring(Queue& queue, double seconds, std::uint64_t elements)
      : queue_(queue), seconds_(seconds), elements_(elements) {}

  double Least(const std::function<void()>& run) {
    run();
    queue_.Wait();
    double best = HUGE_VAL;
    const auto begun = Clock::now();
    do {
      const auto start = Clock::now();
      for (int i = 0; i < kBatch; ++i) run();
      queue_.Wait();
      best = std::min(best, Since(start) / kBatch);
    } while (Since(begun) < seconds_);
    return best;
  }

  // `bytes` per element.
  void Row(const char* name, double bytes, const std::function<void()>& run) {
    const double took = Least(run);
    std::printf("{\"name\": \"%s\", \"elements\": %llu, \"seconds\": %.9g, \"bytes\": %.0f}\n",
                name, static_cast<unsigned long long>(elements_), took,
                bytes * static_cast<double>(elements_));
    std::fflush(stdout);
  }

 private:
  Queue& queue_;
  double seconds_;
  std::uint64_t elements_;
};

// The device's memory, cleared, until this goes.
class Memory {
 public:
  explicit Memory(Queue& queue) : queue_(queue) {}
  ~Memory() {
    for (std::byte* memory : taken_) queue_.Give(memory);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  template <class T = float>
  T* Take(std::uint64_t count) {
    taken_.push_back(queue_.Take(count * sizeof(T)));
    queue_.Clear(taken_.back(), count * sizeof(T));
    return reinterpret_cast<T*>(taken_.back());
  }

 private:
  Queue& queue_;
  std::vector<std::byte*> taken_;
};

// Numbers as gradients have them: small, with tails. A stretch is drawn, and repeated.
void Fill(Queue& queue, float* values, std::uint64_t n, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<float> stretch(std::min<std::uint64_t>(n, 4'000'003));
  for (float& value : stretch) {
    const auto uniform = static_cast<double>(random() >> 11) * 0x1p-53;
    const double tail = std::log(1e-9 + std::fabs(2 * uniform - 1));
    value = static_cast<float>(0.01 * tail * (uniform < 0.5 ? 1 : -1));
  }
  for (std::uint64_t at = 0; at < n; at += stretch.size()) {
    queue.Copy(values + at, stretch.data(), 4 * std::min<std::uint64_t>(stretch.size(), n - at));
  }
  queue.Wait();
}

void Time(Queue& queue, double seconds, std::uint64_t n) {
  Measuring measuring(queue, seconds, n);
  Memory memory(queue);
  std::vector<float*> all;
  for (std::uint64_t i = 0; i < 10; ++i) {
    all.push_back(memory.Take(n));
    Fill(queue, all.back(), n, i + 1);
  }
  float *a = all[0], *b = all[1], *c = all[2], *d = all[3];
  auto* brief = memory.Take<std::uint16_t>(n);
  auto* bytes = reinterpret_cast<std::byte*>(brief);
  const float* const terms[] = {a, b, c, d, all[4], all[5], all[6], all[7]};
  float* const out = all[8];

  measuring.Row("copy", 8, [&] { queue.Copy(out, a, 4 * n); });
  measuring.Row("narrow to fp16", 6, [&] { queue.Narrow(a, brief, n); });
  measuring.Row("widen from fp16", 6, [&] { queue.Widen(bytes, out, n); });
  measuring.Row("widen and add fp16", 10, [&] { queue.WidenAdd(bytes, out, n); });
  measuring.Row("narrow to bf16", 6, [&] { queue.NarrowBfloat(a, brief, n); });
  measuring.Row("widen and add bf16", 10, [&] { queue.WidenBfloatAdd(bytes, out, n); });
  queue.Clear(out, 4 * n);
  for (const std::size_t count : {1, 2, 4, 8}) {
    const std::string name = "add " + std::to_string(count);
    measuring.Row(name.c_str(), 4.0 * static_cast<double>(count) + 8,
                  [&] { queue.Add(out, terms, count, n); });
  }
  auto* sums = memory.Take<double>(2);
  measuring.Row("norms", 4, [&] {
    queue.NormsOf(a, nullptr, n, reinterpret_cast<Norms*>(sums));
  });
  std::vector<Range> ranges;
  for (std::uint64_t at = 0; at < n; at += 1024) {
    ranges.push_back({at, std::min<std::uint64_t>(1024, n - at)});
  }
  auto* averages = memory.Take<double>(ranges.size());
  measuring.Row("contribution per block", 4, [&] {
    queue.Contribute(a, ranges.data(), ranges.size(), 0.3, averages);
  });
  measuring.Row("two bits", 12.25, [&] {
    queue.Quantise({.scale = 0.02f, .threshold = 0.01f}, a, out, bytes, n);
  });
  measuring.Row("add two bits", 8.25, [&] { queue.WorthAdd(0.02f, bytes, out, n); });

  // Accumulating reads the gradient, and reads and writes velocity and sum.
  const auto share = static_cast<std::uint64_t>(kRatio * static_cast<double>(n));
  const std::uint64_t rows = std::max<std::uint64_t>(1, share);
  auto* indices = memory.Take<std::uint32_t>(rows);
  float* const values = memory.Take(rows);
  auto* next = memory.Take<std::uint64_t>(1);
  float* const velocity = all[9];
  Sparsification how{.momentum = 0.9f, .clip = 0, .masking = true, .exact = false, .seed = 1};
  const auto sparsify = [&] {
    ++how.seed;
    queue.Sparsify(how, a, velocity, out, n, rows, next, indices, values);
  };
  const double state = 20 + kRatio * 8;
  measuring.Row("sparsify", state, sparsify);
  how.exact = true;
  measuring.Row("sparsify, exact", state, sparsify);
  how.clip = 1e-3;
  measuring.Row("sparsify, clipped", state + 4, sparsify);
  const auto width = std::max(1u, static_cast<std::uint32_t>(std::bit_width(n - 1)));
  measuring.Row("pack indices", kRatio * (4 + width / 8.0), [&] {
    queue.PackBits(indices, rows, width, bytes);
  });
  auto* refused = memory.Take<std::uint32_t>(1);
  measuring.Row("add rows", kRatio * 16, [&] {
    queue.ScatterAdd(reinterpret_cast<std::byte*>(values), reinterpret_cast<std::byte*>(indices),
                     rows, n, out, refused);
  });

  const Descent step{.rate = 1e-3f, .wd = 1e-4f, .rescale = 1, .clip = HUGE_VALF};
  const Moments moments{.beta1 = 0.9f, .beta2 = 0.999f, .epsilon = 1e-8f};
  for (float* array : {b, c, d}) queue.Clear(array, 4 * n);
  measuring.Row("sgd", 12, [&] { queue.Sgd(step, out, a, n); });
  measuring.Row("momentum", 20, [&] { queue.Momentum(step, 0.9f, out, a, b, n); });
  measuring.Row("adam", 28, [&] { queue.Adam(step, moments, out, a, c, d, n); });
}

// Few entries that are not zero, some of them far out: all must be found where they are.
bool Large(Queue& queue, std::uint64_t n) {
  Memory memory(queue);
  const std::vector<std::uint64_t> places = {0, n / 2 - 1, n / 2, n - 1};
  float *term = memory.Take(n), *sum = memory.Take(n), *velocity = memory.Take(n);
  auto* brief = memory.Take<std::uint16_t>(n);
  for (const std::uint64_t place : places) {
    const auto value = static_cast<float>(1 + place % 1000);
    queue.Copy(term + place, &value, sizeof value);
    queue.Wait();
  }
  std::vector<std::string> wrong;
  const auto expect = [&](const char* what, const float* array, float factor) {
    for (const std::uint64_t place : places) {
      float found = 0;
      queue.Copy(&found, array + place, sizeof found);
      queue.Wait();
      if (found != factor * static_cast<float>(1 + place % 1000)) {
        wrong.push_back(std::string(what) + " at " + std::to_string(place));
      }
    }
  };
  const float* const terms[] = {term};
  queue.Add(sum, terms, 1, n);
  expect("add", sum, 1);
  queue.Narrow(term, brief, n);
  queue.WidenAdd(reinterpret_cast<std::byte*>(brief), sum, n);
  expect("cast and add", sum, 2);
  auto* indices = memory.Take<std::uint32_t>(places.size());
  float* values = memory.Take(places.size());
  auto* next = memory.Take<std::uint64_t>(1);
  queue.Sparsify({.momentum = 0.5f, .clip = 0, .masking = false, .exact = true, .seed = 1}, term,
                 velocity, sum, n, places.size(), next, indices, values);
  expect("velocity", velocity, 1);
  std::vector<std::uint32_t> found(places.size());
  queue.Copy(found.data(), indices, found.size() * sizeof found[0]);
  queue.Wait();
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (found[i] != places[i]) wrong.push_back("sparsify, entry " + std::to_string(places[i]));
  }
  expect("sum of what has left", sum, 0);
  auto* refused = memory.Take<std::uint32_t>(1);
  queue.ScatterAdd(reinterpret_cast<std::byte*>(values), reinterpret_cast<std::byte*>(indices),
                   places.size(), n, sum, refused);
  expect("add rows", sum, 3);
  for (const std::string& what : wrong) std::printf("wrong: %s\n", what.c_str());
  if (wrong.empty()) std::printf("ok\n");
  return wrong.empty();
}

}  // namespace
}  // namespace geomx::kernels

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "device_timings DEVICE MILLISECONDS|large ELEMENTS\n");
    return 2;
  }
  const auto queue = geomx::kernels::OpenQueue(argv[1]);
  const std::uint64_t elements = std::strtoull(argv[3], nullptr, 10);
  if (std::string(argv[2]) == "large") return geomx::kernels::Large(*queue, elements) ? 0 : 1;
  std::printf("{\"device\": \"%s\", \"description\": \"%s\", \"build\": \"%s\"}\n", argv[1],
              queue->device().description.c_str(), geomx::kernels::CudaBuild().c_str());
  geomx::kernels::Time(*queue, std::atof(argv[2]) / 1e3, elements);
  return 0;
}
