#include "fabric/trainer.h"

#include <stdexcept>
#include <string>
#include <utility>

#include "fabric/fabric.h"

namespace geomx {

TrainingPlan::TrainingPlan(std::size_t count, std::vector<Tensor> list)
    : tensors(std::move(list)), layers(count) {
  for (Key key = 0; key < tensors.size(); ++key) {
    if (tensors[key].layer >= count) {
      throw std::invalid_argument("tensor " + std::to_string(key) + " belongs to no layer");
    }
    layers[tensors[key].layer].push_back(key);
  }
}

Trainer::Trainer(Fabric& fabric, NodeId id, std::shared_ptr<const TrainingPlan> plan,
                 std::shared_ptr<const Pace> pace)
    : fabric_(fabric),
      id_(id),
      plan_(std::move(plan)),
      pace_(std::move(pace)),
      missing_keys_(plan_->tensors.size(), false),
      missing_of_layer_(plan_->layers.size(), 0) {
  if (pace_->forward.size() != plan_->layers.size() ||
      pace_->backward.size() != plan_->layers.size()) {
    throw std::invalid_argument("a pace needs one forward and one backward time per layer");
  }
}

// ---- orders ----------------------------------------------------------------------------------

void Trainer::Begin(Phase phase, Time now) {
  if (phase_ != Phase::kIdle) {
    throw std::logic_error("worker " + std::to_string(id_) + " has not done its last order yet");
  }
  phase_ = phase;
  doing_ = Doing::kComputing;
  began_ = now;
  pending_ = 0;
}

void Trainer::Start(bool master, const Values& initial, Time now) {
  Begin(Phase::kWait, now);
  Worker& worker = fabric_.node(id_).worker();
  const auto keys = static_cast<Key>(plan_->tensors.size());
  for (Key key = 0; key < keys; ++key) {
    const TrainingPlan::Tensor& tensor = plan_->tensors[key];
    worker.Declare(key, tensor.elements, tensor.shards);
    Expect(key);
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
  step_.last = true;  // all values are waited for
  Wait(now);
}

void Trainer::Forward(Time now) {
  Begin(Phase::kForward, now);
  layer_ = 0;
  ContinueForward(now);
}

void Trainer::Backward(Step step, Time now) {
  Begin(Phase::kBackward, now);
  step_ = std::move(step);
  layer_ = static_cast<std::uint32_t>(plan_->layers.size());
  ContinueBackward(now);
}

// ---- what happens ----------------------------------------------------------------------------

void Trainer::OnValue(Key key, Round round, Time now) {
  if (!missing_keys_.at(key)) return;
  missing_keys_[key] = false;
  --missing_;
  --missing_of_layer_[plan_->tensors[key].layer];
  arrived_ = {key, round};
  Arrived(now);
}

void Trainer::OnReply(Time now) {
  reply_due_ = false;
  arrived_ = {};
  Arrived(now);
}

void Trainer::Arrived(Time now) {
  if (doing_ != Doing::kWaiting || Blocked()) return;
  doing_ = Doing::kWaking;
  fabric_.WakeAt(id_, now);
}

bool Trainer::Blocked() const {
  if (phase_ == Phase::kForward) return missing_of_layer_[layer_] > 0;
  if (reply_due_) return true;
  return step_.last ? missing_ > 0 : !missing_of_layer_.empty() && missing_of_layer_[0] > 0;
}

void Trainer::Wake(Time now) {
  if (doing_ == Doing::kWaking) {
    doing_ = Doing::kComputing;
    EndSpan(Span::Category::kWait, now);
  }
  switch (phase_) {
    case Phase::kIdle: return;
    case Phase::kForward: ContinueForward(now); return;
    case Phase::kBackward: ContinueBackward(now); return;
    case Phase::kWait: EndWait(now); return;
  }
}

// Layers whose parameters are there take one sleep together.
void Trainer::ContinueForward(Time now) {
  for (; layer_ < plan_->layers.size(); ++layer_) {
    if (Blocked()) {
      if (pending_ > 0) return Sleep(now);
      EndSpan(Span::Category::kForward, now);
      return Wait(now);
    }
    pending_ += pace_->forward[layer_];
  }
  if (pending_ > 0) return Sleep(now);
  EndSpan(Span::Category::kForward, now);
  phase_ = Phase::kIdle;
  fabric_.Notify({.node = id_, .kind = Notice::Kind::kForward});
}

// A layer whose gradients leave is slept for before they do, others together with the next.
void Trainer::ContinueBackward(Time now) {
  const bool early = step_.push == Step::Push::kGradients;
  if (early && layer_ < plan_->layers.size()) PushLayer(now);
  while (layer_ > 0) {
    --layer_;
    pending_ += pace_->backward[layer_];
    if (!early || plan_->layers[layer_].empty()) continue;
    if (pending_ > 0) return Sleep(now);
    PushLayer(now);
  }
  if (pending_ > 0) return Sleep(now);
  EndSpan(Span::Category::kBackward, now);
  if (step_.push == Step::Push::kParameters) {
    for (auto key = static_cast<Key>(plan_->tensors.size()); key-- > 0;) Push(key, now);
  }
  step_.values.clear();
  if (const auto& report = step_.report) {
    reply_due_ = true;
    fabric_.node(id_).Report(report->host, report->coordinator, report->numbers);
    fabric_.Touch(id_, now);
  }
  phase_ = Phase::kWait;
  if (Blocked()) return Wait(now);
  EndWait(now);
}

void Trainer::EndWait(Time) {
  phase_ = Phase::kIdle;
  fabric_.Notify({.node = id_, .kind = Notice::Kind::kReady});
}

void Trainer::Describe(Digest& digest) const {
  digest.Add(std::uint64_t{static_cast<std::uint8_t>(phase_)} << 32 | layer_);
  digest.Add(std::uint64_t{static_cast<std::uint8_t>(doing_)} << 32 | missing_);
  for (const bool missing : missing_keys_) digest.Add(std::uint64_t{missing});
  digest.Add(static_cast<std::uint64_t>(pending_));
  digest.Add(std::uint64_t{static_cast<std::uint8_t>(step_.push)} << 1 | std::uint64_t{step_.last});
  if (!step_.values.empty() || step_.report) digest.Unknown();
}

// ---- how -------------------------------------------------------------------------------------

void Trainer::PushLayer(Time now) {
  const std::vector<Key>& keys = plan_->layers[layer_];
  for (auto key = keys.rbegin(); key != keys.rend(); ++key) Push(*key, now);
}

void Trainer::Push(Key key, Time now) {
  Expect(key);
  const auto value = step_.values.empty() ? nullptr : std::move(step_.values.at(key));
  const Round round =
      fabric_.node(id_).worker().Submit(key,
                                        {.value = value ? value->data() : nullptr,
                                         .owner = value,
                                         .loss = step_.loss,
                                         .last = step_.last},
                                        now);
  fabric_.Touch(id_, now, key, round);
}

void Trainer::Expect(Key key) {
  if (missing_keys_[key]) return;
  missing_keys_[key] = true;
  ++missing_;
  ++missing_of_layer_[plan_->tensors[key].layer];
}

void Trainer::Sleep(Time now) { fabric_.WakeAt(id_, now + std::exchange(pending_, 0)); }

void Trainer::Wait(Time now) {
  doing_ = Doing::kWaiting;
  if (!Blocked()) Arrived(now);
}

void Trainer::EndSpan(Span::Category category, Time now) {
  if (now > began_) {
    const bool wait = category == Span::Category::kWait;
    fabric_.AddSpan({.node = id_,
                     .peer = id_,
                     .category = category,
                     .key = wait ? arrived_.key : Span::kNoKey,
                     .round = wait ? arrived_.round : 0,
                     .start = began_,
                     .end = now});
  }
  began_ = now;
}

}  // namespace geomx
