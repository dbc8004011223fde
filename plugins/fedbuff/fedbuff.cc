// Rounds of FedBuff: one closes when the buffer has so many contributions, of which stale ones weigh less.
#include <cmath>
#include <memory>

#include "core/natives.h"

namespace geomx {
namespace {

class FedBuffRounds final : public RoundPolicy {
 public:
  explicit FedBuffRounds(const Options& options)
      : size_(static_cast<std::size_t>(Require(options, "k"))),
        exponent_(Require(options, "exponent")),
        oldest_(Require(options, "oldest")) {}

  Time ClosesAt(const EarlyRound& round, Time before, Time now) override {
    (void)before;
    return round.contributions.size() >= size_ ? now : kNever;
  }
  bool Takes(const ShardInfo& shard, const Contribution& late) override {
    (void)shard;
    return late.age <= oldest_;
  }
  void Weigh(const EarlyRound& round, std::span<double> weights) override {
    for (std::size_t i = 0; i < weights.size(); ++i) {
      weights[i] = std::pow(1.0 + round.contributions[i].age, -exponent_);
    }
  }
  bool Relative() const override { return false; }  // a buffer of stale contributions is a smaller step
  void Exchange(Archive& archive) override { (void)archive; }

 private:
  std::size_t size_;
  double exponent_, oldest_;
};

const Registered<NativeRounds> registered_fedbuff("fedbuff", [](const Options& options) {
  return std::make_shared<FedBuffRounds>(options);
});

}  // namespace
}  // namespace geomx
