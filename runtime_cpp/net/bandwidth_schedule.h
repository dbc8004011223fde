// The bandwidth of an edge over time: its initial value, changes by a recorded trace or by random
// redraws, and outages.
//
// A schedule is a function of time only: piecewise constant, infinite, and known in advance. The
// simulator and every live process evaluate their own copies, so that an edge which several of them
// emulate changes at the same instant everywhere. A random value is a hash of a stream number and of
// its index, so the result does not depend on the order of calls.
//
// During an outage an edge carries nothing, and transfers wait. Every outage ends, because otherwise
// a run could never end: a trace that ends with 0 and an outage without end are refused.
//
// Times count from the start of the run. Before it, the value at time 0 applies.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "core/types.h"
#include "net/event_heap.h"
#include "net/maxmin.h"
#include "net/ramp.h"

namespace geomx::net {

class BandwidthSchedule {
 public:
  // A constant bandwidth in bytes/s; may be infinite. Implicit, because most edges are constant.
  BandwidthSchedule(double bytes_per_s = kInfinity);  // NOLINT(google-explicit-constructor)

  // The following throw std::invalid_argument for invalid arguments.

  // Bandwidths from the given times on. Times must increase, and the last bandwidth must not be 0.
  void SetTrace(std::vector<std::pair<Time, double>> changes);

  // Uniformly distributed between two bandwidths above 0, drawn at time 0 and again every `every`.
  void SetRedraw(Time every, double low, double high, std::uint64_t stream);

  // Down from `start` until `end`, repeated every `every` if that is not 0. At most one outage may
  // be periodic, because two could cover all times.
  void AddOutage(Time start, Time end, Time every = 0);

  // Alternately up and down, for exponentially distributed times with these means.
  void AddFailures(Time mean_up, Time mean_down, std::uint64_t stream);

  // Whether the bandwidth never changes.
  bool constant() const;

  // Bytes/s at `time`.
  double At(Time time);

  // The first time after `time` at which the bandwidth may change; kNever if there is none.
  Time Next(Time time);

  // The time at which `bytes` that use the edge exclusively from `from` on have passed: the upper
  // limit of the integral of the bandwidth.
  Time Finish(Time from, double bytes);

  // How many bytes can pass from time 0 until `end`: the integral of the bandwidth.
  double Carries(Time end);

 private:
  struct Outage {
    Time start, end, every;
    bool Covers(Time time) const;
    Time Next(Time time) const;
  };
  struct Failures {
    Time mean_up, mean_down;
    std::uint64_t stream;
    std::vector<Time> turns = {};  // as far as they were asked for: down, up, down, ...
    std::size_t After(Time time);  // index of the first turn after `time`
  };

  double Up(Time time) const;  // the bandwidth, were there no outage

  double bytes_per_s_;
  std::vector<std::pair<Time, double>> trace_;
  Time redraw_every_ = 0;  // 0: never
  double low_ = 0.0, high_ = 0.0;
  std::uint64_t stream_ = 0;
  std::vector<Outage> outages_;
  std::vector<Failures> failures_;
};

// The schedules of a network's edges, ordered by their next change.
class BandwidthSchedules {
 public:
  void Add(EdgeId edge, BandwidthSchedule schedule);

  // Ends the schedule of an edge; no effect if it has none.
  void Drop(EdgeId edge);

  // The time of the first change that was not applied yet; kNever if there is none.
  Time Next() const { return changes_.empty() ? kNever : changes_.top().at; }

  // The time of the first change that must be applied while messages wait, if all else that will happen
  // is at `due` or later. Where nothing else will, that is the first change of an edge for which
  // `limits(edge)`: others cannot let a message leave, and would be followed until the end of time.
  // After kMostAlone such changes in a row it is kNever: no message can leave, because, for example, two
  // edges of a path are down alternately.
  template <class Limits>
  Time Next(Time due, Limits&& limits) {
    if (due < kNever) {
      alone_ = 0;
      return Next();
    }
    Time next = kNever;
    for (const auto& [at, index] : changes_.entries()) {
      if (at < next && limits(schedules_[index].first)) next = at;
    }
    if (next != std::exchange(awaited_, next)) ++alone_;  // it may be asked for many times
    return alone_ > kMostAlone ? kNever : next;
  }

  // Calls `set(edge, bytes_per_s)` with the bandwidth at `now` for every edge that has changed.
  template <class Set>
  void Apply(Time now, Set&& set) {
    while (Next() <= now) {
      const std::uint32_t index = changes_.top().id;
      auto& [edge, schedule] = schedules_[index];
      set(edge, schedule.At(now));
      changes_.Set(index, schedule.Next(now));
    }
  }

 private:
  static constexpr std::uint32_t kMostAlone = 1'000'000;

  std::vector<std::pair<EdgeId, BandwidthSchedule>> schedules_;
  std::uint32_t alone_ = 0;  // changes in a row while nothing else was to happen
  Time awaited_ = kNever;    // the last one of them
  IndexedHeap<Time> changes_;
};

}  // namespace geomx::net
