// What a node tells its driver: events, the work that it has done, and counts for reports.
//
// Plain data. An `Event` comes out of `Node::PollEvent`, in order; `Work` out of `Node::TakeWork`;
// `NodeStats` out of `Node::stats`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/digest.h"
#include "core/types.h"

namespace geomx {

struct Event {
  enum class Kind : std::uint8_t {
    kRoster,      // everyone has joined; text = the experiment, names/addresses in `roster`
    kStarted,     // everyone is connected: go
    kValueReady,  // worker: the value of `key` after `round` is in
    kBarrier,     // worker: barrier `round` is complete
    kUpdated,     // global server: shard `shard` of `key` finished `round`
    kCommand,     // server: an instruction arrived (after the node itself has acted on it)
    kDead,        // a member was lost: `text` is its name, `reason` what was seen
    kStopped,     // everyone has finished
    kPeerError,   // `peer` broke the protocol: close the connection; `reason` says how
    kRefused,     // an instruction could not be carried out; `reason` says why
    kReply,       // coordinator `key` answered with `values`
    kSuspect,     // nothing is heard of `peer`, whose name is `text`, as `reason` says; it is waited for
    kHeard,       // `peer`, which was suspect, is heard again
    kGone,        // `peer`, whose name is `text`, takes part no more, as `reason` says; `round` is the epoch
    kBack,        // another process of `peer` takes part from now on; likewise
    kTakesPart,   // server: `peer`, which came back, contributes again, first to `round`
    kPartial,     // server: `round` closed without `values` (node ids); its sum includes so many
                  // `workers`; `above` is the global round that it became, or 0
    kNonFinite,   // worker: push `round` of `key` holds values that are NaN or infinite, as `text` says
  };
  Kind kind;
  NodeId peer = 0;
  Key key = 0;
  std::uint32_t shard = 0;
  Round round = 0;
  Round above = 0;
  std::uint32_t workers = 0;
  std::string text = {};
  std::string reason = {};
  std::vector<std::pair<std::string, std::string>> roster = {};  // (name, address)
  std::vector<double> values = {};
};

// Events that the driver has not polled yet, oldest first.
class EventQueue {
 public:
  void Add(Event&& event) { events_.push_back(std::move(event)); }
  std::optional<Event> Poll() {
    if (empty()) {
      events_.clear();
      next_ = 0;
      return std::nullopt;
    }
    return std::move(events_[next_++]);
  }
  bool empty() const { return next_ == events_.size(); }
  void Describe(Digest& digest, Digest::Level level) const;

 private:
  std::vector<Event> events_;
  std::size_t next_ = 0;  // those before were polled
};

// What the node has done since the driver last asked: the driver turns it into time (simulation) or
// reports it (live). Bytes are those of dense float32 values.
struct Work {
  struct Count {
    std::uint64_t times = 0;
    std::uint64_t bytes = 0;

    void Add(std::uint64_t more_bytes, std::uint64_t more_times = 1) {
      times += more_times;
      bytes += more_bytes;
    }
  };
  Count encode, decode, aggregate, update;
};

// Lasting counts, for reports.
struct NodeStats {
  std::uint64_t rounds = 0;          // shard rounds completed here
  std::uint64_t late_slices = 0;     // merged one round late
  std::uint64_t refused_slices = 0;  // duplicate or stale, or best effort and inconsistent
  std::uint64_t missing_slices = 0;  // absent when their round closed
  std::uint64_t dropped_slices = 0;  // stale before they were sent
  // Updates by other parties between a party's last value and the use of its next push.
  std::uint64_t staleness_sum = 0;
  std::uint64_t staleness_max = 0;
  std::uint64_t partial_rounds = 0;  // of those completed: some workers are not in
  std::uint64_t non_finite_pushes = 0;  // of a worker: pushes with values that are NaN or infinite
};

// How the reason begins for which a node ends the connection with a peer at fault.
inline constexpr std::string_view kBrokeProtocol = "broke the protocol: ";

// Between the names of two members: what was lost is the connection between them.
inline constexpr std::string_view kBetween = " <-> ";

// The round of a `dead` message that says only that the connection between two members has ended;
// the scheduler finds out whether one of them is gone.
inline constexpr Round kLinkEnded = 1;

}  // namespace geomx
