// A worker's passes over the layers: their order, what waits for what, and when contributions leave.
//
// Forward visits the layers in order, each waiting for the values of its own keys; backward visits
// them in reverse, and a layer's gradients are pushed the moment they exist. That is all it takes for
// communication and computation to overlap exactly as far as the plugins let them.
//
// What a step is about (gradients or parameters, when to synchronise, when to stop) is decided by
// what gives the orders (geomx/training). There are two per step, each carried out before the next:
//
//     Forward(now)     until the last layer's forward pass is over           Done(kForward)
//     Backward(...)    backward, pushes, the report, and the wait for the    Done(kReady)
//                      next step's first layer (for everything: the last step)
//
// Like everything in here it has no clock: its driver is told when to wake it, and tells it when
// values arrive. Simulated workers are driven by the fabric's events (fabric/trainer.h), live workers
// by measured times (pass_clock.h).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/digest.h"
#include "core/types.h"

namespace geomx {

// Which keys belong to which layer.
struct Layers {
  // Throws std::invalid_argument for a key of a layer that does not exist.
  Layers(std::size_t count, std::vector<std::uint32_t> layer_of_key);

  std::vector<std::uint32_t> of;        // by key
  std::vector<std::vector<Key>> keys;   // by layer, ascending
};

// How long computing takes, by layer.
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
    // Wake() is to be called at `time`.
    virtual void WakeAt(Time time) = 0;
    // A contribution to `key` leaves; its answer is a value of `key`.
    virtual void Push(Key key, Time now) = 0;
    // The report leaves, behind what was pushed; its answer is a reply.
    virtual void Report(Time now) = 0;
    // What the worker did from `start` to `end`; `key` and `round`: of a wait, the value that ended
    // it, or kNoKey.
    virtual void Spent(Activity activity, Key key, Round round, Time start, Time end) = 0;
    virtual void Done(Order order, Time now) = 0;

   protected:
    ~Driver() = default;
  };

  // Throws std::invalid_argument if the pace has other layers. `driver` outlives this.
  WorkerLoop(Driver& driver, std::shared_ptr<const Layers> layers, std::shared_ptr<const Pace> pace);

  // ---- orders; throw std::logic_error while one is under way ----
  void Start(Time now);  // the wait for the initial values of all keys; ends with kReady
  void Forward(Time now);
  enum class Push : std::uint8_t { kNothing, kGradients, kParameters };  // gradients: by layer
  struct Step {
    Push push = Push::kNothing;
    bool last = false;     // everything is waited for
    bool reports = false;  // a reply is waited for
  };
  void Backward(Step step, Time now);

  // ---- what happens ----
  void OnValue(Key key, Round round, Time now);
  void OnReply(Time now);  // one that comes before the report counts as its answer
  void Wake(Time now);

  // ---- looking ----
  // Keys whose values have to come before the current order can be carried out, ascending.
  std::vector<Key> Awaited() const;
  // Whether a reply has to.
  bool AwaitsReply() const { return doing_ == Doing::kWaiting && replies_due_ > 0; }
  bool idle() const { return phase_ == Phase::kIdle; }

  void Describe(Digest& digest) const;

 private:
  enum class Phase : std::uint8_t { kIdle, kForward, kBackward, kWait };
  enum class Doing : std::uint8_t { kComputing, kWaiting, kWaking };

  void Begin(Phase phase, Time now);
  bool Blocked() const;  // something that the current phase waits for is missing
  void Arrived(Time now);
  void ContinueForward(Time now);
  void ContinueBackward(Time now);
  void End(Order order, Time now);
  void PushLayer(Time now);
  void PushKey(Key key, Time now);
  void Expect(Key key);
  void Sleep(Time now);  // for `pending_`
  void Wait(Time now);   // until it is not blocked any more
  void EndSpan(Activity activity, Time now);

  Driver& driver_;
  std::shared_ptr<const Layers> layers_;
  std::shared_ptr<const Pace> pace_;
  Phase phase_ = Phase::kIdle;
  Doing doing_ = Doing::kComputing;
  std::int32_t replies_due_ = 0;  // less than 0: as many have come before they were asked for
  std::uint32_t layer_ = 0;       // the next one of the pass
  std::uint32_t missing_ = 0;     // keys
  std::vector<bool> missing_keys_;
  std::vector<std::uint32_t> missing_of_layer_;
  Time pending_ = 0;              // computing that was not slept for yet
  Time began_ = 0;                // the current span
  struct {
    Key key = kNoKey;
    Round round = 0;
  } arrived_;                     // the last value, for the timeline; none after a reply
  Step step_;
};

}  // namespace geomx
