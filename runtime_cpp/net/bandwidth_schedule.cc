#include "net/bandwidth_schedule.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace geomx::net {

namespace {

// Draw `number` of a stream, even in [0, 1): splitmix64 (Steele, Lea and Flood 2014), whose states
// are an arithmetic sequence and can be entered anywhere.
double Draw(std::uint64_t stream, std::uint64_t number) {
  std::uint64_t x = stream + (number + 1) * 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return static_cast<double>((x ^ (x >> 31)) >> 11) * 0x1p-53;
}

void Require(bool holds, const char* sentence) {
  if (!holds) throw std::invalid_argument(sentence);
}

}  // namespace

BandwidthSchedule::BandwidthSchedule(double bytes_per_s) : bytes_per_s_(bytes_per_s) {
  Require(bytes_per_s >= 0.0, "a bandwidth must not be negative");
}

void BandwidthSchedule::SetTrace(std::vector<std::pair<Time, double>> changes) {
  for (std::size_t i = 0; i < changes.size(); ++i) {
    Require(changes[i].first >= 0 && (i == 0 || changes[i].first > changes[i - 1].first),
            "the times of a trace must not be negative, and must increase");
    Require(changes[i].second >= 0.0, "a bandwidth must not be negative");
  }
  Require(changes.empty() || changes.back().second > 0.0, "a trace must not end with 0");
  trace_ = std::move(changes);
}

void BandwidthSchedule::SetRedraw(Time every, double low, double high, std::uint64_t stream) {
  Require(every > 0, "a redraw needs a time above 0 between draws");
  Require(low > 0.0 && low <= high && high < kInfinity,
          "a redraw needs finite bandwidths above 0, the lower one first");
  redraw_every_ = every;
  low_ = low;
  high_ = high;
  stream_ = stream;
}

void BandwidthSchedule::AddOutage(Time start, Time end, Time every) {
  Require(start >= 0 && end > start && end < kNever, "an outage must end after it begins");
  Require(every == 0 || every > end - start, "an outage must be over before it comes again");
  Require(every == 0 || std::none_of(outages_.begin(), outages_.end(),
                                     [](const Outage& other) { return other.every > 0; }),
          "only one outage of an edge may be periodic");
  outages_.push_back({start, end, every});
}

void BandwidthSchedule::AddFailures(Time mean_up, Time mean_down, std::uint64_t stream) {
  Require(mean_up > 0 && mean_down > 0, "the mean times up and down must be above 0");
  failures_.push_back({mean_up, mean_down, stream});
}

bool BandwidthSchedule::constant() const {
  return trace_.empty() && redraw_every_ == 0 && outages_.empty() && failures_.empty();
}

double BandwidthSchedule::Up(Time time) const {
  if (redraw_every_ > 0) {
    const auto number = static_cast<std::uint64_t>(time / redraw_every_);
    return low_ + (high_ - low_) * Draw(stream_, number);
  }
  const auto after = std::upper_bound(
      trace_.begin(), trace_.end(), time,
      [](Time moment, const std::pair<Time, double>& change) { return moment < change.first; });
  return after == trace_.begin() ? bytes_per_s_ : std::prev(after)->second;
}

double BandwidthSchedule::At(Time time) {
  time = std::max<Time>(time, 0);
  for (const Outage& outage : outages_) {
    if (outage.Covers(time)) return 0.0;
  }
  for (Failures& failures : failures_) {
    if (failures.After(time) % 2 == 1) return 0.0;  // its last turn was one down
  }
  return Up(time);
}

Time BandwidthSchedule::Next(Time time) {
  time = std::max<Time>(time, 0);
  Time next = kNever;
  if (redraw_every_ > 0) next = (time / redraw_every_ + 1) * redraw_every_;
  const auto change = std::upper_bound(
      trace_.begin(), trace_.end(), time,
      [](Time moment, const std::pair<Time, double>& entry) { return moment < entry.first; });
  if (change != trace_.end()) next = std::min(next, change->first);
  for (const Outage& outage : outages_) next = std::min(next, outage.Next(time));
  for (Failures& failures : failures_) {
    next = std::min(next, failures.turns[failures.After(time)]);
  }
  return next;
}

Time BandwidthSchedule::Finish(Time from, double bytes) {
  for (Time time = from;;) {
    const double rate = At(time);
    const Time next = Next(time);
    if (rate == kInfinity) return time;
    const double takes = rate > 0.0 ? bytes / rate * kSecond : kInfinity;
    if (next == kNever) {
      return takes < static_cast<double>(kNever) / 2 ? time + static_cast<Time>(takes) : kNever;
    }
    if (takes <= static_cast<double>(next - time)) return time + static_cast<Time>(takes);
    bytes -= rate * static_cast<double>(next - time) / kSecond;
    time = next;
  }
}

double BandwidthSchedule::Carries(Time end) {
  double bytes = 0.0;
  for (Time time = 0; time < end;) {
    const Time next = std::min(Next(time), end);
    bytes += At(time) * (static_cast<double>(next - time) / kSecond);
    time = next;
  }
  return bytes;
}

bool BandwidthSchedule::Outage::Covers(Time time) const {
  if (time < start) return false;
  return (every > 0 ? (time - start) % every : time - start) < end - start;
}

Time BandwidthSchedule::Outage::Next(Time time) const {
  if (time < start) return start;
  const Time phase = every > 0 ? (time - start) % every : time - start;
  if (phase < end - start) return time - phase + (end - start);
  return every > 0 ? time - phase + every : kNever;
}

std::size_t BandwidthSchedule::Failures::After(Time time) {
  while (turns.empty() || turns.back() <= time) {
    const bool up = turns.size() % 2 == 0;
    const double mean = static_cast<double>(up ? mean_up : mean_down);
    const double lasts = -mean * std::log1p(-Draw(stream, turns.size()));
    const Time last = turns.empty() ? 0 : turns.back();
    const double room = static_cast<double>(kNever - last) / 2;  // a mean may be beyond the clock
    turns.push_back(lasts < room ? last + std::max<Time>(1, std::llround(lasts)) : kNever);
  }
  return static_cast<std::size_t>(std::upper_bound(turns.begin(), turns.end(), time) -
                                  turns.begin());
}

void BandwidthSchedules::Add(EdgeId edge, BandwidthSchedule schedule) {
  if (schedule.constant()) return;
  changes_.Set(static_cast<std::uint32_t>(schedules_.size()), schedule.Next(0));
  schedules_.emplace_back(edge, std::move(schedule));
}

void BandwidthSchedules::Drop(EdgeId edge) {
  for (std::uint32_t index = 0; index < schedules_.size(); ++index) {
    if (schedules_[index].first == edge) changes_.Remove(index);
  }
}

}  // namespace geomx::net
