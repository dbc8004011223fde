// The local steps of a live training script, with what its threads waited in each.
#pragma once

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "core/local_steps.h"
#include "io/clock.h"
#include "io/run_status.h"

namespace geomx::io {

// A step that has ended, since the start of the run.
struct RecordedStep {
  std::uint32_t number = 0;
  Time start = 0;
  Time computed = 0;  // while no thread waited
  Time end = 0;
};

// All functions may be called from any thread. Nothing is recorded before `Start`.
class StepRecord {
 public:
  explicit StepRecord(const RunStatus& status) : status_(status) {}

  // Records from now on, the start of the first step.
  void Start() {
    std::lock_guard lock(mutex_);
    records_ = true;
    started_ = status_.started().value_or(Now());
    steps_.emplace(Now() - started_);
    waited_ = status_.waited();
  }
  void Begin() {
    if (!records_) return;
    std::lock_guard lock(mutex_);
    if (!steps_->told()) waited_ = status_.waited();
    Add(steps_->Begin(Now() - started_));
  }
  void Push(Key key) {
    if (!records_) return;
    std::lock_guard lock(mutex_);
    Add(steps_->Push(key, returned_ - started_));
  }
  void Computed() {
    if (!records_) return;
    std::lock_guard lock(mutex_);
    steps_->Computed();
  }
  // The application returns from a push, a value, a barrier or a reply.
  void Return() {
    if (!records_) return;
    std::lock_guard lock(mutex_);
    returned_ = Now();
  }
  void Leave() {
    if (!records_) return;
    std::lock_guard lock(mutex_);
    Add(steps_->Leave(returned_ - started_));
  }
  // The steps that have ended since the last call.
  std::vector<RecordedStep> Take() {
    std::lock_guard lock(mutex_);
    return std::exchange(ended_, {});
  }

 private:
  void Add(const std::optional<LocalStep>& step) {
    if (!step) return;
    const Time waited = status_.waited();
    const Time computed = step->end - step->start - (waited - waited_);
    ended_.push_back({step->number, step->start, std::max<Time>(0, computed), step->end});
    waited_ = waited;
  }

  const RunStatus& status_;
  std::atomic<bool> records_ = false;
  std::mutex mutex_;
  std::optional<LocalSteps> steps_;
  Time started_ = 0;
  Time returned_ = 0;
  Time waited_ = 0;  // up to the start of the present step
  std::vector<RecordedStep> ended_;
};

}  // namespace geomx::io
