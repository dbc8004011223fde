#include "core/aggregator.h"

#include <algorithm>

namespace geomx {

void Aggregator::Fold(Buffer value) {
  if (!started_) {
    sum_ = std::move(value);
    started_ = true;
    return;
  }
  float* sum = sum_.data();
  const float* term = value.data();
  const std::size_t n = std::min(sum_.size(), value.size());
  for (std::size_t i = 0; i < n; ++i) sum[i] += term[i];
}

bool Aggregator::Add(NodeId source, std::uint32_t merge_count, Buffer value) {
  if (Has(source)) return false;
  added_.push_back(source);
  merge_count_ += merge_count;
  waiting_.emplace(source, std::move(value));
  while (next_ < order_.size()) {
    auto found = waiting_.find(order_[next_]);
    if (found == waiting_.end()) break;
    Fold(std::move(found->second));
    waiting_.erase(found);
    ++next_;
  }
  return true;
}

Buffer Aggregator::Take() {
  for (auto& [source, value] : waiting_) Fold(std::move(value));
  waiting_.clear();
  added_.clear();
  next_ = 0;
  merge_count_ = 0;
  started_ = false;
  return std::move(sum_);
}

}  // namespace geomx
