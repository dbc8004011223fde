// Rounds of a fragment that close without late parties, and weights by the work in each contribution.
#include <memory>

#include "core/natives.h"

namespace geomx {
namespace {

// The weight of a party is tokens * tokens / steps. With as many tokens in every step of a worker, tokens are
// the steps of all its workers, and tokens / steps is their number: a worker's share of it is the steps.
class DiLoCoRounds final : public QuorumRounds {
 public:
  explicit DiLoCoRounds(const Options& options)
      : QuorumRounds(static_cast<std::uint32_t>(Require(options, "quorum")), Nanoseconds(Require(options, "deadline_s"))),
        by_tokens_(Require(options, "by_tokens") != 0) {}

  void Weigh(const EarlyRound& round, std::span<double> weights) override {
    for (std::size_t i = 0; by_tokens_ && i < weights.size(); ++i) weights[i] = round.contributions[i].steps;
  }

 private:
  bool by_tokens_;
};

const Registered<NativeRounds> registered_diloco("diloco", [](const Options& options) {
  return std::make_shared<DiLoCoRounds>(options);
});

}  // namespace
}  // namespace geomx
