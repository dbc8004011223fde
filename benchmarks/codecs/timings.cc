// Times what is done to tensors in C++, without an interpreter in between: codecs, sums, optimizers,
// and in the same run what the machine's memory can do. Prints one JSON object per measurement;
// speed.py, beside this file, builds it, adds other libraries and makes the table.
//
//   codec_timings LEVEL THREADS MILLISECONDS ELEMENTS...
//
// A time is the least of as many as fit into the milliseconds. Inputs are prepared outside of it.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>

#include "core/aggregator.h"
#include "core/natives.h"
#include "core/optimizer.h"
#include "kernels/level.h"
#include "kernels/thread_pool.h"

namespace geomx {
namespace {

using Clock = std::chrono::steady_clock;
using Values = std::vector<float>;

struct Settings {
  unsigned threads = 1;
  double seconds = 0.1;
};

Settings settings;

double Since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// What the machine's memory does with as many elements, on as many threads: the yardstick. It is
// measured in turns with everything else, because a machine that is shared is never the same twice.
class Memory {
 public:
  explicit Memory(std::uint64_t elements) : from_(elements, 1.0f), to_(elements, 0.0f) {}

  double Copy() {
    return Timed([&](std::uint64_t first, std::uint64_t count) {
      std::memcpy(to_.data() + first, from_.data() + first, count * sizeof(float));
      asm volatile("" : : "r"(to_.data()) : "memory");
    });
  }
  double Add() {
    return Timed([&](std::uint64_t first, std::uint64_t count) {
      float* sum = to_.data() + first;
      const float* term = from_.data() + first;
      for (std::uint64_t i = 0; i < count; ++i) sum[i] += term[i];
      asm volatile("" : : "r"(to_.data()) : "memory");
    });
  }

 private:
  template <class Pass>
  double Timed(Pass pass) {
    const int passes = from_.size() < 65536 ? 16 : 1;
    const auto start = Clock::now();
    for (int i = 0; i < passes; ++i) kernels::ForBlocks(from_.size(), pass);
    return Since(start) / passes;
  }

