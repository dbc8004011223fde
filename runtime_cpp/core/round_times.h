// In which phases a server's shards spend their rounds, whom each round waited for, and how long the
// contributions of each child waited for those of others. For reports: the protocol does not depend on it.
//
// Times are sums over shards. A shard is in one phase at a time, and a phase that has not ended counts up to
// the moment of the question. docs/metrics.md explains what can be concluded from them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "core/types.h"

namespace geomx {

// The phases of a shard's round at a server.
enum class RoundPhase : std::uint8_t {
  kNone,     // there is no round: no initial value yet, or the last round is over
  kCompute,  // no child has contributed yet
  kGather,   // some children have contributed, and the round waits for the others
  kAnswer,   // at a local server: the sum was sent, and the global server has not answered
};
inline constexpr std::size_t kRoundPhases = 4;

class RoundTimes {
 public:
  // What was counted of one child.
  struct Child {
    std::uint64_t last = 0;  // rounds of shards that its contribution completed
    double held_s = 0;       // time that its contributions waited for those of others
  };

  explicit RoundTimes(std::size_t children) : last_(children), held_(children) {}

  // Nothing is counted before.
  void Begin() { counts_ = true; }
  bool counts() const { return counts_; }

  // A shard passes from one phase to another.
  void Move(RoundPhase& phase, RoundPhase to, Time now) {
    if (!counts_ || phase == to) return;
    Of(phase).Leave(now);
    Of(to).Enter(now);
    phase = to;
  }

  // ---- children by their places in NodeConfig::children; only if counts() ----
  // A child has contributed to the open round of a shard.
  void Contributed(std::size_t place, Time now) { held_[place].Enter(now); }
  // The round to which it has contributed closes.
  void Released(std::size_t place, Time now) { held_[place].Leave(now); }
  // No other contribution was missing when its own came.
  void CameLast(std::size_t place) { last_[place] += counts_; }

  double SecondsIn(RoundPhase phase, Time now) const {
    return phases_[static_cast<std::size_t>(phase)].Seconds(now);
  }
  std::vector<Child> Children(Time now) const {
    std::vector<Child> children;
    for (std::size_t i = 0; i < last_.size(); ++i) children.push_back({last_[i], held_[i].Seconds(now)});
    return children;
  }

 private:
  // The time that several things have spent in a state: sum of (end - begin). In microseconds modulo 2^64, as
  // the sum of the begins alone may be too large for nanoseconds.
  class Spent {
   public:
    void Enter(Time now) {
      total_ -= Micros(now);
      ++open_;
    }
    // Does nothing if no Enter is open: a process that continues from a journal does not know the times of
    // contributions that came before.
    void Leave(Time now) {
      if (open_ == 0) return;
      total_ += Micros(now);
      --open_;
    }
    double Seconds(Time now) const {
      const auto micros = static_cast<std::int64_t>(total_ + open_ * Micros(now));
      return std::max(0.0, static_cast<double>(micros) * 1e-6);
    }

   private:
    static std::uint64_t Micros(Time now) { return static_cast<std::uint64_t>(now / kMicrosecond); }

    std::uint64_t total_ = 0, open_ = 0;
  };

  Spent& Of(RoundPhase phase) { return phases_[static_cast<std::size_t>(phase)]; }

  bool counts_ = false;
  std::array<Spent, kRoundPhases> phases_;
  std::vector<std::uint64_t> last_;
  std::vector<Spent> held_;
};

}  // namespace geomx
