// A loop's verbs for several keys at a time: one lock and one task of its thread for all of them.
#include <algorithm>
#include <stdexcept>
#include <utility>

#include "io/loop.h"

namespace geomx::io {

void Loop::PushAll(std::span<const std::pair<Key, std::span<const float>>> values,
                   const std::shared_ptr<const void>& owner, const PushOptions& options) {
  state_->status.ThrowIfFailed();
  std::vector<std::pair<Key, Worker::Push>> pushes;
  pushes.reserve(values.size());
  std::lock_guard lock(verbs_);
  for (const auto& [key, value] : values) FindTensor(key, value.size());
  for (const auto& [key, value] : values) {
    ++tensors_[key].submitted;
    if (WasDone(RecordKind::kSubmit, key)) continue;
    state_->steps.Push(key);
    pushes.emplace_back(key, options.Applied({.value = value.data(), .owner = owner}));
    if (options.made == 0) pushes.back().second.made = made_;
  }
  const Time not_before = Nanoseconds(options.not_before_s);
  Driver& driver = state_->driver;
  driver.Post([&driver, not_before, pushes = std::move(pushes)]() mutable {
    for (auto& [key, push] : pushes) driver.Submit(key, std::move(push), not_before);
  });
  state_->steps.Return();
}

std::optional<double> Loop::WaitAll(std::span<const std::pair<Key, Round>> values, double timeout_s) {
  const Time deadline = Now() + Nanoseconds(timeout_s);
  double last = 0;
  for (const auto& [key, round] : values) {
    const auto complete = Wait(key, round, std::max(0.0, Seconds(deadline - Now())));
    if (!complete) return std::nullopt;
    last = std::max(last, *complete);
  }
  return last;
}

void Loop::Value(Key key, std::span<float> out) {
  const std::pair<Key, std::span<float>> outs[] = {{key, out}};
  Values(outs);
}

void Loop::Values(std::span<const std::pair<Key, std::span<float>>> outs) {
  Call([&] {
    Worker& worker = state_->driver.node().worker();
    for (const auto& [key, out] : outs) {
      const auto value = worker.Value(key);
      if (value.size() != out.size()) {
        throw std::invalid_argument("key " + std::to_string(key) + " holds " +
                                    std::to_string(value.size()) + " elements, not " +
                                    std::to_string(out.size()));
      }
      std::copy(value.begin(), value.end(), out.begin());
    }
  });
  state_->steps.Return();
}

}  // namespace geomx::io
