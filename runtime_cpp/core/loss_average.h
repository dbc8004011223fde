// The training loss of a server's children that are present: how far the mean has fallen since the first.
//
// Slicers that adapt to the progress of training use it (SliceContext::loss_ratio). A child's loss
// travels in the headers of its pushes.
#pragma once

#include <cmath>
#include <cstddef>
#include <map>
#include <optional>

#include "core/archive.h"
#include "core/types.h"

namespace geomx {

class LossAverage {
 public:
  // `children`: how many are present; the first mean is taken once all of them have reported.
  void Report(NodeId child, float loss, std::size_t children) {
    losses_[child] = loss;
    ratio_.reset();
    if (!first_ && losses_.size() >= children) first_ = Mean();
  }
  // `child` is lost.
  void Forget(NodeId child) {
    losses_.erase(child);
    ratio_.reset();
  }
  // The mean of the last losses over the first mean; NaN while that is unknown or not positive.
  double Ratio() {
    if (losses_.empty() || !first_ || *first_ <= 0) return std::nan("");
    if (!ratio_) ratio_ = Mean() / *first_;
    return *ratio_;
  }
  bool known() const { return first_.has_value(); }
  void Exchange(Archive& archive) { archive(losses_, first_, ratio_); }

 private:
  double Mean() const {
    double sum = 0;
    for (const auto& [id, loss] : losses_) sum += loss;
    return sum / static_cast<double>(losses_.size());
  }

  std::map<NodeId, float> losses_;  // the last of each child
  std::optional<double> first_;
  std::optional<double> ratio_;  // of `losses_`, cached
};

}  // namespace geomx
