// The part of a simulated worker's training loop that consists of time and messages.
//
// core/worker_loop.h implements the passes over the layers; this class drives them by the fabric's
// events and sends what they push and report. Python gives two orders per step, and a notice, kForward
// or kReady, reports the end of each. No Python runs between the two, regardless of the number of
// layers and tensors.
#pragma once

#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "core/worker.h"
#include "core/worker_loop.h"

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
  TrainingPlan(std::size_t count, std::vector<Tensor> tensors);

  std::vector<Tensor> tensors;  // by key
  std::shared_ptr<const Layers> layers;
};

// Values by key; empty where sizes alone are simulated.
using Values = std::vector<std::shared_ptr<const Buffer>>;

class Trainer final : private WorkerLoop::Driver {
 public:
  // Throws std::invalid_argument if the pace has other layers than the plan.
  Trainer(Fabric& fabric, NodeId id, std::shared_ptr<const TrainingPlan> plan,
          std::shared_ptr<const Pace> pace);

  // Declares all tensors, as the master gives them their initial values, and asks for all. Ends with
  // kReady, when they are in.
  void Start(bool master, const Values& initial, Time now);

  void Forward(Time now, const std::vector<Key>& needs = {}) { loop_.Forward(now, needs); }

  struct Step {
    struct Report {
      NodeId host;
      std::uint32_t coordinator;
      std::vector<double> numbers;
    };
    bool push = false;
    std::optional<WorkerLoop::Part> part = {};
    Values values;  // by key
    float loss = std::numeric_limits<float>::quiet_NaN();  // unknown
    bool last = false;
    std::optional<Report> report;  // sent after the pushes; its reply is waited for
  };
  void Backward(Step step, Time now);

  void Stretch(double times) { loop_.Stretch(times); }

  std::size_t keys() const { return plan_->tensors.size(); }

  void Describe(Digest& digest) const;

  bool computing() const { return loop_.computing(); }
  // Returns true if it cannot continue before a coordinator replies.
  bool AwaitsReply() const { return loop_.AwaitsReply(); }

  // ---- from the fabric ----
  void OnValue(Key key, Round round, Time now) { loop_.OnValue(key, round, now); }
  void OnReply(Time now) { loop_.OnReply(now); }
  void Wake(Time now) { loop_.Wake(now); }  // at the time of WakeAt

 private:
  void WakeAt(Time time) override;
  void Push(Key key, Time now) override;
  void Report(Time now) override;
  void Spent(WorkerLoop::Activity activity, Key key, Round round, Time start, Time end) override;
  void Done(WorkerLoop::Order order, Time now) override;

  Fabric& fabric_;
  NodeId id_;
  std::shared_ptr<const TrainingPlan> plan_;
  Step step_;
  WorkerLoop loop_;
};

}  // namespace geomx
