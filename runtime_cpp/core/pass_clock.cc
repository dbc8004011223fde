#include "core/pass_clock.h"

#include <algorithm>
#include <stdexcept>

namespace geomx {

PassClock::PassClock(std::shared_ptr<const Layers> layers, std::shared_ptr<const Pace> pace)
    : loop_(*this, std::move(layers), std::move(pace)) {
  loop_.Start(0);
}

double PassClock::Times(Time at) const {
  double times = stretch_;
  for (const Slowness& each : slow_) {
    if (each.start <= at && at < each.end) times *= each.times;
  }
  return times;
}

void PassClock::Advance(Time now) {
  now_ = now;
  loop_.Stretch(Times(now));
}

void PassClock::Forward(Time now, const std::vector<Key>& needs) {
  std::erase_if(pauses_, [now](const auto& pause) { return pause.second <= now; });
  std::erase_if(slow_, [now](const Slowness& each) { return each.end <= now; });
  now_ = now;
  loop_.BeginForward(now, needs);
  wake_ = now;  // once the values that are there have been told
}

std::vector<std::pair<Key, Time>> PassClock::Backward(WorkerLoop::Step step, Time now) {
  Advance(now);
  loop_.Backward(step, now);
  Run(kNever);
  return std::exchange(pushes_, {});
}

Time PassClock::Arrived(std::vector<Arrival> arrivals, Time reply) {
  if (reply != kNever) arrivals.push_back({reply, WorkerLoop::kNoKey, 0});
  std::stable_sort(arrivals.begin(), arrivals.end(),
                   [](const Arrival& one, const Arrival& other) { return one.at < other.at; });
  for (const Arrival& arrival : arrivals) {
    Run(arrival.at);
    Advance(std::max(arrival.at, now_));
    if (arrival.key == WorkerLoop::kNoKey) {
      loop_.OnReply(now_);
    } else {
      loop_.OnValue(arrival.key, arrival.round, now_);
    }
  }
  Run(kNever);
  if (!loop_.idle()) throw std::logic_error("something that is waited for was not told of");
  return now_;
}

Time PassClock::AfterPauses(Time time) const {
  for (const auto& [start, end] : pauses_) {
    if (start < time && end > now_) time += end - std::max(start, now_);
  }
  return time;
}

// Runs everything that is due before `until`.
void PassClock::Run(Time until) {
  while (wake_ < until) {
    Advance(std::exchange(wake_, kNever));
    loop_.Wake(now_);
  }
}

}  // namespace geomx
