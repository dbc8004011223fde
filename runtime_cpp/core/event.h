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

#include "core/archive.h"
#include "core/digest.h"
#include "core/types.h"

namespace geomx {

struct Event {
  enum class Kind : std::uint8_t {
    kRoster,      // all members have joined; text = the experiment, names/addresses in `roster`
    kStarted,     // all members are connected: training may begin, or has begun `text` ns ago
    kValueReady,  // worker: the value of `key` after `round` is in
    kBarrier,     // worker: barrier `round` is complete
    kUpdated,     // global server: shard `shard` of `key` finished `round`
    kCommand,     // server: an instruction arrived (after the node itself has acted on it)
    kDead,        // a member was lost: `text` is its name, `reason` why
    kStopped,     // all members have finished
    kPeerError,   // `peer` broke the protocol: close the connection; `reason` says how
    kRefused,     // an instruction could not be carried out; `reason` says why
    kReply,       // coordinator `key` answered with `values`
    kSuspect,     // `peer`, whose name is `text`, is silent, as `reason` says; the run waits for it
    kHeard,       // `peer` is suspect no longer: it was heard
    kGone,        // `peer`, whose name is `text`, is lost, as `reason` says; `round` is the epoch
    kBack,        // a new process of `peer`, at `address`, takes part from now on; fields as of kGone
    kMoved,       // another process, at `address`, goes on where that of `peer` was; else as of kGone
    kTakesPart,   // server: `peer` has come back and contributes again, first to `round`
    kPartial,     // server: `round` closed without `values` (node ids); its sum includes `workers`
                  // workers, and contributions to earlier rounds (`late`); `above` is the global round
                  // that it is sent as, or 0
    kState,       // worker: a part of an optimizer's state, as in optimizer_states.h
    kIteration,   // a first worker begins local step `round`, at which a scenario has an event
    kNonFinite,   // worker: push `round` of `key` holds values that are NaN or infinite, as `text` says
  };
  Kind kind;
  NodeId peer = 0;
  Key key = 0;
  std::uint32_t shard = 0;
  Round round = 0;
  Round above = 0;
  std::uint32_t workers = 0;
  std::uint32_t dropped = 0;  // the last so many of `late` count in no sum
  std::string text = {};
  std::string reason = {};
  std::string address = {};
  std::vector<std::pair<std::string, std::string>> roster = {};  // (name, address)
  std::vector<double> values = {};
  std::vector<std::pair<NodeId, Round>> late = {};  // (source, the round that it was pushed for)
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
  std::size_t next_ = 0;  // index of the first event not polled yet
};

// The node's work since the driver last asked: the driver turns it into time (simulation) or
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

  void Add(const Work& more) {
    for (Count Work::*kind : {&Work::encode, &Work::decode, &Work::aggregate, &Work::update}) {
      (this->*kind).Add((more.*kind).bytes, (more.*kind).times);
    }
  }
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
  std::uint64_t partial_rounds = 0;  // of those completed: closed without some workers
  std::uint64_t non_finite_pushes = 0;  // of a worker: pushes with values that are NaN or infinite
  std::uint64_t shards = 0;  // with a round completed here; counted by Node::stats

  void Exchange(Archive& archive) {
    archive(rounds, late_slices, refused_slices, missing_slices, dropped_slices, staleness_sum,
            staleness_max, partial_rounds, non_finite_pushes);
  }
};

// Prefix of the reason for which a node closes the connection to a peer at fault.
inline constexpr std::string_view kBrokeProtocol = "broke the protocol: ";

// Prefix of the reason for which a process is told to end whose member was declared lost.
inline constexpr std::string_view kTakenForLost = "it was declared lost: ";

// Prefix of the reason for which a member is lost whose process has ended by an error of its own.
inline constexpr std::string_view kFailed = "it failed: ";

// The reason for which a member is lost of which a new process has joined.
inline constexpr const char* kReplaced = "another process took its place";

// Separates the names of two members that have lost the connection between them.
inline constexpr std::string_view kBetween = " <-> ";

// The round of a `command` that has no effect after another one.
inline constexpr Round kUnlessGiven = 1;

// The round of a `dead` message about a connection between two members that has ended; the
// scheduler finds out whether one of them is lost.
inline constexpr Round kLinkEnded = 1;

}  // namespace geomx
