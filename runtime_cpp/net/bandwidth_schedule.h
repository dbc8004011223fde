// The bandwidth of an edge over time: what it starts with, what a recorded trace or a redraw makes of
// it, and when it is down.
//
// A schedule is a function of time and of nothing else: piecewise constant, without an end, and known
// in advance. The simulator and every live process ask their own copies of it, and so an edge that
// several of them emulate changes for all of them at the same instant. Draws are a hash of a stream
// number and of the number of the draw, so nothing depends on who asks when.
//
// While an edge is down it carries nothing; what is under way waits. Every schedule comes up again, or
// a run could wait for ever: a trace that ends with 0 and an outage without end are refused.
//
// Times count from the start of the run; before it a schedule is what it is at 0.
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
  // A bandwidth in bytes/s that never changes; may be infinite. Implicit: most edges are like that.
  BandwidthSchedule(double bytes_per_s = kInfinity);  // NOLINT(google-explicit-constructor)

  // What each of the following throws where it makes no sense is std::invalid_argument.

  // From each time on that bandwidth, the last one for ever. Times increase, the last rate is not 0.
  void SetTrace(std::vector<std::pair<Time, double>> changes);

  // Evenly between two bandwidths above 0, drawn at time 0 and again every `every`.
  void SetRedraw(Time every, double low, double high, std::uint64_t stream);

  // Down from `start` until `end`; again and again every `every` if that is not 0. At most one
  // outage may be periodic: two could leave no gap.
  void AddOutage(Time start, Time end, Time every = 0);

  // Up and down by turns, for exponentially distributed times with these means.
  void AddFailures(Time mean_up, Time mean_down, std::uint64_t stream);

  // Whether it is the same for ever.
  bool constant() const;

  // Bytes/s at `time`.
  double At(Time time);

  // The first time after `time` at which the bandwidth may be another; kNever if there is none.
  Time Next(Time time);

  // When `bytes` have passed, if they have the edge to themselves from `from` on: the upper limit of
  // the integral of the bandwidth.
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

// The schedules of a network's edges, and which of them changes next.
class BandwidthSchedules {
 public:
  void Add(EdgeId edge, BandwidthSchedule schedule);

  // When the first of them changes, of what was not applied yet; kNever if none will.
  Time Next() const { return changes_.empty() ? kNever : changes_.top().at; }

  // Tells `set(edge, bytes_per_s)` of every edge that has changed since, as it is at `now`.
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
  std::vector<std::pair<EdgeId, BandwidthSchedule>> schedules_;
  IndexedHeap<Time> changes_;
};

}  // namespace geomx::net
