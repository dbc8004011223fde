// Values on a device are pushed like values on the host: encoded on the device, completely or in part,
// the received bits are equal. Uses this machine's devices and the emulated one.
#include "io/device_staging.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "core/natives.h"
#include "kernels/bfloat.h"
#include "kernels/half.h"
#include "kernels/timing.h"
#include "tests/cluster.h"
#include "tests/devices.h"

namespace geomx {
namespace {

using check::Between;
using check::Cluster;
using check::Random;
using io::DeviceStaging;

// A buffer in a device's memory.
struct There {
  There(const DeviceStaging::Open& open, const void* bytes, std::size_t size) : queue(open()) {
    memory = queue->Take(size);
    queue->Copy(memory, bytes, size);
    queue->Wait();
  }
  There(const There&) = delete;
  ~There() { queue->Give(memory); }

  std::unique_ptr<kernels::Queue> queue;
  std::byte* memory;
};

// Calls that other threads have queued for the nodes' thread, in order.
class Posts {
 public:
  void Post(std::function<void()> task) {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    changed_.notify_one();
  }
  std::function<void()> Next() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, std::chrono::seconds(20), [this] { return !tasks_.empty(); })) {
      throw std::runtime_error("nothing came from the device");
    }
    auto task = std::move(tasks_.front());
    tasks_.pop_front();
    return task;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
};

// Codecs with and without device kernels (bisparse_pull has none), with and without residuals.
CodecChain::Factories AnyCodecs(Random& random) {
  CodecChain::Factories codecs;
  const auto add = [&](const char* name, const Options& options) {
    codecs.push_back(NativeCodecs::Instance().Create(name, options));
  };
  const double ratio = 0.05 * static_cast<double>(Between(random, 1, 14));
  switch (Between(random, 0, 3)) {
    case 0: add("bisparse_pull", {{"ratio", ratio}, {"times", 1}, {"warmup_rounds", 0}, {"flush", 0}}); break;
    case 1:
    case 2:
      add("bisparse", {{"ratio", ratio},
                       {"momentum", Between(random, 0, 1) == 1 ? 0.9 : 0.0},
                       {"masking", Between(random, 0, 1) == 1},
                       {"clip", Between(random, 0, 1) == 1 ? 2.0 : 0.0},
                       {"warmup_rounds", 2},
                       {"flush", 0},
                       {"exact", Between(random, 0, 1) == 1}});
      break;
    default: break;
  }
  if (Between(random, 0, 1) == 1) add("twobit", {{"threshold", Between(random, 0, 1) * 0.5}});
  if (Between(random, 0, 1) == 1) add("fp16", {});
  return codecs;
}

TEST(StagedPushesEqualPushesOfTheHost) {
  check::ForSeeds(20, [](std::uint64_t seed) {
    for (const DeviceStaging::Open& open : check::Devices()) {
      Random random(seed);
      check::Plan plan;
      plan.parties = {2};
      plan.frame_bytes = 64;
      plan.lan_push.codecs = AnyCodecs(random);
      if (Between(random, 0, 2) == 0) plan.lan_push.slicers = {check::BlockSlices(16, 1)};
      Cluster host(seed, plan), device(seed, plan);
      const auto elements = static_cast<std::uint32_t>(Between(random, 1, 500));
      const auto shards = host.RandomShards(elements, 4);
      const auto start = host.RandomValues(elements);
      for (Cluster* cluster : {&host, &device}) {
        cluster->Declare(0, elements, shards);
        cluster->Init(0, start);
        cluster->RequestAll(0);
        cluster->Drive();
      }
      const auto stage = std::make_shared<DeviceStaging>(open, 1 << 20, 8 * Between(random, 1, 40));
      Posts posts;
      for (int round = 0; round < 4; ++round) {
        device.ClearEvents();
        for (const NodeId id : host.workers) {
          const auto value = host.RandomValues(elements);
          host.Push(id, 0, value);
          if (Between(random, 0, 3) == 0) {  // residuals move between host and device
            device.Push(id, 0, value);
            continue;
          }
          const There there(open, value.data(), value.size() * sizeof(float));
          const auto address = reinterpret_cast<std::uintptr_t>(there.memory);
          // The tensor is freed before the node uses the value.
          const auto staged = stage->Take({.address = address, .elements = elements}, true, {});
          staged->Reach([&](std::function<void()> task) { posts.Post(std::move(task)); });
          device.Do(id, [staged](Node& node, Time now) {
            node.worker().Submit(
                0, {.value = staged->values().data(), .owner = staged->owner(), .device = staged},
                now);
          });
        }
        host.Drive();
        device.Drive();
        while (device.Count(Event::Kind::kValueReady) < device.workers.size()) {
          device.Do(device.workers.front(), [task = posts.Next()](Node&, Time) { task(); });
          device.Drive();
        }
        for (const NodeId id : host.workers) CHECK_EQ(device.Value(id, 0), host.Value(id, 0));
      }
    }
  });
}

