// The staging of tensors between one device and the store: onto the wire, and back.
//
// It has three queues on its device: one synchronised with the application's streams, one for
// encoding, one for copies to the host, so that a value is copied while the next one is encoded and
// earlier ones are sent. Its own thread (completion_thread.h) waits for copies and calls back; the
// device waits only for the streams that it was asked to wait for. All memory comes from pools
// (kernels/buffer_pool.h), with a bound on pinned memory.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/device_value.h"
#include "io/completion_thread.h"
#include "kernels/buffer_pool.h"
#include "kernels/queue.h"
#include "kernels/device.h"

namespace geomx::io {

// The element type of a tensor.
enum class Width { kFloat32, kFloat16, kBfloat16 };

// A contiguous tensor; `owner` keeps its memory alive.
struct DeviceTensor {
  std::uintptr_t address = 0;
  Width width = Width::kFloat32;
  std::uint64_t elements = 0;
  std::shared_ptr<const void> owner = {};

  std::size_t bytes() const { return elements * (width == Width::kFloat32 ? 4 : 2); }
};

using Stream = std::optional<std::uintptr_t>;  // nothing: unknown

class DeviceStaging : public std::enable_shared_from_this<DeviceStaging> {
 public:
  using Open = std::function<std::unique_ptr<kernels::Queue>()>;
  using Post = std::function<void(std::function<void()>)>;  // to the node's thread

  // `most_kept`: bytes of each kind of memory that are kept between values; `piece`: bytes copied
  // to the host between two callbacks.
  DeviceStaging(const Open& open, std::size_t most_kept, std::size_t piece = std::size_t{4} << 20);

  std::string device() const { return outer_->device().name; }
  // The handle of the queue that is synchronised with the application's streams.
  std::uintptr_t stream() const { return outer_->stream(); }
  std::size_t pinned() { return pinned_->kept(); }

  // Work queued here from now on runs after the work queued on `producer` so far.
  void After(std::uintptr_t producer);

  // Copies a tensor's values to `out`, and waits for them.
  void Fetch(const DeviceTensor& tensor, std::span<float> out);
  // Copies values into a tensor. `consumer` waits for them; if it is unknown, the caller does.
  void Fill(std::span<const float> values, const DeviceTensor& tensor, const Stream& consumer);
  // The same for a shard, from element `offset` on, that is copied to the device encoded and
  // decoded there. Returns a marker to wait for; not needed if `consumer` is known.
  using Decode = std::function<void(kernels::DeviceContext& device, const Parts& there, float* out)>;
  std::shared_ptr<kernels::Mark> Fill(const Parts& encoded, const Decode& decode,
                                      const DeviceTensor& tensor, std::uint64_t offset,
                                      const Stream& consumer);

  // A tensor's values as float32 on the device, to be sent.
  class Value;
  // With `copy` the tensor may be changed afterwards: by later work on `producer` or, if that is
  // unknown, as soon as this returns. Without, it must not change until its owner is released.
  std::shared_ptr<Value> Take(const DeviceTensor& tensor, bool copy, const Stream& producer);

  // One of several tensors of the same size; `stage` is its device's.
  struct Term {
    std::shared_ptr<DeviceStaging> stage;
    DeviceTensor tensor;
    Stream producer;
  };
  // The sum of the terms, in their order; those of other devices are copied here first. All may be
  // changed afterwards, as with `copy`.
  std::shared_ptr<Value> TakeSum(std::span<const Term> terms);

 private:
  // A marker that passes when all work that waited for other streams is done.
  std::shared_ptr<kernels::Mark> Ready();
  void Lift(Parts parts, const kernels::Mark& complete, const DeviceValue::Encode& encode,
            const DeviceValue::Arrival& arrival, const Post& post);

  std::unique_ptr<kernels::Queue> outer_, encoding_, copying_;
  std::shared_ptr<kernels::BufferPool> memory_, pinned_;
  std::size_t piece_;
  std::mutex outside_;  // of outer_
  std::mutex inside_;   // of encoding_ and copying_
  CompletionThread completions_;  // destroyed first
};

// A value to be pushed; the loop supplies `Post` to reach its thread.
class DeviceStaging::Value final : public DeviceValue {
 public:
  Value(std::shared_ptr<DeviceStaging> stage, const float* values, std::uint64_t elements,
        std::shared_ptr<kernels::Mark> complete, std::shared_ptr<const void> owner)
      : stage_(std::move(stage)),
        values_(values),
        elements_(elements),
        complete_(std::move(complete)),
        owner_(std::move(owner)) {}

  std::span<const float> values() const { return {values_, elements_}; }
  const std::shared_ptr<const void>& owner() const { return owner_; }
  void Reach(Post post) { post_ = std::move(post); }

  void Fetch(Parts parts, const Encode& encode, Arrival arrival) override {
    stage_->Lift(std::move(parts), *complete_, encode, arrival, post_);
  }

 private:
  std::shared_ptr<DeviceStaging> stage_;
  const float* values_;
  std::uint64_t elements_;
  std::shared_ptr<kernels::Mark> complete_;
  std::shared_ptr<const void> owner_;
  Post post_;
};

}  // namespace geomx::io
