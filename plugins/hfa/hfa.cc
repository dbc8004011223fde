// Hierarchical frequency aggregation, the local server's part. In every K2-th round and in the last one,
// it sends a pseudo-gradient to the global server: (milestone - mean of the party) times the party's
// weight, where the milestone is the last global model. In the other rounds it returns the party's mean
// to its workers.
//
// The global server's optimizer (SGD with learning rate 1) subtracts the pseudo-gradients, so that the
// new model is the weighted mean of the parties, from which all parties start their next cycle. The
// first milestone is the master's initial value.
#include <cmath>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <vector>

#include "core/natives.h"

namespace geomx {
namespace {

class Hfa final : public PartyPolicy {
 public:
  explicit Hfa(const Options& options)
      : k2_(static_cast<Round>(Require(options, "k2"))),
        weight_(static_cast<float>(Require(options, "weight"))) {
    if (k2_ == 0) throw std::invalid_argument("k2 must be positive");
  }

  bool NeedsInitial() const override { return true; }

  void Initial(const ShardInfo& shard, std::span<const float> value) override {
    milestones_[{shard.key, shard.index}].assign(value.begin(), value.end());
  }

  Action Complete(const PartyRound& round, std::span<float> mean) override {
    if (round.round % k2_ != 0 && !round.last) return Action::kReturn;
    const std::vector<float>& milestone = milestones_[{round.shard.key, round.shard.index}];
    for (std::size_t i = 0; i < mean.size(); ++i) mean[i] = (milestone[i] - mean[i]) * weight_;
    return Action::kEscalate;
  }

  // The workers' pushes add up to a mean, so a sum that lacks workers is scaled up before Complete().
  bool MakesUp() const override { return true; }

  Round PartyRounds(Round global) const override { return global * k2_; }

  void Describe(Digest& digest, Round round) const override {
    digest.Add(std::uint64_t{round % k2_});
  }

  void Exchange(Archive& archive) override { archive(milestones_); }

  void Answer(const ShardInfo& shard, std::span<float> value) override {
    milestones_[{shard.key, shard.index}].assign(value.begin(), value.end());
  }

 private:
  Round k2_;
  float weight_;  // of this party in the global mean
  std::map<std::pair<Key, std::uint32_t>, std::vector<float>> milestones_;
};

const Registered<NativePolicies> registered("hfa", [](const Options& options) {
  return std::make_shared<Hfa>(options);
});

}  // namespace
}  // namespace geomx
