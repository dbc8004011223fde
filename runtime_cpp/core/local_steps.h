// Where the local steps of a training script begin and end; without a clock.
//
// A rhythm or an optimizer tells where a step begins. Otherwise a step is recognised by its pushes: it
// ends where the store returned from its last call before a key is pushed for the second time. What is
// computed up to that push belongs to the next step. Live loops and simulated scripts use it.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>

#include "core/types.h"

namespace geomx {

struct LocalStep {
  std::uint32_t number = 0;
  Time start = 0;
  Time end = 0;
};

class LocalSteps {
 public:
  explicit LocalSteps(Time now = 0) : began_(now) {}

  // Whether the script tells where steps begin.
  bool told() const { return told_; }
  // Steps that have ended: the number of the present one.
  std::uint32_t done() const { return done_; }

  // The script begins a step. Returns the step that this ends.
  std::optional<LocalStep> Begin(Time now) {
    std::optional<LocalStep> ended;
    if (!told_) began_ = now;
    if (told_ && active()) ended = End(now);
    told_ = true;
    return ended;
  }

  // A key is about to be pushed; the store returned from its last call at `returned`. Returns the step
  // that has ended then, if this push begins another.
  std::optional<LocalStep> Push(Key key, Time returned) {
    std::optional<LocalStep> ended;
    std::uint32_t& latest = pushed_in_[key];  // the number of a step and 1
    if (!told_ && latest == done_ + 1) ended = End(returned);
    latest = done_ + 1;
    pushed_ = true;
    return ended;
  }

  // The computing of the step is done. Returns whether it had not been before.
  bool Computed() {
    const bool first = !computed_;
    computed_ = true;
    return first;
  }

  // The worker leaves; the store returned from its last call at `returned`. Returns the last step.
  std::optional<LocalStep> Leave(Time returned) {
    return active() ? std::optional(End(returned)) : std::nullopt;
  }

 private:
  bool active() const { return computed_ || pushed_; }

  LocalStep End(Time end) {
    const LocalStep step{.number = done_++, .start = began_, .end = end};
    began_ = end;
    computed_ = pushed_ = false;
    return step;
  }

  std::uint32_t done_ = 0;
  bool told_ = false;
  bool computed_ = false;  // in the present step
  bool pushed_ = false;    // in the present step
  Time began_ = 0;
  std::unordered_map<Key, std::uint32_t> pushed_in_;
};

}  // namespace geomx
