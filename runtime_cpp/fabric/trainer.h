// A simulated worker's training loop, as far as it is time and messages.
//
// Forward visits the layers in order, each waiting for its parameters; backward visits them in
// reverse, and a layer's gradients are pushed the moment they exist. That is all it takes for
// communication and computation to overlap exactly as far as the plugins let them.
//
// What a step is about (gradients, when to synchronise, when to stop) is Python's business. It gives
// two orders per step, and hears of the end of each:
//
//     Forward(now)     until the last layer's forward pass is over       notice kForward
//     Backward(step)   backward, pushes, and the wait for the next       notice kReady
//                      step's first layer (for everything: the last step)
//
// Between the two no Python runs, whatever the number of layers and tensors.
#pragma once

#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/worker.h"
#include "fabric/span.h"

namespace geomx {

class Fabric;

// What is trained: the same for all workers.
struct TrainingPlan {
  struct Tensor {
    std::uint64_t elements = 0;
    std::uint32_t layer = 0;
    Worker::SharedShards shards;
  };
  // Throws std::invalid_argument for a tensor of a layer that does not exist.
  TrainingPlan(std::size_t layers, std::vector<Tensor> tensors);

  std::vector<Tensor> tensors;            // by key
  std::vector<std::vector<Key>> layers;   // keys of each, ascending
};

// How long a worker takes, by layer.
struct Pace {
  std::vector<Time> forward, backward;
};

// Values by key; empty where sizes alone are simulated.
using Values = std::vector<std::shared_ptr<const Buffer>>;

class Trainer {
 public:
  // Throws std::invalid_argument if the pace has other layers than the plan.
  Trainer(Fabric& fabric, NodeId id, std::shared_ptr<const TrainingPlan> plan,
          std::shared_ptr<const Pace> pace);

  // Declares all tensors, as the master gives them their initial values, and asks for all. Ends with
  // kReady, when they are in.
  void Start(bool master, const Values& initial, Time now);

  void Forward(Time now);

  struct Step {
    enum class Push { kNothing, kGradients, kParameters };  // gradients: layer by layer
    struct Report {
      NodeId host;
      std::uint32_t coordinator;
      std::vector<double> numbers;
    };
    Push push = Push::kNothing;
    Values values;
    float loss = std::numeric_limits<float>::quiet_NaN();  // unknown
    bool last = false;
    std::optional<Report> report;  // sent after the pushes; its reply is waited for
  };
  void Backward(Step step, Time now);

  void Describe(Digest& digest) const;

  // Whether it cannot go on before a coordinator replies.
  bool AwaitsReply() const { return doing_ == Doing::kWaiting && reply_due_; }

  // ---- from the fabric ----
  void OnValue(Key key, Round round, Time now);
  void OnReply(Time now);
  void Wake(Time now);  // a time that was asked for has come

 private:
  enum class Phase : std::uint8_t { kIdle, kForward, kBackward, kWait };
  enum class Doing : std::uint8_t { kComputing, kWaiting, kWaking };

  void Begin(Phase phase, Time now);
  bool Blocked() const;       // something that the current phase waits for is missing
  void Arrived(Time now);
  void ContinueForward(Time now);
  void ContinueBackward(Time now);
  void EndWait(Time now);
  void PushLayer(Time now);
  void Push(Key key, Time now);
  void Expect(Key key);
  void Sleep(Time now);       // for `pending_`
  void Wait(Time now);        // until it is not blocked any more
  void EndSpan(Span::Category category, Time now);

  Fabric& fabric_;
  NodeId id_;
  std::shared_ptr<const TrainingPlan> plan_;
  std::shared_ptr<const Pace> pace_;
  Phase phase_ = Phase::kIdle;
  Doing doing_ = Doing::kComputing;
  bool reply_due_ = false;
  std::uint32_t layer_ = 0;     // the next one of the pass
  std::uint32_t missing_ = 0;   // keys
  std::vector<bool> missing_keys_;
  std::vector<std::uint32_t> missing_of_layer_;
  Time pending_ = 0;            // computing that was not slept for yet
  Time began_ = 0;              // the current span
  struct {
    Key key = Span::kNoKey;
    Round round = 0;
  } arrived_;                   // the last value, for the timeline; none after a reply
  Step step_;
};

}  // namespace geomx
