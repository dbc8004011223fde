// The sum of one shard over the members of a group, for one round.
//
// Every contribution carries the number of workers that it includes (its merge count), so any
// reduction tree completes correctly. Contributions are added in the order of their sources' ids,
// independent of the order of arrival: the sum of a round is the same in simulation and live, to
// the last bit. All contributions that are next in order are added in one pass, which reads every
// array once.
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
  // `order`: the sources that are expected, ascending; must outlive this object. `quorum`: the
  // merge count that completes a round.
  Aggregator(std::span<const NodeId> order, std::uint32_t quorum)
      : order_(order), quorum_(quorum), added_(order.size()) {}

  // Returns false if `source` has already contributed to this round, or is not expected. All values of
  // a round have one size.
  bool Add(NodeId source, std::uint32_t merge_count, Buffer value);

  // Returns true if `value` has the size of the values already added.
  bool Alike(const Buffer& value) const {
    if (started_) return value.size() == sum_.size();
    return waiting_.empty() || value.size() == waiting_.begin()->second.size();
  }
  bool Has(NodeId source) const {
    const std::size_t place = Place(source);
    return place < order_.size() && added_[place];
  }
  // Whether each of the expected sources, in their order, has contributed.
  const std::vector<bool>& added() const { return added_; }
  // The lowest id that has contributed. REQUIRES: merge_count() > 0.
  NodeId First() const {
    return order_[static_cast<std::size_t>(std::find(added_.begin(), added_.end(), true) -
                                           added_.begin())];
  }
  // The sources that have not contributed yet. One contribution may include several workers, so a
  // round can complete without some of them.
  std::vector<NodeId> Lacking() const {
    std::vector<NodeId> lacking;
    for (const NodeId source : order_) {
      if (!Has(source)) lacking.push_back(source);
    }
    return lacking;
  }
  // Returns true if a contribution of `merge_count` workers does not exceed the quorum.
  bool Fits(std::uint32_t merge_count) const { return merge_count <= quorum_ - merge_count_; }
  bool complete() const { return merge_count_ >= quorum_; }
  std::uint32_t merge_count() const { return merge_count_; }

  // Adds the set of sources that have contributed. The order of arrival does not matter.
  void Describe(Digest& digest) const {
    for (const bool added : added_) digest.Add(std::uint64_t{added});
    digest.Add(std::uint64_t{merge_count_});
  }

  void Exchange(Archive& archive) {
    archive(next_, merge_count_, started_, sum_, waiting_, added_);
    if (next_ > order_.size() || added_.size() != order_.size() || merge_count_ > quorum_) {
      throw StateError("a sum of more nodes than there are");
    }
  }

  // Returns the sum (empty if phantom) and starts the next round. REQUIRES: complete().
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
