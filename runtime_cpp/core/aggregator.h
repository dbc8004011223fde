// The sum of one shard over the members of a group, for one round.
//
// Every contribution says for how many workers it stands (its merge count), so any reduction tree
// completes correctly. Contributions are added in the order of their sources' ids whatever order
// they arrive in: the sum of a round is the same number in simulation and live, to the last bit.
// Whatever can be added is added at once, every array being read once.
#pragma once

#include <algorithm>
#include <map>
#include <span>
#include <vector>

#include "core/inbox.h"
#include "core/types.h"

namespace geomx {

class Aggregator {
 public:
  // `order`: who is expected, ascending; it must outlive this. `quorum`: the merge count that completes
  // a round.
  Aggregator(std::span<const NodeId> order, std::uint32_t quorum)
      : order_(order), quorum_(quorum), added_(order.size()) {}

  // Returns false if `source` has already contributed to this round, or is not expected. All values of
  // a round have one size.
  bool Add(NodeId source, std::uint32_t merge_count, Buffer value);

  // Whether a value has the size of those that are here.
  bool Alike(const Buffer& value) const {
    if (started_) return value.size() == sum_.size();
    return waiting_.empty() || value.size() == waiting_.begin()->second.size();
  }
  bool Has(NodeId source) const {
    const std::size_t place = Place(source);
    return place < order_.size() && added_[place];
  }
  // The first of those who have contributed. REQUIRES: merge_count() > 0.
  NodeId First() const {
    return order_[static_cast<std::size_t>(std::find(added_.begin(), added_.end(), true) -
                                           added_.begin())];
  }
  // Who has not contributed yet. A member may stand for several, so not all need to.
  std::vector<NodeId> Lacking() const {
    std::vector<NodeId> lacking;
    for (const NodeId source : order_) {
      if (!Has(source)) lacking.push_back(source);
    }
    return lacking;
  }
  // Whether `merge_count` more workers can still be missing.
  bool Fits(std::uint32_t merge_count) const { return merge_count <= quorum_ - merge_count_; }
  bool complete() const { return merge_count_ >= quorum_; }
  std::uint32_t merge_count() const { return merge_count_; }

  // Who has contributed. The order of their arrival is no matter.
  void Describe(Digest& digest) const {
    for (const bool added : added_) digest.Add(std::uint64_t{added});
    digest.Add(std::uint64_t{merge_count_});
  }

  // The sum (empty if phantom); ready for the next round afterwards. REQUIRES: complete().
  Buffer Take();

 private:
  // Position in `order_`; beyond its end: not expected.
  std::size_t Place(NodeId source) const {
    const auto found = std::lower_bound(order_.begin(), order_.end(), source);
    const auto place = static_cast<std::size_t>(found - order_.begin());
    return found != order_.end() && *found == source ? place : order_.size();
  }
  void Fold(std::span<Buffer> values);

  std::span<const NodeId> order_;
  std::uint32_t quorum_;
  std::size_t next_ = 0;  // order_[0..next_) are in the sum
  std::uint32_t merge_count_ = 0;
  bool started_ = false;
  Buffer sum_;
  std::map<NodeId, Buffer> waiting_;
  std::vector<bool> added_;  // by position in `order_`
};

}  // namespace geomx
