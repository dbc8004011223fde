// A party policy of the harness, for workers that do not wait for each other: it adds up what they push, sends the
// sum of every `k` pushes or more, and lets workers continue with what they pushed. The global servers
// then end with the sum of all pushes; their order makes no difference.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "core/policy.h"

namespace geomx::faults {

class Pool final : public PartyPolicy {
 public:
  explicit Pool(std::uint64_t k) : k_(k) {}

  void Update(const WorkerPush& push, std::span<float> value) override {
    auto& [count, sum] = pools_[{push.shard.key, push.shard.index}];
    ++count;
    sum.resize(value.size());
    for (std::size_t i = 0; i < value.size(); ++i) sum[i] += value[i];
  }

  std::optional<std::vector<float>> Send(const ShardInfo& shard, bool ends) override {
    auto& [count, sum] = pools_[{shard.key, shard.index}];
    if (!ends && count < k_) return std::nullopt;
    count = 0;
    return std::exchange(sum, std::vector<float>(shard.elements));
  }

  void Exchange(Archive& archive) override { archive(pools_); }

 private:
  std::uint64_t k_;
  std::map<std::pair<Key, std::uint32_t>, std::pair<std::uint64_t, std::vector<float>>> pools_;
};

}  // namespace geomx::faults
