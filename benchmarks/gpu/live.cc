// Two parties train live on a device's tensors, and end where the same training on the host's arrays
// ends. Prints one JSON object.
//
//   device_live DEVICE ELEMENTS STEPS
//
// All of it in one process, over loopback: a scheduler, a global server that descends, and in each party
// a server and a worker. What is learnt is the mean of what the workers see, by least squares: weight,
// sample and gradient lie on the device, and the gradient is computed there. Pushes inside a party are
// encoded to half precision, on the device where tensors lie there; servers then make sums sparse and
// take the optimizer's steps on the device too. Nothing of Python is needed, so that this can be built
// wherever the kernels can.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <random>

#include "core/natives.h"
#include "io/loop.h"
#include "kernels/queue.h"

namespace geomx {
namespace {

using io::Loop;
using io::DeviceStaging;

constexpr double kPatience = 60.0;
constexpr NodeId kScheduler = 0, kGlobal = 1, kServers = 2, kWorkers = 4, kNodes = 6;
constexpr Key kKey = 0;
const char* const kNames[] = {"scheduler", "global", "server0", "server1", "worker0", "worker1"};

Role RoleOf(NodeId id) {
  if (id >= kWorkers) return Role::kWorker;
  if (id >= kServers) return Role::kServer;
  return id == kGlobal ? Role::kGlobalServer : Role::kScheduler;
}

class Cluster {
 public:
  // Servers work on `device`, if one is named.
  Cluster(std::uint32_t elements, const std::string& device) {
    std::vector<NodeConfig> configs(kNodes);
    const auto peer = [](NodeId id) { return Peer{id, kNames[id], RoleOf(id)}; };
    const auto link = [&](NodeId child, NodeId parent) {
      configs[child].parents.push_back(parent);
      configs[child].peers.push_back(peer(parent));
      configs[parent].children.push_back(child);
      configs[parent].peers.push_back(peer(child));
      configs[parent].quorum = static_cast<std::uint32_t>(configs[parent].children.size());
    };
    for (NodeId id = 0; id < kNodes; ++id) {
      configs[id].id = id;
      configs[id].name = kNames[id];
      configs[id].role = RoleOf(id);
      configs[id].open = true;
      if (id == kScheduler) continue;
      configs[id].scheduler = kScheduler;
      configs[id].peers.push_back(peer(kScheduler));
      configs[kScheduler].peers.push_back(peer(id));
    }
    const auto codec = [](const char* name, const Options& options) {
      return LinkPlan{.codecs = {NativeCodecs::Instance().Create(name, options)}, .slicers = {}};
    };
    const LinkPlan halves = codec("fp16", {});
    const LinkPlan sparse = codec("bisparse", {{"ratio", 0.2}, {"momentum", 0}, {"masking", 0}, {"flush", 0},
                                               {"clip", 0}, {"warmup_rounds", 0}, {"exact", 0}});
    for (NodeId party = 0; party < 2; ++party) {
      const NodeId server = kServers + party, worker = kWorkers + party;
      link(server, kGlobal);
      link(worker, server);
      configs[worker].links[{server, Direction::kPush}] = halves;
      configs[server].links[{worker, Direction::kPush}] = halves;
      configs[server].links[{kGlobal, Direction::kPush}] = sparse;
      configs[kGlobal].links[{server, Direction::kPush}] = sparse;
    }
    for (NodeId id = kGlobal; id < kWorkers && !device.empty(); ++id) {
      const auto open = [&] { return kernels::OpenQueue(device); };
      configs[id].device = std::make_shared<kernels::Device>(open, 0);
    }
    for (NodeId id = 0; id < kNodes; ++id) {
      loops_.push_back(std::make_unique<Loop>("127.0.0.1", 0, "benchmark"));
    }
    for (NodeId id = 1; id < kNodes; ++id) {
      loops_[id]->StartJoin(loops_[kScheduler]->address(), kNames[id], id, kPatience);
    }
    loops_[kScheduler]->Run(configs[kScheduler], {}, std::nullopt);
    for (NodeId id = 1; id < kNodes; ++id) {
      loops_[id]->Run(configs[id], loops_[id]->WaitJoined(kPatience).value().roster, std::nullopt);
    }
    for (auto& loop : loops_) loop->WaitStarted(kPatience).value();
    for (NodeId party = 0; party < 2; ++party) {
      worker(party).Declare(kKey, elements,
                            {{.offset = 0, .elements = elements, .server = 0}});
    }
    const auto start = std::make_shared<std::vector<float>>(elements);
    worker(0).Init(kKey, *start, start);
    worker(0).Command("optimizer\nsgd\nlearning_rate 0.1\n");
    for (NodeId party = 0; party < 2; ++party) {
      worker(party).Request(kKey);
      worker(party).Wait(kKey, 0, kPatience).value();
    }
  }

  Loop& worker(NodeId party) { return *loops_[kWorkers + party]; }

