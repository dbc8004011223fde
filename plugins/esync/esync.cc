// ESync's state server (Li et al., IEEE TSC 15(4), 2022). Plans the number of local steps of each worker
// for the next round, so that fast workers compute instead of waiting for the slowest.
//
// A worker reports (steps made, seconds per step, round) at every sync, after its pushes. The time from this
// server's last reply to the arrival of the report, on this node's clock, is the worker's reach-server
// time; without the computing time, it is the transmission time x. When all workers have reported, the
// slowest member s is the one that would reach the server last with the minimum number of steps m, at
// R = m c_s + x_s, where c is the time per step. Each member is replied
//
//     n_i = max(m, floor((R - epsilon - x_i) / c_i))
//
// steps, at most `most`. The plan does not wait for a worker that has not reported `timeout` after the
// first report; that worker gets its steps as soon as it reports. Nor does it wait for one that was lost
// and is back, until that has reported: it began with a later round than those that have not ended theirs.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "core/natives.h"

namespace geomx {
namespace {

class StateServer final : public Coordinator {
 public:
  explicit StateServer(const Options& options)
      : members_(static_cast<std::size_t>(Require(options, "members"))),
        least_(Require(options, "local_steps")),
        most_(Require(options, "most")),
        epsilon_(Require(options, "epsilon_s")),
        timeout_(Nanoseconds(Require(options, "timeout_s"))) {}

  std::vector<Reply> OnReport(NodeId from, std::span<const double> values, Time now) override {
    // Reports with NaN, infinite or implausible values are ignored.
    constexpr double kMost = 1e15;
    if (values.size() != 3 || !(values[0] >= 1 && values[0] < kMost)) return {};
    if (!(values[1] > 0 && values[1] < kMost)) return {};
    if (!(values[2] >= 1 && values[2] < kMost)) return {};
    Member& member = known_[from];
    const double elapsed = member.released ? Seconds(now - *member.released) : 0.0;
    member.step_s = values[1];
    // There was no reply before the first report, so its transmission time is unknown.
    member.transmission_s =
        member.released ? std::max(0.0, elapsed - values[0] * values[1]) : 0.0;
    // A plan that did not wait for this worker has been made already.
    member.round = static_cast<std::int64_t>(values[2]);
    if (member.round <= planned_) return {Release(from, member, now)};
    member.reported = true;
    if (waiting_since_ == kNever) waiting_since_ = now;
    return PlanIfComplete(now);
  }

  // Plans do not wait for a lost member. A member that is back takes part in the next plan.
  std::vector<Reply> OnMember(NodeId member, bool back, Time now) override {
    if (back) {
      ++members_;
      known_[member].round = kNotYet;
      return {};
    }
    --members_;
    known_.erase(member);
    return waiting_since_ == kNever ? std::vector<Reply>{} : PlanIfComplete(now);
  }

  std::vector<Reply> OnTimeout(Time now) override { return Plan(now); }

  Time NextTimeout() const override {
    return waiting_since_ == kNever ? kNever : waiting_since_ + timeout_;
  }

  void Exchange(Archive& archive) override { archive(members_, known_, planned_, reach_, waiting_since_); }

 private:
  // Round of a member that is back and has not reported: no plan waits for it.
  static constexpr std::int64_t kNotYet = std::numeric_limits<std::int64_t>::max();

  struct Member {
    double step_s = 0;
    double transmission_s = 0;
    bool reported = false;         // and not replied to
    std::int64_t round = 0;        // of its last report
    std::optional<Time> released;  // time of the last reply

    void Exchange(Archive& archive) { archive(step_s, transmission_s, reported, round, released); }
  };

  static double Seconds(Time ns) { return static_cast<double>(ns) / kSecond; }

  // The steps after round n are planned when every member has reported round n, or a later one.
  std::vector<Reply> PlanIfComplete(Time now) {
    const auto ready = std::count_if(known_.begin(), known_.end(), [this](const auto& each) {
      return each.second.round > planned_;
    });
    if (ready < static_cast<std::ptrdiff_t>(members_)) return {};
    return Plan(now);
  }

  std::vector<Reply> Plan(Time now) {
    std::int64_t first = kNotYet;
    for (const auto& [id, member] : known_) {
      if (member.reported) first = std::min(first, member.round);
    }
    waiting_since_ = kNever;
    if (first == kNotYet) return {};
    planned_ = std::max(planned_ + 1, first);
    reach_ = 0;
    for (const auto& [id, member] : known_) {
      if (!member.reported) continue;
      if (member.round > planned_) {
        waiting_since_ = now;
      } else {
        reach_ = std::max(reach_, least_ * member.step_s + member.transmission_s);
      }
    }
    std::vector<Reply> replies;
    for (auto& [id, member] : known_) {
      if (!member.reported || member.round > planned_) continue;
      member.reported = false;
      replies.push_back(Release(id, member, now));
    }
    return replies;
  }

  Reply Release(NodeId id, Member& member, Time now) const {
    member.released = now;
    const double fit = (reach_ - epsilon_ - member.transmission_s) / member.step_s;
    return {id, {std::clamp(std::floor(fit), least_, most_)}};
  }

  std::size_t members_;
  double least_, most_, epsilon_;
  Time timeout_;
  std::map<NodeId, Member> known_;
  std::int64_t planned_ = 0;  // the round of the last plan
  double reach_ = 0;          // R of the last plan, in seconds
  Time waiting_since_ = kNever;
};

const Registered<NativeCoordinators> registered("esync", [](const Options& options) {
  return std::make_shared<StateServer>(options);
});

}  // namespace
}  // namespace geomx
