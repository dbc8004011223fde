// The party policy "changes": where workers push parameters, the local server sends the change of the
// model instead.
//
// A party's change is a pseudo-gradient: the last global model minus the mean of its workers'
// parameters, multiplied by the party's share of all workers. The sum of all parties' changes is then
// the mean over all workers, to which the global servers apply any optimizer: SGD with learning rate 1
// makes the model the mean of all parameters. Changes are sent instead of parameters because codecs
// that select values do so by magnitude, which is the importance of a difference, but not that of a
// parameter.
//
// Workers push parameters divided by the number of all workers, the option `workers`.
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "core/natives.h"

namespace geomx {
namespace {

class PartyChanges final : public PartyPolicy {
 public:
  explicit PartyChanges(const Options& options)
      : workers_(static_cast<float>(Require(options, "workers"))) {}

  bool NeedsInitial() const override { return true; }

  void Initial(const ShardInfo& shard, std::span<const float> value) override {
    models_[{shard.key, shard.index}].assign(value.begin(), value.end());
  }

  Action Complete(const PartyRound& round, std::span<float> sum) override {
    const std::vector<float>& model = models_[{round.shard.key, round.shard.index}];
    const float share = static_cast<float>(round.merge_count) / workers_;
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = model[i] * share - sum[i];
    return Action::kEscalate;
  }

  void Answer(const ShardInfo& shard, std::span<float> value) override {
    models_[{shard.key, shard.index}].assign(value.begin(), value.end());
  }

  void Describe(Digest& digest, Round round) const override { (void)digest, (void)round; }

  void Exchange(Archive& archive) override { archive(models_); }

 private:
  float workers_;
  std::map<std::pair<Key, std::uint32_t>, std::vector<float>> models_;
};

const Registered<NativePolicies> registered_party_changes("changes", [](const Options& options) {
  return std::make_shared<PartyChanges>(options);
});

}  // namespace
}  // namespace geomx
