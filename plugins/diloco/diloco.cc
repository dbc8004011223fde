// Rounds of a fragment that close without late parties, and weights by the work in each contribution.
#include <algorithm>
#include <memory>

#include "core/natives.h"

namespace geomx {
namespace {

// The weight of a party is tokens * tokens / steps. With as many tokens in every step of a worker, tokens are
// the steps of all its workers, and tokens / steps is their number: a worker's share of it is the steps.
//
// Late contributions do not count for the quorum: otherwise some that are late could close a round before
// those in time arrive, which are late in turn, and the outer momentum would follow stale changes only. A
// round without any contribution in time, after the others' last, counts as if these had sent no change.
class DiLoCoRounds final : public QuorumRounds {
 public:
  explicit DiLoCoRounds(const Options& options)
      : QuorumRounds(static_cast<std::uint32_t>(Require(options, "quorum")), Nanoseconds(Require(options, "deadline_s"))),
        by_tokens_(Require(options, "by_tokens") != 0) {}

  bool Relative() const override { return false; }

  void Weigh(const EarlyRound& round, std::span<double> weights) override {
    double workers = 0, total = 0;
    bool in_time = false;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const Contribution& each = round.contributions[i];
      if (by_tokens_) weights[i] = each.steps;
      workers += each.workers;
      total += weights[i] * each.workers;
      in_time = in_time || each.age == 0;
    }
    const bool equal = std::all_of(weights.begin(), weights.end(), [&](double each) { return each == weights[0]; });
    const double there = in_time ? 1.0 : std::min(1.0, workers / round.workers);
    for (double& weight : weights) weight = there * (equal ? 1.0 : weight * workers / total);
  }

 protected:
  bool Counts(const Contribution& each) const override { return each.age == 0; }

 private:
  bool by_tokens_;
};

const Registered<NativeRounds> registered_diloco("diloco", [](const Options& options) {
  return std::make_shared<DiLoCoRounds>(options);
});

}  // namespace
}  // namespace geomx
