// Where the operations of MXNet's engine (mxnet_engine.cc) go: to the node of a live run, or into
// the queue of a simulated worker (engine_queue.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "io/loop.h"

namespace geomx {

class EngineTarget {
 public:
  // The value, or nothing and why it will never arrive.
  using Arrived = std::function<void(std::span<const float> value, const std::string& why_not)>;

  virtual ~EngineTarget() = default;
  // An operation that pushes runs; `number` counts operations in the order in which the script made
  // them. `value` may be read until `reader` is released.
  virtual void Push(std::uint64_t number, Key key, std::span<const float> value,
                    std::shared_ptr<const void> reader, const io::PushOptions& options) = 0;
  // An operation that pulls runs. `arrived` is called once, by any thread.
  virtual void WhenReady(std::uint64_t number, Key key, Round round, Arrived arrived) = 0;
  // The local steps that the script has made (io::PushOptions::made), for a push made now.
  virtual std::uint32_t made() const { return 0; }
};

class LoopTarget final : public EngineTarget {
 public:
  explicit LoopTarget(std::shared_ptr<io::Loop> loop) : loop_(std::move(loop)) {}

  void Push(std::uint64_t, Key key, std::span<const float> value,
            std::shared_ptr<const void> reader, const io::PushOptions& options) override {
    loop_->Push(key, value, std::move(reader), options);
  }

  void WhenReady(std::uint64_t, Key key, Round round, Arrived arrived) override {
    io::Loop* const loop = loop_.get();  // it makes the call below, so it still exists
    loop_->WhenReady(key, round, [arrived = std::move(arrived), loop](std::span<const float> value) {
      if (!value.empty()) loop->steps().Return();
      const auto failure = value.empty() ? loop->failure() : std::nullopt;
      arrived(value, failure ? "node " + failure->name + " was lost: " + failure->reason
                             : "the key-value store was closed before the value came");
    });
  }

  std::uint32_t made() const override { return loop_->made(); }

 private:
  std::shared_ptr<io::Loop> loop_;
};

}  // namespace geomx
