// A worker's state, as journals and standbys keep it.
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "core/worker.h"

namespace geomx {

void Worker::Exchange(Archive& archive) {
  archive(barriers_, released_, asks_states_, told_, unanswered_);
  std::uint64_t count = tensors_.size();
  archive(count);
  auto next = tensors_.begin();
  for (std::uint64_t i = 0; i < count; ++i) {
    Key key = archive.loading() ? 0 : (*next).first;
    archive(key);
    Exchange(archive, archive.loading() ? *tensors_.TryEmplace(key).first : (*next).second);
    if (!archive.loading()) ++next;
  }
}

void Worker::Exchange(Archive& archive, Tensor& tensor) const {
  std::vector<ShardInfo> shards;
  if (tensor.shards) shards = *tensor.shards;
  archive(shards);
  if (archive.loading()) {
    if (shards.empty()) throw StateError("a tensor without shards");
    const ShardInfo last = shards.back();
    try {
      tensor.shards = Cut(last.key, last.offset + last.elements, std::move(shards));
    } catch (const std::invalid_argument& error) {
      throw StateError(error.what());
    }
  }
  archive(tensor.missing, tensor.submitted, tensor.sent, tensor.complete, tensor.reached, tensor.made, tensor.waiting,
          tensor.has_value, tensor.absent);
  tensor.arrived.Exchange(archive, static_cast<std::uint32_t>(tensor.shards->size()));
  bool full = tensor.content != nullptr;
  archive(full);
  if (!full) return;
  Content& content = tensor.Contents();
  if (!content.borrowed.empty()) Archive::CannotTell("a value in the memory of its messages");
  archive(content.value, content.encoded);
  std::uint64_t queued = content.queue.size();
  archive(queued);
  auto push = content.queue.begin();
  for (std::uint64_t i = 0; i < queued; ++i) {
    Exchange(archive, archive.loading() ? content.queue.emplace_back() : *push++, tensor.elements());
  }
}

void Worker::Exchange(Archive& archive, Push& push, std::uint64_t elements) {
  if (push.device) Archive::CannotTell("a push from a device");
  bool there = push.value != nullptr;
  archive(push.loss, push.last, push.absent, push.made, there);
  if (!there) return;
  const auto copy = std::make_shared<Buffer>();
  if (!archive.loading()) copy->assign(push.value, push.value + elements);
  archive(*copy);
  if (!archive.loading()) return;
  if (copy->size() != elements) throw StateError("a push of the wrong size");
  push.value = copy->data();
  push.owner = copy;
}

}  // namespace geomx
