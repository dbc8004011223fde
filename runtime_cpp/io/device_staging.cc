#include "io/device_staging.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "io/clock.h"
#include "kernels/bfloat.h"
#include "kernels/half.h"

namespace geomx::io {
namespace {

using kernels::BufferPool;
using kernels::Mark;

void Move(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

// Converts values at `from`, which have the element type of `tensor`, to float32.
void Store(kernels::Queue& queue, const DeviceTensor& tensor, const std::byte* from, float* to) {
  switch (tensor.width) {
    case Width::kFloat32: return queue.Copy(to, from, tensor.bytes());
    case Width::kFloat16: return queue.Widen(from, to, tensor.elements);
    case Width::kBfloat16: return queue.WidenBfloat(from, to, tensor.elements);
  }
}

}  // namespace

// ---- the stage -------------------------------------------------------------------------------

DeviceStaging::DeviceStaging(const Open& open, std::size_t most_kept, std::size_t piece)
    : outer_(open()),
      encoding_(open()),
      copying_(open()),
      memory_(std::make_shared<BufferPool>(open(), BufferPool::Kind::kDevice, most_kept)),
      pinned_(std::make_shared<BufferPool>(open(), BufferPool::Kind::kPinned, most_kept)),
      piece_(piece) {}

void DeviceStaging::After(std::uintptr_t producer) {
  const std::lock_guard lock(outside_);
  outer_->After(producer);
}

void DeviceStaging::Fetch(const DeviceTensor& tensor, std::span<float> out) {
  const std::shared_ptr<std::byte> buffer = pinned_->Acquire(tensor.bytes());
  std::shared_ptr<Mark> mark;
  {
    const std::lock_guard lock(outside_);
    outer_->Copy(buffer.get(), reinterpret_cast<const void*>(tensor.address), tensor.bytes());
    mark = outer_->Record();
  }
  mark->Wait();
  switch (tensor.width) {
    case Width::kFloat32: return Move(out.data(), buffer.get(), tensor.bytes());
    case Width::kFloat16: return kernels::Widen(buffer.get(), out.data(), out.size());
    case Width::kBfloat16: return kernels::WidenBfloat(buffer.get(), out.data(), out.size());
  }
}

void DeviceStaging::Fill(std::span<const float> values, const DeviceTensor& tensor, const Stream& consumer) {
  const std::shared_ptr<std::byte> buffer = pinned_->Acquire(tensor.bytes());
  auto* narrow = reinterpret_cast<std::uint16_t*>(buffer.get());
  switch (tensor.width) {
    case Width::kFloat32: Move(buffer.get(), values.data(), tensor.bytes()); break;
    case Width::kFloat16: kernels::Narrow(values.data(), narrow, values.size()); break;
    case Width::kBfloat16: kernels::NarrowBfloat(values.data(), narrow, values.size()); break;
  }
  std::shared_ptr<Mark> mark;
  {
    const std::lock_guard lock(outside_);
    outer_->Copy(reinterpret_cast<void*>(tensor.address), buffer.get(), tensor.bytes());
    mark = outer_->Record();
    if (consumer) outer_->Before(*consumer);
  }
  if (!consumer) return mark->Wait();
  // Should the copy fail, the consumer's stream has failed as well.
  completions_.Watch(mark, [buffer, owner = tensor.owner](std::exception_ptr) {});
}

std::shared_ptr<Mark> DeviceStaging::Fill(const Parts& encoded, const Decode& decode, const DeviceTensor& tensor,
                                  std::uint64_t offset, const Stream& consumer) {
  const auto copies = std::make_shared<Parts>(encoded);  // of both kinds of memory
  const std::lock_guard lock(outside_);
  kernels::DeviceContext context{*outer_, *memory_};
  for (Part& part : copies->parts) {
    const std::size_t bytes = part.BytesFor(copies->rows);
    const std::shared_ptr<std::byte> passing = pinned_->Acquire(bytes);
    Move(passing.get(), part.data, bytes);
    auto* there = copies->AllocateOn<std::byte>(context, bytes);
    outer_->Copy(there, passing.get(), bytes);
    part.data = there;
    copies->owners.push_back(passing);
  }
  const bool wide = tensor.width == Width::kFloat32;
  const std::size_t size = wide ? sizeof(float) : sizeof(std::uint16_t);
  auto* target = reinterpret_cast<std::byte*>(tensor.address) + offset * size;
  auto* values = wide ? reinterpret_cast<float*>(target) : copies->AllocateOn<float>(context, copies->elements);
  decode(context, *copies, values);
  auto* narrow = reinterpret_cast<std::uint16_t*>(target);
  if (tensor.width == Width::kFloat16) outer_->Narrow(values, narrow, copies->elements);
  if (tensor.width == Width::kBfloat16) outer_->NarrowBfloat(values, narrow, copies->elements);
  const std::shared_ptr<Mark> mark = outer_->Record();
  if (consumer) outer_->Before(*consumer);
  completions_.Watch(mark, [copies, owner = tensor.owner](std::exception_ptr) {});
  return mark;
}

std::shared_ptr<DeviceStaging::Value> DeviceStaging::Take(const DeviceTensor& tensor, bool copy, const Stream& producer) {
  const auto* values = reinterpret_cast<const float*>(tensor.address);
  std::shared_ptr<const void> owner = tensor.owner;
  std::shared_ptr<std::byte> own;
  if (copy || tensor.width != Width::kFloat32) own = memory_->Acquire(tensor.elements * sizeof(float));
  std::shared_ptr<Mark> mark;
  {
    const std::lock_guard lock(outside_);
    if (own) {
      auto* to = reinterpret_cast<float*>(own.get());
      Store(*outer_, tensor, reinterpret_cast<const std::byte*>(tensor.address), to);
      values = to;
      using Both = std::pair<std::shared_ptr<std::byte>, std::shared_ptr<const void>>;
      owner = std::make_shared<const Both>(own, owner);
    }
    mark = outer_->Record();
    if (copy && producer) outer_->Before(*producer);
  }
  if (copy && !producer) mark->Wait();
  return std::make_shared<Value>(shared_from_this(), values, tensor.elements, mark, owner);
}

std::shared_ptr<Mark> DeviceStaging::Ready() {
  const std::lock_guard lock(outside_);
  return outer_->Record();
}

std::shared_ptr<DeviceStaging::Value> DeviceStaging::TakeSum(std::span<const Term> terms) {
  std::vector<std::shared_ptr<Mark>> ready;  // of other devices, whose locks are taken before ours
  for (const Term& term : terms) {
    ready.push_back(term.stage.get() == this ? nullptr : term.stage->Ready());
  }
  const std::uint64_t n = terms.front().tensor.elements;
  const std::shared_ptr<std::byte> buffer = memory_->Acquire(n * sizeof(float));
  auto* sum = reinterpret_cast<float*>(buffer.get());
  const auto owners = std::make_shared<std::vector<std::shared_ptr<const void>>>();
  owners->push_back(buffer);
  bool known = true;
  std::shared_ptr<Mark> mark;
  {
    const std::lock_guard lock(outside_);
    std::vector<const float*> waiting;  // to be added at once
    const auto add = [&] {
      outer_->Add(sum, waiting.data(), waiting.size(), n);
      waiting.clear();
    };
    for (std::size_t i = 0; i < terms.size(); ++i) {
      const DeviceTensor& tensor = terms[i].tensor;
      const auto* from = reinterpret_cast<const std::byte*>(tensor.address);
      owners->push_back(tensor.owner);
      if (ready[i]) {
        const std::shared_ptr<std::byte> across = memory_->Acquire(tensor.bytes());
        outer_->After(*ready[i]);
        outer_->Copy(across.get(), from, tensor.bytes());
        from = across.get();
        owners->push_back(across);
      }
      if (i == 0) {
        Store(*outer_, tensor, from, sum);
      } else if (tensor.width == Width::kFloat32) {
        waiting.push_back(reinterpret_cast<const float*>(from));
      } else {
        add();
        (*outer_.*(tensor.width == Width::kFloat16 ? &kernels::Queue::WidenAdd
                                                   : &kernels::Queue::WidenBfloatAdd))(from, sum, n);
      }
    }
    add();
    mark = outer_->Record();
    for (const Term& term : terms) {
      known = known && term.producer;
      if (term.producer) outer_->Before(*term.producer);
    }
  }
  if (!known) mark->Wait();
  return std::make_shared<Value>(shared_from_this(), sum, n, mark, owners);
}

void DeviceStaging::Lift(Parts parts, const Mark& complete, const DeviceValue::Encode& encode,
                 const DeviceValue::Arrival& arrival, const Post& post) {
  const std::lock_guard lock(inside_);
  encoding_->After(complete);
  kernels::DeviceContext context{*encoding_, *memory_};
  encode(context, parts);
  copying_->After(*encoding_->Record());

  const auto there = std::make_shared<const Parts>(std::move(parts));  // with its owners
  const auto here = std::make_shared<Parts>(*there);
  here->owners.clear();
  for (Part& part : here->parts) {
    const std::shared_ptr<std::byte> buffer = pinned_->Acquire(part.BytesFor(here->rows));
    part.data = buffer.get();
    here->owners.push_back(buffer);
  }
  const std::uint64_t piece = there->RowsIn(piece_);
  std::uint64_t first = 0;
  do {
    const std::uint64_t end = std::min(there->rows, first + piece);
    for (std::size_t i = 0; i < there->parts.size(); ++i) {
      const Part& from = there->parts[i];
      if (from.whole && first > 0) continue;
      const std::uint64_t at = from.whole ? 0 : from.BytesFor(first);
      auto* to = const_cast<std::byte*>(here->parts[i].data) + at;
      copying_->Copy(to, from.data + at, from.BytesFor(end) - at);
    }
    completions_.Watch(copying_->Record(), [there, here, end, arrival, post](std::exception_ptr failed) {
      post([here, end, arrival, failed] {
        if (failed) std::rethrow_exception(failed);
        arrival(here, end, Now());
      });
    });
    first = end;
  } while (first < there->rows);
}

}  // namespace geomx::io
