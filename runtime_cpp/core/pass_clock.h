// The passes of a live worker, on the clock of its nominal pace.
//
// A live worker computes a whole step at once and measures when values arrive. A PassClock combines
// both: it computes how the layers would have waited and computed at the given pace, with the
// values arriving at the measured times. It drives a WorkerLoop, whose rules it shares with
// simulation.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "core/worker_loop.h"

namespace geomx {

class PassClock final : private WorkerLoop::Driver {
 public:
  struct Arrival {
    Time at;
    Key key;
    Round round;
  };
  struct Span {
    WorkerLoop::Activity activity;
    Key key;  // of a wait, the value's that ended it, or kNoKey
    Round round;
    Time start, end;
  };

  // At time 0 the initial values of all keys are awaited.
  PassClock(std::shared_ptr<const Layers> layers, std::shared_ptr<const Pace> pace);

  // ---- orders; each runs until it needs a value whose arrival is not known yet ----
  void Forward(Time now, const std::vector<Key>& needs = {});
  // Returns the keys that are pushed and when, in order.
  std::vector<std::pair<Key, Time>> Backward(WorkerLoop::Step step, Time now);

  // Keys whose arrival must be reported before the order can complete.
  std::vector<Key> Awaited() const { return loop_.Awaited(); }
  // Reports the arrival of everything awaited, and of the reply, if one is awaited, at `reply`.
  // Returns the time at which the order completes. Throws std::logic_error if something is still
  // missing.
  Time Arrived(std::vector<Arrival> arrivals, Time reply = kNever);

  // The time up to which the current order has run; after a backward pass, the end of the pass
  // itself.
  Time now() const { return now_; }

  // Layers take `times` as long as the pace says, from the next one on.
  void Stretch(double times) { stretch_ = times; }

  // Computing that begins from `start` on, and before `end`, takes `times` as long as that; several such
  // events multiply. Call it before the order in which that is.
  void Slow(Time start, Time end, double times) { slow_.push_back({start, end, times}); }

  // How many times as long as the pace says a layer takes that begins `at`, no earlier than the order.
  double Times(Time at) const;

  // The process is stopped from `start` to `end`: its computation continues afterwards. Call it before
  // the order in which that is.
  void Pause(Time start, Time end) {
    const std::pair pause(start, end);
    pauses_.insert(std::upper_bound(pauses_.begin(), pauses_.end(), pause), pause);
  }

  // The worker's activity since the last call.
  std::vector<Span> TakeSpans() { return std::exchange(spans_, {}); }

 private:
  struct Slowness {
    Time start, end;
    double times;
  };

  void WakeAt(Time time) override { wake_ = time > now_ ? AfterPauses(time) : time; }
  void Push(Key key, Time now) override { pushes_.emplace_back(key, now); }
  void Report(Time) override {}
  void Spent(WorkerLoop::Activity activity, Key key, Round round, Time start, Time end) override {
    spans_.push_back({activity, key, round, start, end});
  }
  void Done(WorkerLoop::Order, Time now) override { now_ = now; }
  void Run(Time until);
  void Advance(Time now);
  Time AfterPauses(Time time) const;  // when a computation from now on ends that would end at `time`

  WorkerLoop loop_;
  Time now_ = 0;
  Time wake_ = kNever;
  std::vector<std::pair<Key, Time>> pushes_;
  std::vector<Span> spans_;
  std::vector<std::pair<Time, Time>> pauses_;
  std::vector<Slowness> slow_;
  double stretch_ = 1.0;
};

}  // namespace geomx
