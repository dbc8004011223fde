#include "core/worker_loop.h"

#include <stdexcept>
#include <string>
#include <utility>

namespace geomx {

Layers::Layers(std::size_t count, std::vector<std::uint32_t> layer_of_key)
    : of(std::move(layer_of_key)), keys(count) {
  for (Key key = 0; key < of.size(); ++key) {
    if (of[key] >= count) {
      throw std::invalid_argument("tensor " + std::to_string(key) + " belongs to no layer");
    }
    keys[of[key]].push_back(key);
  }
}

WorkerLoop::WorkerLoop(Driver& driver, std::shared_ptr<const Layers> layers,
                       std::shared_ptr<const Pace> pace)
    : driver_(driver),
      layers_(std::move(layers)),
      pace_(std::move(pace)),
      missing_keys_(layers_->of.size(), false),
      in_flight_(layers_->of.size(), false),
      missing_of_layer_(layers_->keys.size(), 0) {
  if (pace_->forward.size() != layers_->keys.size() ||
      pace_->backward.size() != layers_->keys.size()) {
    throw std::invalid_argument("a pace needs one forward and one backward time per layer");
  }
}

// ---- orders ----------------------------------------------------------------------------------

void WorkerLoop::Begin(Phase phase, Time now) {
  if (phase_ != Phase::kIdle) throw std::logic_error("the last order is still being carried out");
  phase_ = phase;
  doing_ = Doing::kComputing;
  began_ = now;
  pending_ = 0;
}

void WorkerLoop::Start(Time now) {
  Begin(Phase::kWait, now);
  for (Key key = 0; key < layers_->of.size(); ++key) Expect(key);
  step_.last = true;  // wait for all values
  Wait(now);
}

void WorkerLoop::BeginForward(Time now, const std::vector<Key>& needs) {
  Begin(Phase::kForward, now);
  ExpectInFlight(needs);
  layer_ = 0;
}

void WorkerLoop::Forward(Time now, const std::vector<Key>& needs) {
  BeginForward(now, needs);
  ContinueForward(now);
}

void WorkerLoop::Backward(Step step, Time now) {
  Begin(Phase::kBackward, now);
  ++made_;
  step_ = std::move(step);
  if (step_.part) {
    pushed_.assign(layers_->of.size(), false);
    for (const Key key : step_.part->pushed) pushed_.at(key) = true;
  }
  layer_ = static_cast<std::uint32_t>(layers_->keys.size());
  ContinueBackward(now);
}

// ---- what happens ----------------------------------------------------------------------------

void WorkerLoop::OnValue(Key key, Round round, Time now) {
  in_flight_.at(key) = false;
  if (!missing_keys_[key]) return;
  missing_keys_[key] = false;
  --missing_;
  --missing_of_layer_[layers_->of[key]];
  arrived_ = {key, round};
  Arrived(now);
}

void WorkerLoop::OnReply(Time now) {
  --replies_due_;
  arrived_ = {};
  Arrived(now);
}

void WorkerLoop::Arrived(Time now) {
  if (doing_ != Doing::kWaiting || Blocked()) return;
  doing_ = Doing::kWaking;
  driver_.WakeAt(now);
}

bool WorkerLoop::Blocked() const {
  if (phase_ == Phase::kForward) return missing_of_layer_[layer_] > 0;
  if (replies_due_ > 0) return true;
  return step_.last ? missing_ > 0 : !missing_of_layer_.empty() && missing_of_layer_[0] > 0;
}

std::vector<Key> WorkerLoop::Awaited() const {
  std::vector<Key> awaited;
  const bool first = phase_ == Phase::kBackward || phase_ == Phase::kWait;
  for (Key key = 0; key < missing_keys_.size(); ++key) {
    if (!missing_keys_[key] || phase_ == Phase::kIdle) continue;
    if (first && !step_.last && layers_->of[key] != 0) continue;
    awaited.push_back(key);
  }
  return awaited;
}

void WorkerLoop::Wake(Time now) {
  if (doing_ == Doing::kWaking) {
    doing_ = Doing::kComputing;
    EndSpan(Activity::kWait, now);
  }
  switch (phase_) {
    case Phase::kIdle: return;
    case Phase::kForward: ContinueForward(now); return;
    case Phase::kBackward: ContinueBackward(now); return;
    case Phase::kWait: End(Order::kReady, now); return;
  }
}

// Consecutive layers whose parameters have arrived share one sleep.
void WorkerLoop::ContinueForward(Time now) {
  for (; layer_ < layers_->keys.size(); ++layer_) {
    if (Blocked()) {
      if (pending_ > 0) return Sleep(now);
      EndSpan(Activity::kForward, now);
      return Wait(now);
    }
    pending_ += Stretched(pace_->forward[layer_]);
  }
  if (pending_ > 0) return Sleep(now);
  EndSpan(Activity::kForward, now);
  End(Order::kForward, now);
}

// Sleeps before a layer's contributions leave; layers that push nothing share the next one's sleep.
void WorkerLoop::ContinueBackward(Time now) {
  if (step_.push && layer_ < layers_->keys.size()) PushLayer(now);
  while (layer_ > 0) {
    --layer_;
    pending_ += Stretched(pace_->backward[layer_]);
    if (!step_.push || layers_->keys[layer_].empty()) continue;
    if (pending_ > 0) return Sleep(now);
    PushLayer(now);
  }
  if (pending_ > 0) return Sleep(now);
  EndSpan(Activity::kBackward, now);
  if (step_.part) ExpectInFlight(step_.part->needed);
  if (step_.reports) {
    ++replies_due_;
    driver_.Report(now);
  }
  phase_ = Phase::kWait;
  if (Blocked()) return Wait(now);
  End(Order::kReady, now);
}

void WorkerLoop::End(Order order, Time now) {
  phase_ = Phase::kIdle;
  driver_.Done(order, now);
}

void WorkerLoop::Describe(Digest& digest) const {
  digest.Add(std::uint64_t{static_cast<std::uint8_t>(phase_)} << 32 | layer_);
  digest.Add(std::uint64_t{static_cast<std::uint8_t>(doing_)} << 32 | missing_);
  for (Key key = 0; key < missing_keys_.size(); ++key) {
    digest.Add(std::uint64_t{in_flight_[key]} << 1 | std::uint64_t{missing_keys_[key]});
  }
  digest.Add(static_cast<std::uint64_t>(pending_));
  digest.Add(std::uint64_t{step_.push} << 1 | std::uint64_t{step_.last});
}

// ---- how -------------------------------------------------------------------------------------

void WorkerLoop::PushLayer(Time now) {
  const std::vector<Key>& keys = layers_->keys[layer_];
  for (auto key = keys.rbegin(); key != keys.rend(); ++key) PushKey(*key, now);
}

void WorkerLoop::PushKey(Key key, Time now) {
  if (step_.part && !pushed_[key]) return;
  in_flight_[key] = true;
  if (!step_.part) Expect(key);
  driver_.Push(key, now);
}

void WorkerLoop::Expect(Key key) {
  if (missing_keys_[key]) return;
  missing_keys_[key] = true;
  ++missing_;
  ++missing_of_layer_[layers_->of[key]];
}

void WorkerLoop::ExpectInFlight(const std::vector<Key>& keys) {
  for (const Key key : keys) {
    if (in_flight_.at(key)) Expect(key);
  }
}

void WorkerLoop::Sleep(Time now) { driver_.WakeAt(now + std::exchange(pending_, 0)); }

void WorkerLoop::Wait(Time now) {
  doing_ = Doing::kWaiting;
  if (!Blocked()) Arrived(now);
}

void WorkerLoop::EndSpan(Activity activity, Time now) {
  if (now > began_) {
    const bool wait = activity == Activity::kWait;
    driver_.Spent(activity, wait ? arrived_.key : kNoKey, wait ? arrived_.round : 0, began_,
                  now);
  }
  began_ = now;
}

}  // namespace geomx
