// The passes of a worker that computes for real, on the clock of its nominal pace.
//
// A live worker computes a whole step at once, and what arrives when is measured. This puts both on
// one clock: how its layers would have waited and computed, at the pace that it is given, with the
// values arriving when they did. The rules are those of WorkerLoop, carried out at once.
#pragma once

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

  // ---- orders; each goes on until a value is missing that has not been told of ----
  void Forward(Time now);
  // What is pushed, and when, in that order.
  std::vector<std::pair<Key, Time>> Backward(WorkerLoop::Step step, Time now);

  // Keys whose values have to be told of before the order is carried out.
  std::vector<Key> Awaited() const { return loop_.Awaited(); }
  // All that is awaited has arrived at these times, and the reply, where one is awaited, at `reply`.
  // Returns when the order was carried out. Throws std::logic_error if something is still missing.
  Time Arrived(std::vector<Arrival> arrivals, Time reply = kNever);

  // How far the current order has been carried out; of a backward pass, when the pass itself was over.
  Time now() const { return now_; }

  // What the worker did since this was last asked.
  std::vector<Span> TakeSpans() { return std::exchange(spans_, {}); }

 private:
  void WakeAt(Time time) override { wake_ = time; }
  void Push(Key key, Time now) override { pushes_.emplace_back(key, now); }
  void Report(Time) override {}
  void Spent(WorkerLoop::Activity activity, Key key, Round round, Time start, Time end) override {
    spans_.push_back({activity, key, round, start, end});
  }
  void Done(WorkerLoop::Order, Time now) override { now_ = now; }
  void Run(Time until);

  WorkerLoop loop_;
  Time now_ = 0;
  Time wake_ = kNever;
  std::vector<std::pair<Key, Time>> pushes_;
  std::vector<Span> spans_;
};

}  // namespace geomx