TEST(StagesCopyTensorsOfAnyType) {
  for (const DeviceStaging::Open& open : check::Devices()) {
    Random random(7);
    const std::size_t n = 1003;
    std::vector<float> values(n), back(n);
    for (float& value : values) value = check::Uniform(random, -9, 9);
    std::vector<std::uint16_t> half(n), bfloat(n);
    kernels::Narrow(values.data(), half.data(), n);
    kernels::NarrowBfloat(values.data(), bfloat.data(), n);
    const auto stage = std::make_shared<DeviceStaging>(open, 1 << 20);
    const auto across = [&](const void* from, std::size_t size, io::Width width) {
      const There there(open, from, n * size);
      const io::DeviceTensor tensor{reinterpret_cast<std::uintptr_t>(there.memory), width, n, nullptr};
      stage->Fetch(tensor, back);
      const auto kept = back;
      stage->Fill(std::vector<float>(n), tensor, {});
      const auto taken = stage->Take(tensor, true, {});
      stage->Fill(kept, tensor, there.queue->stream());
      stage->Fetch(tensor, back);
      CHECK(back == kept);
      there.queue->Copy(back.data(), taken->values().data(), n * sizeof(float));
      there.queue->Wait();
      CHECK(back == std::vector<float>(n));
      return kept;
    };
    CHECK(across(values.data(), 4, io::Width::kFloat32) == values);
    std::vector<float> expected(n);
    kernels::Widen(reinterpret_cast<std::byte*>(half.data()), expected.data(), n);
    CHECK(across(half.data(), 2, io::Width::kFloat16) == expected);
    kernels::WidenBfloat(reinterpret_cast<std::byte*>(bfloat.data()), expected.data(), n);
    CHECK(across(bfloat.data(), 2, io::Width::kBfloat16) == expected);
  }
}

TEST(ValuesAreDecodedOnDevicesAsOnTheHost) {
  check::ForSeeds(12, [](std::uint64_t seed) {
    for (const DeviceStaging::Open& open : check::Devices()) {
      Random random(seed);
      check::Plan plan;
      plan.parties = {2};
      plan.frame_bytes = 64;
      const auto half = NativeCodecs::Instance().Create("fp16", {});
      const bool by_size = Between(random, 0, 1) == 1;
      plan.lan_pull.codecs = {half};
      if (by_size) {  // small shards are dense
        plan.lan_pull.codecs = {std::make_shared<BySizeFactory>(
            60, CodecChain::Factories{}, CodecChain::Factories{half})};
      }
      Cluster host(seed, plan), device(seed, plan);
      const auto elements = static_cast<std::uint32_t>(Between(random, 1, 400));
      const auto shards = host.RandomShards(elements, 3);
      const bool all = !by_size || std::all_of(shards.begin(), shards.end(), [](auto& shard) {
        return shard.elements >= 60;
      });
      for (Cluster* cluster : {&host, &device}) {
        cluster->Declare(0, elements, shards);
        cluster->Init(0, std::vector<float>(elements));
        cluster->RequestAll(0);
        cluster->Drive();
      }
      const NodeId id = device.workers.front();
      device.Do(id, [](Node& node, Time) { node.worker().KeepEncoded(0); });
      const auto stage = std::make_shared<DeviceStaging>(open, 1 << 20);
      for (int round = 0; round < 3; ++round) {
        for (const NodeId each : host.workers) {
          const auto value = host.RandomValues(elements);
          host.Push(each, 0, value);
          device.Push(each, 0, value);
        }
        host.Drive();
        device.Drive();
        const There there(open, std::vector<float>(elements).data(), elements * sizeof(float));
        const io::DeviceTensor tensor{.address = reinterpret_cast<std::uintptr_t>(there.memory),
                                .elements = elements};
        device.Do(id, [&](Node& node, Time) {
          const auto encoded = node.worker().EncodedValue(0);
          CHECK_EQ(encoded.size(), all ? shards.size() : 0u);
          for (const Worker::Encoded& shard : encoded) {
            const auto decode = [&](kernels::DeviceContext& device, const Parts& parts, float* out) {
              shard.decoder->DecodeOn(device, parts, out);
            };
            stage->Fill(shard.parts, decode, tensor, shard.offset, {})->Wait();
          }
        });
        if (all) {
          std::vector<float> found(elements);
          stage->Fetch(tensor, found);
          CHECK_EQ(found, host.Value(id, 0));
        }
        for (const NodeId each : host.workers) CHECK_EQ(device.Value(each, 0), host.Value(each, 0));
      }
    }
  });
}

