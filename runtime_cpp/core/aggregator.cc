#include "core/aggregator.h"

#include <utility>

#include "kernels/sums.h"

namespace geomx {

void Aggregator::Fold(std::span<Buffer> values) {
  if (!started_ && !values.empty()) {
    sum_ = std::move(values.front());
    started_ = true;
    values = values.subspan(1);
  }
  if (values.empty() || sum_.empty()) return;
  std::vector<const float*> terms;
  for (const Buffer& value : values) {
    if (value.size() == sum_.size()) terms.push_back(value.data());
  }
  kernels::Add(sum_.data(), terms.data(), terms.size(), sum_.size());
}

bool Aggregator::Add(NodeId source, std::uint32_t merge_count, Buffer value) {
  const std::size_t place = Place(source);
  if (place == order_.size() || added_[place]) return false;
  added_[place] = true;
  merge_count_ += merge_count;
  if (place != next_) {
    waiting_.emplace(source, std::move(value));
    return true;
  }
  ++next_;
  if (waiting_.empty()) {
    Fold({&value, 1});
    return true;
  }
  std::vector<Buffer> next;
  next.push_back(std::move(value));
  for (; next_ < order_.size(); ++next_) {
    const auto found = waiting_.find(order_[next_]);
    if (found == waiting_.end()) break;
    next.push_back(std::move(found->second));
    waiting_.erase(found);
  }
  Fold(next);
  return true;
}

Buffer Aggregator::Take() {
  std::vector<Buffer> rest;
  for (auto& [source, value] : waiting_) rest.push_back(std::move(value));
  Fold(rest);
  waiting_.clear();
  added_.assign(order_.size(), false);
  next_ = 0;
  merge_count_ = 0;
  started_ = false;
  return std::exchange(sum_, {});
}

}  // namespace geomx
