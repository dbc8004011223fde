#include "fabric/trainer.h"

#include <utility>

#include "fabric/fabric.h"

namespace geomx {
namespace {

std::shared_ptr<const Layers> LayersOf(std::size_t count,
                                       const std::vector<TrainingPlan::Tensor>& tensors) {
  std::vector<std::uint32_t> layer_of_key;
  for (const TrainingPlan::Tensor& tensor : tensors) layer_of_key.push_back(tensor.layer);
  return std::make_shared<const Layers>(count, std::move(layer_of_key));
}

}  // namespace

TrainingPlan::TrainingPlan(std::size_t count, std::vector<Tensor> list)
    : tensors(std::move(list)), layers(LayersOf(count, tensors)) {}

Trainer::Trainer(Fabric& fabric, NodeId id, std::shared_ptr<const TrainingPlan> plan,
                 std::shared_ptr<const Pace> pace)
    : fabric_(fabric),
      id_(id),
      plan_(std::move(plan)),
      loop_(*this, plan_->layers, std::move(pace)) {}

void Trainer::Start(bool master, const Values& initial, Time now) {
  loop_.Start(now);
  Worker& worker = fabric_.node(id_).worker();
  const auto keys = static_cast<Key>(plan_->tensors.size());
  for (Key key = 0; key < keys; ++key) {
    const TrainingPlan::Tensor& tensor = plan_->tensors[key];
    worker.Declare(key, tensor.elements, tensor.shards);
  }
  for (Key key = 0; key < keys && master; ++key) {
    const auto value = initial.empty() ? nullptr : initial.at(key);
    worker.Init(key, value ? value->data() : nullptr, value, now);
    fabric_.Touch(id_, now);
  }
  for (Key key = 0; key < keys; ++key) {
    worker.Request(key, now);
    fabric_.Touch(id_, now);
  }
}

void Trainer::Backward(Step step, Time now) {
  step_ = std::move(step);
  const bool reports = step_.report.has_value();
  loop_.Backward({.push = step_.push, .last = step_.last, .reports = reports, .part = step_.part}, now);
}

void Trainer::Describe(Digest& digest) const {
  loop_.Describe(digest);
  if (!step_.values.empty() || step_.report) digest.Unknown();
}

// ---- WorkerLoop::Driver --------------------------------------------------------------------

void Trainer::WakeAt(Time time) { fabric_.WakeAt(id_, time); }

void Trainer::Push(Key key, Time now) {
  const auto value = step_.values.empty() ? nullptr : std::move(step_.values.at(key));
  const Round round =
      fabric_.node(id_).worker().Submit(key,
                                        {.value = value ? value->data() : nullptr,
                                         .owner = value,
                                         .loss = step_.loss,
                                         .last = step_.last,
                                         .made = loop_.made()},
                                        now);
  fabric_.Touch(id_, now, key, round);
}

void Trainer::Report(Time now) {
  fabric_.node(id_).Report(step_.report->host, step_.report->coordinator, step_.report->numbers);
  fabric_.Touch(id_, now);
}

void Trainer::Spent(WorkerLoop::Activity activity, Key key, Round round, Time start, Time end) {
  const Span::Category category = activity == WorkerLoop::Activity::kForward ? Span::Category::kForward
                                  : activity == WorkerLoop::Activity::kBackward
                                      ? Span::Category::kBackward
                                      : Span::Category::kWait;
  fabric_.AddSpan({.node = id_,
                   .peer = id_,
                   .category = category,
                   .key = key,
                   .round = round,
                   .start = start,
                   .end = end});
}

void Trainer::Done(WorkerLoop::Order order, Time) {
  const bool forward = order == WorkerLoop::Order::kForward;
  if (!forward) step_.values.clear();
  fabric_.Notify(
      {.node = id_, .kind = forward ? Notice::Kind::kForward : Notice::Kind::kReady});
}

}  // namespace geomx