TEST(TensorsOfSeveralDevicesArePushedAsTheirSum) {
  check::ForSeeds(10, [](std::uint64_t seed) {
    for (const DeviceStaging::Open& open : check::Devices()) {
      Random random(seed);
      const std::size_t n = Between(random, 0, 700);
      const auto first = std::make_shared<DeviceStaging>(open, 1 << 20);
      const auto second = std::make_shared<DeviceStaging>(open, 1 << 20);  // as on another device
      std::vector<std::unique_ptr<There>> there;
      std::vector<DeviceStaging::Term> terms;
      std::vector<float> expected(n);
      const std::uint64_t count = Between(random, 1, 12);
      for (std::uint64_t i = 0; i < count; ++i) {
        std::vector<float> values(n);
        for (float& value : values) value = check::Uniform(random, -9, 9);
        io::DeviceTensor tensor{.width = io::Width::kFloat32, .elements = n};
        if (Between(random, 0, 3) > 0) {
          there.push_back(std::make_unique<There>(open, values.data(), n * sizeof(float)));
        } else {
          std::vector<std::uint16_t> narrow(n);
          const bool half = Between(random, 0, 1) == 1;
          tensor.width = half ? io::Width::kFloat16 : io::Width::kBfloat16;
          (half ? kernels::Narrow : kernels::NarrowBfloat)(values.data(), narrow.data(), n);
          there.push_back(std::make_unique<There>(open, narrow.data(), n * 2));
          (half ? kernels::Widen : kernels::WidenBfloat)(
              reinterpret_cast<const std::byte*>(narrow.data()), values.data(), n);
        }
        for (std::size_t k = 0; k < n; ++k) expected[k] = i == 0 ? values[k] : expected[k] + values[k];
        tensor.address = reinterpret_cast<std::uintptr_t>(there.back()->memory);
        terms.push_back({i > 0 && Between(random, 0, 1) == 1 ? second : first, tensor, {}});
      }
      const auto taken = first->TakeSum(terms);
      CHECK_EQ(taken->values().size(), n);
      there.clear();  // the tensors may be freed now
      std::vector<float> found(n);
      const auto queue = open();
      queue->Copy(found.data(), taken->values().data(), n * sizeof(float));
      queue->Wait();
      CHECK(found == expected);
    }
  });
}

TEST(DevicesAreTimed) {
  for (const DeviceStaging::Open& open : check::Devices()) {
    for (const std::uint64_t elements : {0u, 1u, 5000u}) {
      const kernels::Timings timings = kernels::TimeQueue(*open(), elements, 3);
      for (const auto* seconds : {&timings.to_host, &timings.to_device, &timings.encode, &timings.update}) {
        CHECK_EQ(seconds->size(), 3u);
        for (const double each : *seconds) CHECK(each > 0 && each < 10);
      }
    }
  }
}

TEST(OnlyEncodedValuesAreCopiedToTheHost) {
  for (const DeviceStaging::Open& open : check::Devices()) {
    const std::uint32_t n = 5000;
    const std::vector<float> values(n, 1.5f);
    const There there(open, values.data(), n * sizeof(float));
    const auto address = reinterpret_cast<std::uintptr_t>(there.memory);
    const auto stage = std::make_shared<DeviceStaging>(open, 1 << 20);
    const auto staged = stage->Take({.address = address, .elements = n}, false, {});
    CHECK(staged->values().data() == reinterpret_cast<const float*>(there.memory));  // not copied there
    Posts posts;
    staged->Reach([&](std::function<void()> task) { posts.Post(std::move(task)); });
    CodecChain chain({NativeCodecs::Instance().Create("fp16", {})}, ShardInfo{});
    bool arrived = false;
    staged->Fetch(
        Parts::Dense(n, staged->values().data(), nullptr),
        [&](kernels::DeviceContext& device, Parts& parts) { CHECK_EQ(chain.EncodeOn(device, parts), 1u); },
        [&](const std::shared_ptr<Parts>& parts, std::uint64_t rows, Time) {
          arrived = true;
          CHECK_EQ(rows, n);
          CHECK_EQ(parts->Find("values")->bits, 16u);
        });
    posts.Next()();
    CHECK(arrived);
    // Wait until all buffers have been returned to their pools.
    for (int tries = 0; stage->pinned() == 0 && tries < 2000; ++tries) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    CHECK_EQ(stage->pinned(), n * sizeof(std::uint16_t));
  }
}

}  // namespace
}  // namespace geomx