  ~Cluster() {
    for (NodeId party = 0; party < 2; ++party) worker(party).Leave();
    for (auto& loop : loops_) loop->WaitStopped(kPatience);
    for (auto& loop : loops_) loop->Close();
  }

 private:
  std::vector<std::unique_ptr<Loop>> loops_;
};

// What a worker of `party` sees in each step, with its sign turned.
class Samples {
 public:
  Samples(NodeId party, std::size_t elements) : random_(party), values_(elements) {}
  const std::vector<float>& Next() {
    std::uniform_real_distribution<float> noise(-1.0f, 1.0f);
    for (std::size_t i = 0; i < values_.size(); ++i) {
      values_[i] = -static_cast<float>(i % 10) - noise(random_);
    }
    return values_;
  }

 private:
  std::mt19937 random_;
  std::vector<float> values_;
};

std::vector<float> OnHost(Loop& loop, NodeId party, std::size_t elements, int steps) {
  Samples samples(party, elements);
  std::vector<float> weight(elements);
  for (int step = 0; step < steps; ++step) {
    const auto gradient = std::make_shared<std::vector<float>>(samples.Next());
    for (std::size_t i = 0; i < elements; ++i) (*gradient)[i] += weight[i];
    const Round round = loop.Push(kKey, *gradient, gradient);
    loop.Wait(kKey, round, kPatience).value();
    loop.Value(kKey, weight);
  }
  return weight;
}

std::vector<float> OnDevice(Loop& loop, NodeId party, std::size_t elements, int steps,
                            const std::string& device) {
  const auto open = [&] { return kernels::OpenQueue(device); };
  const auto queue = open();
  const auto stage = std::make_shared<DeviceStaging>(open, std::size_t{256} << 20);
  const std::size_t bytes = elements * sizeof(float);
  const auto take = [&] { return reinterpret_cast<float*>(queue->Take(bytes)); };
  float *const weight = take(), *const sample = take(), *const gradient = take();
  const auto tensor = [&](float* where) {
    return io::DeviceTensor{.address = reinterpret_cast<std::uintptr_t>(where), .elements = elements};
  };
  queue->Clear(weight, bytes);
  Samples samples(party, elements);
  std::vector<float> value(elements);
  for (int step = 0; step < steps; ++step) {
    queue->Copy(sample, samples.Next().data(), bytes);
    queue->Clear(gradient, bytes);
    const float* const terms[] = {sample, weight};
    queue->Add(gradient, terms, 2, elements);
    stage->After(queue->stream());
    const Round round = loop.Push(kKey, stage->Take(tensor(gradient), true, queue->stream()));
    loop.Wait(kKey, round, kPatience).value();
    loop.Value(kKey, value);
    stage->Fill(value, tensor(weight), queue->stream());
    queue->Wait();  // the sample's memory on the host is drawn anew
  }
  queue->Copy(value.data(), weight, bytes);
  queue->Wait();
  for (float* memory : {weight, sample, gradient}) {
    queue->Give(reinterpret_cast<std::byte*>(memory));
  }
  return value;
}

// The weights of both workers.
template <class Work>
std::vector<std::vector<float>> Train(std::uint32_t elements, const std::string& servers,
                                      Work work) {
  Cluster cluster(elements, servers);
  std::vector<std::future<std::vector<float>>> workers;
  for (NodeId party = 0; party < 2; ++party) {
    workers.push_back(std::async(std::launch::async, work, std::ref(cluster.worker(party)), party));
  }
  std::vector<std::vector<float>> weights;
  for (auto& worker : workers) weights.push_back(worker.get());
  return weights;
}

int Main(const std::string& device, std::uint32_t elements, int steps) {
  const auto start = std::chrono::steady_clock::now();
  const auto expected = Train(elements, "", [&](Loop& loop, NodeId party) {
    return OnHost(loop, party, elements, steps);
  });
  const auto found = Train(elements, device, [&](Loop& loop, NodeId party) {
    return OnDevice(loop, party, elements, steps, device);
  });
  double difference = 0, error = 0;
  for (NodeId party = 0; party < 2; ++party) {
    for (std::size_t i = 0; i < elements; ++i) {
      difference = std::max(difference, std::fabs(double{found[party][i]} - expected[party][i]));
      error = std::max(error, std::fabs(double{found[party][i]} - static_cast<double>(i % 10)));
    }
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  std::printf("{\"device\": \"%s\", \"elements\": %u, \"steps\": %d, \"largest_difference\": %.9g, "
              "\"largest_error\": %.9g, \"seconds\": %.2f}\n",
              device.c_str(), elements, steps, difference, error, took.count());
  return 0;
}

}  // namespace
}  // namespace geomx

int main(int count, char** words) {
  if (count != 4) {
    std::fprintf(stderr, "usage: device_live DEVICE ELEMENTS STEPS\n");
    return 2;
  }
  try {
    return geomx::Main(words[1], static_cast<std::uint32_t>(std::strtoul(words[2], nullptr, 10)),
                       std::atoi(words[3]));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
