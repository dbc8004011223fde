// Push and pull as operations of MXNet's own engine.
//
// MXNet runs an operator when its inputs are ready and its outputs are no longer in use. Our two
// operations take part in that: Python returns at once, a push starts when the backward pass has
// written the gradient, a forward pass waits for the pull that fills its weights, and no thread
// waits for the network. An asynchronous operation of the engine ends when its callback is called:
// for a push when its memory is free again, for a pull when the value has arrived. In a live run the
// loop's thread calls it; in a simulated run, the thread that takes pushes from the queue and fills
// pulls.
//
// MXNet's headers are not needed. The library is already loaded, so Python passes the address of
// the one C function used, and the two layouts below are those of 1.9 (include/mxnet/c_api.h,
// include/mxnet/engine.h). Only geomx.mxnet uses this file.
#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

#include "bindings/engine_queue.h"
#include "bindings/engine_target.h"
#include "io/loop.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace geomx {
namespace {

using Run = void (*)(void* context, void* on_complete, void* operation);
using Delete = void (*)(void* operation);
using PushAsync = int (*)(Run run, void* operation, Delete del, const void* context,
                          void* const* reads, int read_count, void* const* writes, int write_count,
                          const void* property, int priority, const char* name, bool wait);

struct CpuContext {
  std::int32_t device_type = 1;
  std::int32_t device_id = 0;
};

constexpr std::int32_t kAsync = 4;  // mxnet::FnProperty::kAsync

// The engine's callback: by copying its three words it can be called later and from anywhere.
class Completion {
 public:
  explicit Completion(const void* on_complete) { std::memcpy(&words_, on_complete, sizeof words_); }

  // MXNet passes errors as dmlc::Error, which adds nothing to std::runtime_error. Arrays that depend
  // on this operation raise it when they are read.
  void operator()(const std::runtime_error* error = nullptr) const {
    words_.call(words_.engine, words_.block, error);
  }

 private:
  struct {
    void (*call)(void* engine, void* block, const void* error);
    void* engine;
    void* block;
  } words_;
};

struct PushOperation {
  std::shared_ptr<EngineTarget> target;
  std::uint64_t number;
  Key key;
  std::span<const float> value;
  io::PushOptions options;
};

struct PullOperation {
  std::shared_ptr<EngineTarget> target;
  std::uint64_t number;
  Key key;
  Round round;
  std::span<float> out;
};

// Ends a push when the last reader of its memory releases it.
struct Reading {
  Completion done;
  ~Reading() { done(); }
};

void RunPush(void*, void* on_complete, void* operation) {
  const auto& push = *static_cast<const PushOperation*>(operation);
  const auto reading = std::make_shared<Reading>(Completion(on_complete));
  try {
    push.target->Push(push.number, push.key, push.value, reading, push.options);
  } catch (const std::exception&) {
    // The node was lost. There is no array to carry the error; the pull that follows has one.
  }
}

void RunPull(void*, void* on_complete, void* operation) {
  const auto& pull = *static_cast<const PullOperation*>(operation);
  const Completion done(on_complete);
  const std::span<float> out = pull.out;
  try {
    pull.target->WhenReady(pull.number, pull.key, pull.round,
                           [done, out](std::span<const float> value, const std::string& why_not) {
                             if (value.size() == out.size()) {
                               std::memcpy(out.data(), value.data(), value.size_bytes());
                               done();
                               return;
                             }
                             const std::runtime_error error(why_not);
                             done(&error);
                           });
  } catch (const std::exception& problem) {
    const std::runtime_error error(problem.what());
    done(&error);
  }
}

template <typename Operation>
void DeleteOperation(void* operation) {
  delete static_cast<Operation*>(operation);
}

// Addresses come from ctypes, as numbers.
class MxnetEngine {
 public:
  MxnetEngine(std::shared_ptr<EngineTarget> target, std::uintptr_t push_async)
      : target_(std::move(target)), push_async_(reinterpret_cast<PushAsync>(push_async)) {}
  MxnetEngine(std::shared_ptr<io::Loop> loop, std::uintptr_t push_async)
      : MxnetEngine(std::make_shared<LoopTarget>(std::move(loop)), push_async) {}

  void Push(Key key, std::uintptr_t data, std::size_t elements, std::uintptr_t array,
            std::uintptr_t order, float loss, bool last, double not_before_s, int priority) {
    auto push = std::make_unique<PushOperation>(PushOperation{
        target_, number_++, key, {reinterpret_cast<const float*>(data), elements},
        {.loss = loss, .last = last, .not_before_s = not_before_s, .made = target_->made()}});
    void* const reads[] = {reinterpret_cast<void*>(array), reinterpret_cast<void*>(order)};
    Submit(std::move(push), &RunPush, reads, {}, priority, "geomx_push");
  }

  void Pull(Key key, Round round, std::uintptr_t data, std::size_t elements, std::uintptr_t array,
            int priority) {
    auto pull = std::make_unique<PullOperation>(
        PullOperation{
        target_, number_++, key, round, {reinterpret_cast<float*>(data), elements}});
    void* const writes[] = {reinterpret_cast<void*>(array)};
    Submit(std::move(pull), &RunPull, {}, writes, priority, "geomx_pull");
  }

 private:
  template <typename Operation>
  void Submit(std::unique_ptr<Operation> operation, Run run, std::span<void* const> reads,
              std::span<void* const> writes, int priority, const char* name) {
    const CpuContext context;
    // From here on the engine owns the operation, which may have finished when this returns.
    const int failed =
        push_async_(run, operation.release(), &DeleteOperation<Operation>, &context, reads.data(),
                    static_cast<int>(reads.size()), writes.data(), static_cast<int>(writes.size()),
                    &kAsync, priority, name, false);
    if (failed != 0) throw std::runtime_error(std::string("MXNet's engine refused ") + name);
  }

  std::shared_ptr<EngineTarget> target_;
  PushAsync push_async_;
  std::atomic<std::uint64_t> number_ = 0;  // of operations made
};

}  // namespace
}  // namespace geomx

void init_mxnet_engine(nb::module_& m) {
  using geomx::MxnetEngine;

  nb::class_<MxnetEngine>(m, "MxnetEngine",
                          "Push and pull as operations of MXNet's engine, for a loop or a queue. "
                          "`push_async` is the address of MXEnginePushAsyncND. Arrays are given by "
                          "handle, with the address of their float32 data.")
      .def(nb::init<std::shared_ptr<geomx::EngineQueue>, std::uintptr_t>(), "queue"_a, "push_async"_a)
      .def(nb::init<std::shared_ptr<geomx::io::Loop>, std::uintptr_t>(), "loop"_a, "push_async"_a)
      .def("push", &MxnetEngine::Push, "key"_a, "data"_a, "elements"_a, "array"_a, "order"_a,
           "loss"_a, "last"_a, "not_before_s"_a, "priority"_a,
           nb::call_guard<nb::gil_scoped_release>(),
           "Contribute `array` once it has been written and nothing writes `order`; `array` is not "
           "overwritten before its bytes have left.")
      .def("pull", &MxnetEngine::Pull, "key"_a, "round"_a, "data"_a, "elements"_a, "array"_a,
           "priority"_a, nb::call_guard<nb::gil_scoped_release>(),
           "Fill `array` with the value of `round` or a later one, when it has arrived.");
}
