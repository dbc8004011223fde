// A worker's passes over the layers: their order, their waits, and when contributions leave.
//
// Forward visits the layers in order, each waiting for the values of its own keys; backward visits
// them in reverse and pushes a layer's contributions, gradients or the parameters that the worker's own
// optimizer makes of them, as soon as they exist. Communication and
// computation thus overlap as far as the plugins allow.
//
// The caller (geomx/training) decides what a step exchanges (gradients or parameters), when to
// synchronise and when to stop, and gives two orders per step, each completed before the next:
//
//     Forward(now)     until the last layer's forward pass is over           Done(kForward)
//     Backward(...)    backward, pushes, the report, and the wait for the    Done(kReady)
//                      next step's first layer (for everything: the last step)
//
// A step may push some keys only, and the answers to a push may be needed by a later step than the
// next one: training goes on while they are in flight.
//
// Like all of the core it has no clock: it tells its driver when to wake it, and the driver reports
// when values arrive. Simulated workers are driven by the fabric's events (fabric/trainer.h), live
// workers by measured times (pass_clock.h).
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/digest.h"
#include "core/types.h"

namespace geomx {

// The layer of each key.
struct Layers {
  // Throws std::invalid_argument if a key's layer does not exist.
  Layers(std::size_t count, std::vector<std::uint32_t> layer_of_key);

  std::vector<std::uint32_t> of;        // by key
  std::vector<std::vector<Key>> keys;   // by layer, ascending
};

// The time of computing, by layer.
struct Pace {
  std::vector<Time> forward, backward;
};

class WorkerLoop {
 public:
  enum class Activity : std::uint8_t { kForward, kBackward, kWait };
  enum class Order : std::uint8_t { kForward, kReady };

  static constexpr Key kNoKey = ~Key{0};

  class Driver {
   public:
    // The driver must call Wake() at `time`.
    virtual void WakeAt(Time time) = 0;
    // Pushes a contribution to `key`; the answer is a value of `key`.
    virtual void Push(Key key, Time now) = 0;
    // Sends the report, after the pushes; the answer is a reply.
    virtual void Report(Time now) = 0;
    // The worker's activity from `start` to `end`. `key` and `round`: the value that ended a wait,
    // or kNoKey.
    virtual void Spent(Activity activity, Key key, Round round, Time start, Time end) = 0;
    virtual void Done(Order order, Time now) = 0;

   protected:
    ~Driver() = default;
  };

  // Throws std::invalid_argument if `pace` does not have the layers of `layers`. `driver` must
  // outlive this.
  WorkerLoop(Driver& driver, std::shared_ptr<const Layers> layers, std::shared_ptr<const Pace> pace);

  // ---- orders; throw std::logic_error while one is under way ----
  void Start(Time now);  // the wait for the initial values of all keys; ends with kReady
  // `needs`: keys in flight whose answers this pass waits for, besides those of the last Backward().
  void Forward(Time now, const std::vector<Key>& needs = {});
  // The same, but nothing is computed before Wake(now), and OnValue may come before that.
  void BeginForward(Time now, const std::vector<Key>& needs = {});
  // Some of the keys.
  struct Part {
    std::vector<Key> pushed;
    std::vector<Key> needed;  // keys in flight whose answers the next step waits for
  };
  struct Step {
    bool push = false;         // each layer's contributions, after its backward pass
    bool last = false;         // wait for all values at its end
    bool reports = false;      // wait for a reply as well
    std::optional<Part> part;  // none: all keys are pushed, and the next step waits for them
  };
  void Backward(Step step, Time now);

  // ---- what happens ----
  void OnValue(Key key, Round round, Time now);
  void OnReply(Time now);  // a reply before the report counts as its answer
  void Wake(Time now);

  // From the next layer on, computing takes `times` as long as the pace says.
  void Stretch(double times) { stretch_ = times; }

  // ---- inspection ---- Keys whose values the current order still needs, ascending.
  std::vector<Key> Awaited() const;
  // Returns true if it still needs a reply.
  bool AwaitsReply() const { return doing_ == Doing::kWaiting && replies_due_ > 0; }
  bool idle() const { return phase_ == Phase::kIdle; }
  bool computing() const { return !idle() && doing_ == Doing::kComputing; }
  std::uint32_t made() const { return made_; }  // steps with a backward pass, the current one included

  void Describe(Digest& digest) const;

 private:
  enum class Phase : std::uint8_t { kIdle, kForward, kBackward, kWait };
  enum class Doing : std::uint8_t { kComputing, kWaiting, kWaking };

  void Begin(Phase phase, Time now);
  bool Blocked() const;  // the current phase waits for a missing value or reply
  void Arrived(Time now);
  void ContinueForward(Time now);
  void ContinueBackward(Time now);
  void End(Order order, Time now);
  void PushLayer(Time now);
  void PushKey(Key key, Time now);
  void Expect(Key key);
  void ExpectInFlight(const std::vector<Key>& keys);
  void Sleep(Time now);  // for `pending_`
  void Wait(Time now);   // until !Blocked()
  void EndSpan(Activity activity, Time now);

  Driver& driver_;
  std::shared_ptr<const Layers> layers_;
  std::shared_ptr<const Pace> pace_;
  Phase phase_ = Phase::kIdle;
  Doing doing_ = Doing::kComputing;
  std::int32_t replies_due_ = 0;  // negative: replies that arrived before their report
  std::uint32_t layer_ = 0;       // the next one of the pass
  std::uint32_t missing_ = 0;     // keys
  std::vector<bool> missing_keys_;
  std::vector<bool> in_flight_;  // pushed, and the answer has not arrived
  std::vector<bool> pushed_;     // by a step with a part
  std::vector<std::uint32_t> missing_of_layer_;
  Time Stretched(Time time) const {
    return stretch_ == 1.0 ? time : std::llround(static_cast<double>(time) * stretch_);
  }

  double stretch_ = 1.0;
  std::uint32_t made_ = 0;
  Time pending_ = 0;              // computing time not slept yet
  Time began_ = 0;                // the current span
  struct {
    Key key = kNoKey;
    Round round = 0;
  } arrived_;                     // the last value, for the timeline; empty after a reply
  Step step_;
};

}  // namespace geomx
