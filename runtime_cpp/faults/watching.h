// Policies of local servers that report to the harness what servers do at once.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "core/policy.h"
#include "core/round_policy.h"

namespace geomx::faults {

// The fully synchronous algorithm, which reports its rounds.
class Watched final : public PartyPolicy {
 public:
  using Told = std::function<void(const PartyRound&)>;
  explicit Watched(Told told) : told_(std::move(told)) {}
  Action Complete(const PartyRound& round, std::span<float>) override {
    told_(round);
    return Action::kEscalate;
  }
  void Exchange(Archive&) override {}

 private:
  const Told told_;
};

// A round policy that takes what is late, and reports it.
class WatchedRounds final : public RoundPolicy {
 public:
  using Told = std::function<void(const ShardInfo&, const Contribution&)>;
  WatchedRounds(std::shared_ptr<RoundPolicy> rounds, Told told) : rounds_(std::move(rounds)), told_(std::move(told)) {}
  Time ClosesAt(const EarlyRound& round, Time before, Time now) override {
    return rounds_->ClosesAt(round, before, now);
  }
  bool Takes(const ShardInfo& shard, const Contribution& late) override {
    told_(shard, late);
    return rounds_->Takes(shard, late);
  }
  void Exchange(Archive& archive) override { rounds_->Exchange(archive); }

 private:
  const std::shared_ptr<RoundPolicy> rounds_;
  const Told told_;
};

}  // namespace geomx::faults
