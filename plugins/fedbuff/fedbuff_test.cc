// Rounds of FedBuff: when they close, and what each contribution weighs.
#include "core/natives.h"
#include "tests/check.h"

namespace geomx {
namespace {

std::shared_ptr<RoundPolicy> Rounds(double k, double exponent, double oldest) {
  return NativeRounds::Instance().Create("fedbuff", {{"k", k}, {"exponent", exponent}, {"oldest", oldest}});
}

TEST(FedBuffClosesWhenTheBufferIsFullAndWeighsByAge) {
  const auto policy = Rounds(3, 0.5, 8);
  const ShardInfo shard;
  std::vector<Contribution> contributions;
  for (const Round age : {0u, 3u, 8u}) {
    CHECK_EQ(policy->ClosesAt({shard, 9, contributions, {}, 6}, kNever, 7), kNever);
    contributions.push_back({.source = 1, .meant = 9 - age, .age = age, .workers = 2, .steps = 8});
    CHECK(policy->Takes(shard, contributions.back()));
  }
  const EarlyRound full{shard, 9, contributions, {}, 6};
  CHECK_EQ(policy->ClosesAt(full, kNever, 7), Time{7});
  std::vector<double> weights(3, 1.0);
  policy->Weigh(full, weights);
  CHECK_NEAR(weights[0], 1.0, 1e-12);
  CHECK_NEAR(weights[1], 0.5, 1e-12);
  CHECK_NEAR(weights[2], 1.0 / 3, 1e-12);
  CHECK(!policy->Takes(shard, {.source = 1, .meant = 1, .age = 9, .workers = 1, .steps = 1}));
  CHECK(!policy->Relative());
}

}  // namespace
}  // namespace geomx