  Values from_, to_;
};

std::unique_ptr<Memory> memory;

struct Times {
  double seconds = HUGE_VAL, copy = HUGE_VAL, add = HUGE_VAL;
};

// The least times of run(), after prepare(), which is not timed, and of the yardstick. In bursts, so
// that what fits into a cache finds itself there again.
template <class Prepare, class Run>
Times Least(Prepare prepare, Run run) {
  constexpr double kBurst = 2e-3;
  Times least;
  const auto burst = [](auto&& once, double& best) {
    const auto start = Clock::now();
    do {
      best = std::min(best, once());
    } while (Since(start) < kBurst);
  };
  const auto begin = Clock::now();
  for (int round = 0; round < 4 || Since(begin) < settings.seconds; ++round) {
    burst([&] { return memory->Copy(); }, least.copy);
    burst([&] { return memory->Add(); }, least.add);
    burst(
        [&] {
          prepare();
          const auto start = Clock::now();
          run();
          const double seconds = Since(start);
          return round > 0 ? seconds : HUGE_VAL;  // the first burst warms up
        },
        least.seconds);
  }
  return least;
}

// `moved`: bytes that an element needs to have read or written at least.
void Print(const std::string& kind, const std::string& name, const std::string& what,
           std::uint64_t elements, double moved, const Times& times) {
  std::printf(
      "{\"kind\": \"%s\", \"name\": \"%s\", \"what\": \"%s\", \"elements\": %llu, "
      "\"threads\": %u, \"moved\": %g, \"seconds\": %.6g, \"memcpy\": %.6g, \"add\": %.6g}\n",
      kind.c_str(), name.c_str(), what.c_str(), static_cast<unsigned long long>(elements),
      settings.threads, moved, times.seconds, times.copy, times.add);
  std::fflush(stdout);
}

// Nearly normal, as gradients nearly are. Drawn once per size.
const Values& Draw(std::uint64_t elements, std::uint32_t seed) {
  static std::map<std::uint32_t, Values> drawn;
  Values& values = drawn[seed];
  if (values.size() == elements) return values;
  std::minstd_rand random(seed + 1);
  values.resize(elements);
  for (float& value : values) {
    float sum = -6;
    for (int i = 0; i < 12; ++i) sum += static_cast<float>(random()) * (1.0f / 2147483648.0f);
    value = 0.01f * sum;
  }
  return values;
}

// ---- codecs ----

struct Subject {
  std::string name;
  CodecChain::Factories codecs;
  double encode_moved, decode_moved;
};

std::vector<Subject> Subjects() {
  const auto make = [](const std::string& name, const Options& options) {
    return NativeCodecs::Instance().Create(name, options);
  };
  const auto sparse = [&](double momentum) {
    return make("bisparse", {{"ratio", 0.01}, {"momentum", momentum}, {"masking", 1}, {"clip", 0},
                             {"warmup_rounds", 0}, {"exact", 0}, {"flush", 0}});
  };
  const auto half = make("fp16", {});
  const auto two = [&](double threshold) { return make("twobit", {{"threshold", threshold}}); };
  const auto low = [&](double bits) {
    return make("lowbit", {{"bits", bits}, {"chunk", 256}, {"shared", 0}});
  };
  const auto sparseloco = make("sparseloco", {{"chunk", 4096}, {"kept", 64}, {"times", 1},
                                              {"bits", 2}, {"decay", 1}, {"shared", 0}});
  return {
      {"copy", {}, 0, 12},
      {"fp16", {half}, 6, 10},
      {"bisparse", {sparse(0)}, 12, 0.16},
      {"bisparse momentum", {sparse(0.9)}, 20, 0.16},
      {"bisparse down", {make("bisparse_pull", {{"ratio", 0.01}, {"warmup_rounds", 0},
                                                {"times", 2}, {"flush", 0}})}, 4, 0.32},
      {"mpq", {std::make_shared<BySizeFactory>(1000, CodecChain::Factories{half},
                                               CodecChain::Factories{sparse(0)})}, 12, 0.16},
      {"lowbit 8", {low(8)}, 13.02, 9.02},
      {"lowbit 4", {low(4)}, 12.52, 8.52},
      {"sparseloco", {sparseloco}, 12.03, 0.14},
      {"twobit", {two(0)}, 20.25, 8.25},
      {"twobit fixed", {two(0.02)}, 12.25, 8.25},
  };
}

constexpr std::uint64_t kFrameBytes = 256 * 1024;

// One message as a receiver gets it.
struct Slice {
  std::uint64_t first, rows;
  std::vector<std::byte> bytes;
};

std::vector<Slice> Cut(const Parts& parts) {
  std::vector<Slice> slices;
  const std::uint64_t step = parts.RowsIn(kFrameBytes);
  for (std::uint64_t first = 0; first < parts.rows; first += step) {
    Slice slice{first, std::min(step, parts.rows - first), {}};
    for (const Part& part : parts.parts) {
      if (!part.IsIn(first)) continue;
      const std::byte* start = part.data + (part.whole ? 0 : part.BytesFor(first));
      slice.bytes.insert(slice.bytes.end(), start, start + part.BytesFor(slice.rows));
    }
    slices.push_back(std::move(slice));
  }
  return slices;
}

void TimeCodec(const Subject& subject, std::uint64_t elements) {
  const bool down = subject.name == "bisparse down";
  Values gradients[] = {Draw(elements, 0), Draw(elements, 1)};
  for (std::uint64_t at = 0; down && at < elements; ++at) {  // a sum of sparse parts
    if ((at * 2654435761u >> 4) % 53 != 0) gradients[0][at] = gradients[1][at] = 0;
  }
  CodecChain chain(subject.codecs, ShardInfo{.elements = static_cast<std::uint32_t>(elements)});
  Parts parts;
  std::size_t turn = 0;
  Round round = 0;
  const auto prepare = [&] {
    parts = Parts::Dense(elements, gradients[turn++ % 2].data(), nullptr);
    parts.round = ++round;
  };
  const Times encode = Least(prepare, [&] { chain.Encode(parts); });
  if (!subject.codecs.empty()) {
    Print("codec", subject.name, "encode", elements, subject.encode_moved, encode);
  }
  const std::vector<Slice> slices = Cut(parts);
  Values out(elements, 0.0f);
  const Times decode = Least([] {}, [&] {
    for (const Slice& slice : slices) {
      const char* reason = chain.DecodeInto(slice.bytes, elements, slice.first, slice.rows,
                                            parts.rows, false, out.data(), round);
      if (reason != nullptr) std::abort();
    }
  });
  Print("codec", subject.name, "decode-add", elements, subject.decode_moved, decode);
}

void TimeContribution(std::uint64_t elements) {
  const Values& gradient = Draw(elements, 1);
  const Parts parts = Parts::Dense(elements, gradient.data(), nullptr);
  const ShardInfo shard{.elements = static_cast<std::uint32_t>(elements)};
  const auto slicer = NativeSlicers::Instance()
                          .Create("dgt", {{"k", 0.8}, {"k_min", 0.2}, {"adaptive", 0},
                                          {"alpha", 0.3}, {"block_bytes", 4096}, {"channels", 3}})
                          ->Make(shard);
  std::vector<geomx::Slice> slices;
  const auto prepare = [&] {
    slices = {{.first_row = 0, .rows = static_cast<std::uint32_t>(elements)}};
  };
  Print("codec", "dgt contribution", "cut", elements, 4, Least(prepare, [&] {
          slicer->Cut({shard, 1, parts, true, 1.0}, slices);
        }));
}

// ---- sums ----

void TimeSum(std::size_t members, bool in_order, std::uint64_t elements) {
  const Values& term = Draw(elements, 1);
  std::vector<NodeId> order(members);
  for (std::size_t i = 0; i < members; ++i) order[i] = static_cast<NodeId>(i);
  Aggregator sum(order, static_cast<std::uint32_t>(members));
  std::vector<Buffer> terms(members);
  Buffer total;
  const auto prepare = [&] {
    for (Buffer& copy : terms) copy = term;
  };
  const Times seconds = Least(prepare, [&] {
    for (std::size_t i = 0; i < members; ++i) {
      const std::size_t member = in_order ? i : members - 1 - i;
      sum.Add(order[member], 1, std::move(terms[member]));
    }
    total = sum.Take();
  });
  Print("sum", std::to_string(members) + (in_order ? " in order" : " last first"), "sum", elements,
        4.0 * static_cast<double>(members + 1), seconds);
}

// ---- optimizers ----

void TimeOptimizer(const std::string& name, const std::string& text, double moved,
                   std::uint64_t elements) {
  const auto optimizer = Optimizer::Make(OptimizerSpec::Parse(text), 0);
  Values weight = Draw(elements, 1);
  const Values& gradient = Draw(elements, 2);
  Print("optimizer", name, "update", elements, moved,
        Least([] {}, [&] { optimizer->Update(weight, gradient); }));
}

void TimeAll(std::uint64_t elements) {
  memory = std::make_unique<Memory>(elements);
  for (const Subject& subject : Subjects()) TimeCodec(subject, elements);
  TimeContribution(elements);
  for (const std::size_t members : {2u, 4u, 8u}) {
    TimeSum(members, true, elements);
    TimeSum(members, false, elements);
  }
  const std::string common = "\nlearning_rate 0.001\nwd 0.0001";
  TimeOptimizer("sgd", "sgd" + common, 12, elements);
  TimeOptimizer("momentum", "sgd\nmomentum 0.9" + common, 20, elements);
  TimeOptimizer("nag", "nag\nmomentum 0.9" + common, 20, elements);
  TimeOptimizer("adam", "adam" + common, 28, elements);
  TimeOptimizer("adamw", "adamw" + common, 28, elements);
  TimeOptimizer("rmsprop", "rmsprop" + common, 20, elements);
  TimeOptimizer("adagrad", "adagrad" + common, 20, elements);
  TimeOptimizer("dcasgd", "dcasgd" + common, 20, elements);
}

}  // namespace
}  // namespace geomx

int main(int count, char** words) {
  using namespace geomx;
  if (count < 5) {
    std::fprintf(stderr, "codec_timings LEVEL THREADS MILLISECONDS ELEMENTS...\n");
    return 2;
  }
  for (const kernels::Level level : kernels::Levels()) {
    if (std::string(kernels::Name(level)) == words[1]) kernels::Use(level);
  }
  settings.threads = static_cast<unsigned>(std::atoi(words[2]));
  settings.seconds = std::atof(words[3]) / 1000;
  kernels::SetThreads(settings.threads);
  for (int i = 4; i < count; ++i) TimeAll(std::strtoull(words[i], nullptr, 10));
  kernels::SetThreads(1);
}
