// The state of a run as the loop's thread has seen it, and the waits of application threads.
//
// One mutex and one condition variable: the thread writes, applications read and wait. A value wakes
// only threads that wait for its key: there may be thousands of values at a time. The first failure
// is final; from then on a wait ends at once, unless its result has already arrived.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/node.h"
#include "io/clock.h"

namespace geomx::io {

struct Failure {
  std::string name;  // of the node that was lost
  std::string reason;
};

// A member was lost, and the run has failed.
class NodeLost : public std::runtime_error {
 public:
  explicit NodeLost(Failure failure)
      : std::runtime_error((failure.name.find(kBetween) == std::string::npos ? "node "
                                                                             : "the connection ") +
                           failure.name + " was lost: " + failure.reason),
        failure_(std::move(failure)) {}
  const Failure& failure() const { return failure_; }

 private:
  Failure failure_;
};

// The scheduler's answer to a node that has joined.
struct Joined {
  std::string experiment;
  std::map<std::string, std::string> roster;  // addresses by name
  bool late = false;  // training goes on already: another process of this node was lost
};

// A local step that a first worker has begun.
struct BegunIteration {
  Round iteration = 0;
  Time at = 0;  // of Now(), when this node heard of it
};

// What a node was told about who takes part. It holds names, which only the loop's thread can look up, so that
// other threads can read it without waiting for that thread.
struct MemberNotice {
  Time at = 0;  // of Now()
  Event event;
  std::vector<std::string> names;                   // of whom it is about
  std::vector<std::pair<std::string, Round>> late;  // Event::late
};

class RunStatus {
 public:
  // Waiting threads call `look` ten times a second, for example to handle signals. An exception of
  // it ends the wait. Set it before the first wait.
  void OnWait(std::function<void()> look) { look_ = std::move(look); }

  // ---- the loop's thread ----
  void SetJoined(Joined joined) {
    Change([&] { joined_ = std::move(joined); });
  }
  // The scheduler's: the addresses of the members that were there at the start, by name; and of one
  // that has joined since.
  void SetRoster(std::map<std::string, std::string> roster) {
    Change([&] { roster_ = std::move(roster); });
  }
  void SetAddress(const std::string& name, const std::string& address) {
    Change([&] { roster_.insert_or_assign(name, address); });
  }
  void SetJoinError(std::string error) {
    Change([&] {  // the first failure is the cause
      if (join_error_.empty()) join_error_ = std::move(error);
    });
  }
  void SetStarted(Time at) {
    Change([&] { started_ = at; });
  }
  void SetStopped() {
    Change([&] { stopped_ = true; });
  }
  void SetReleased(Round barrier) {
    Change([&] { released_ = std::max(released_, barrier); });
  }
  void AddIteration(Round iteration) {
    Change([&] {
      if (iterations_.size() < kIterationsKept) iterations_.push_back({iteration, Now()});
    });
  }
  // Returns false if too many replies are unread already, of this coordinator or of all together. A
  // coordinator may answer members that have not reported yet, so replies to no report are kept, too.
  bool AddReply(std::uint32_t coordinator, std::vector<double> values) {
    bool taken = false;
    Change([&] {
      const auto known = replies_.find(coordinator);
      const std::size_t unread = known == replies_.end() ? 0 : known->second.size();
      taken = unread < kUnreadReplies && unread_bytes_ + CostOf(values) <= kUnreadBytes;
      if (!taken) return;
      unread_bytes_ += CostOf(values);
      replies_[coordinator].push_back(std::move(values));
    });
    return taken;
  }
  // Returns false if the application has never asked for states.
  bool AddState(std::string part) {
    bool taken = false;
    Change([&] {
      taken = asked_states_;
      if (taken) states_.push_back(std::move(part));
    });
    return taken;
  }
  void ExpectStates() {
    Change([&] { asked_states_ = true; });
  }
  void ForgetReplies() {
    Change([&] {
      replies_.clear();
      unread_bytes_ = 0;
    });
  }
  void SetValue(Key key, Round round, Time at) {
    bool awaited = false;
    {
      std::lock_guard lock(mutex_);
      Rounds& rounds = values_[key];
      if (rounds.count > 0 && rounds.Last() >= round) return;
      rounds.Add(round, at);
      awaited = rounds.awaited > 0;
    }
    if (awaited) changed_.notify_all();
  }
  void Fail(std::string name, std::string reason) {
    Change([&] {
      if (!failure_) failure_ = Failure{std::move(name), std::move(reason)};
    });
  }
  // Records a caller that was not a member; the first hundred are kept.
  void AddRefusal(std::string what) {
    std::lock_guard lock(mutex_);
    if (refusals_told_ < kRefusalsTold) refusals_.push_back(std::move(what));
    refusals_told_ += refusals_told_ < kRefusalsTold ? 1 : 0;
  }
  void AddMember(MemberNotice notice) {
    std::lock_guard lock(mutex_);
    members_.push_back(std::move(notice));
  }
  // A loop that stands by is not in charge of its node.
  void SetInCharge(bool is) { in_charge_ = is; }
  void SetEnded() {
    Change([&] { ended_ = true; });
  }

  // ---- any thread ----
  std::vector<std::string> TakeRefusals() {
    std::lock_guard lock(mutex_);
    return std::exchange(refusals_, {});
  }
  std::map<std::string, std::string> roster() const {
    std::lock_guard lock(mutex_);
    return roster_;
  }
  bool late() const {
    std::lock_guard lock(mutex_);
    return joined_ && joined_->late;
  }
  bool in_charge() const { return in_charge_; }
  // What was told about who takes part since the last call.
  std::vector<MemberNotice> TakeMembers() {
    std::lock_guard lock(mutex_);
    return std::exchange(members_, {});
  }
  std::optional<Failure> failure() const {
    std::lock_guard lock(mutex_);
    return failure_;
  }
  // The coordinator whose reply the application waits for.
  std::optional<std::uint32_t> awaited() const {
    std::lock_guard lock(mutex_);
    return awaited_;
  }
  std::optional<Time> started() const {
    std::lock_guard lock(mutex_);
    return started_;
  }
  // Whether an application thread waits: for a value, a reply, a barrier, the start or the end.
  bool waits() const {
    std::lock_guard lock(mutex_);
    return waiting_ > 0;
  }
  // For how long one application thread or several have waited.
  Time waited() const {
    std::lock_guard lock(mutex_);
    return waited_ + (waiting_ > 0 ? Now() - waiting_since_ : 0);
  }
  void ThrowIfFailed() const {
    std::lock_guard lock(mutex_);
    if (failure_) throw NodeLost(*failure_);
  }

  // Each returns nothing (or false) when time is up, and throws NodeLost, or std::runtime_error
  // once the loop was closed.
  std::optional<Joined> WaitJoined(double timeout_s) {
    std::unique_lock lock(mutex_);
    Wait(lock, timeout_s, [&] { return joined_ || !join_error_.empty(); });
    if (!join_error_.empty()) throw std::runtime_error(join_error_);
    return joined_;
  }
  std::optional<Time> WaitStarted(double timeout_s) {
    std::unique_lock lock(mutex_);
    Wait(lock, timeout_s, [&] { return started_.has_value(); });
    return started_;
  }
  bool WaitStopped(double timeout_s) {
    std::unique_lock lock(mutex_);
    return Wait(lock, timeout_s, [&] { return stopped_; });
  }
  bool WaitReleased(Round barrier, double timeout_s) {
    std::unique_lock lock(mutex_);
    return Wait(lock, timeout_s, [&] { return released_ >= barrier; });
  }
  // Waits for and takes the oldest reply of a coordinator.
  std::optional<std::vector<double>> WaitReply(std::uint32_t coordinator, double timeout_s) {
    std::unique_lock lock(mutex_);
    auto& replies = replies_[coordinator];
    awaited_ = coordinator;
    const bool answered = Wait(lock, timeout_s, [&] { return !replies.empty(); });
    awaited_.reset();
    if (!answered) return std::nullopt;
    auto values = std::move(replies.front());
    replies.pop_front();
    unread_bytes_ -= CostOf(values);
    return values;
  }
  // Waits for and takes the oldest part of an optimizer's state.
  std::optional<std::string> WaitState(double timeout_s) {
    std::unique_lock lock(mutex_);
    if (!Wait(lock, timeout_s, [&] { return !states_.empty(); })) return std::nullopt;
    std::string part = std::move(states_.front());
    states_.pop_front();
    return part;
  }
  // Waits for the `number`th announcement of an iteration, from 0. Returns nothing once the run has failed
  // or the loop was closed. Not counted as a wait of the application.
  std::optional<BegunIteration> AwaitIteration(std::size_t number) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return iterations_.size() > number || failure_ || ended_; });
    return iterations_.size() > number ? std::optional(iterations_[number]) : std::nullopt;
  }
  // Waits for the end of the loop's thread.
  void WaitEnded() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended_; });
  }
  // Waits for the value of `round`. Returns when it, or the first later one that is kept, was
  // complete.
  std::optional<Time> WaitValue(Key key, Round round, double timeout_s) {
    std::unique_lock lock(mutex_);
    Rounds& rounds = values_[key];
    const auto complete = [&] { return rounds.count > 0 && rounds.Last() >= round; };
    if (complete()) return rounds.Since(round);
    struct Awaiting {
      ~Awaiting() {
        if (!lock.owns_lock()) lock.lock();  // `look_` has thrown
        --rounds.awaited;
      }
      std::unique_lock<std::mutex>& lock;
      Rounds& rounds;
    } awaiting{lock, rounds};
    ++rounds.awaited;
    if (!Wait(lock, timeout_s, complete)) return std::nullopt;
    return rounds.Since(round);
  }

 private:
  static constexpr int kRefusalsTold = 100;
  static constexpr std::size_t kUnreadReplies = 1024;  // of one coordinator
  static constexpr std::size_t kUnreadBytes = std::size_t{32} << 20;  // of all coordinators' replies
  static constexpr std::size_t kOfQueue = 1024;  // bytes of a coordinator's queue with one reply, about
  static constexpr std::size_t kIterationsKept = 1 << 16;  // more than a scenario has events
  static constexpr std::chrono::milliseconds kLookEvery{100};

  // The last complete values of a key, and how many threads wait for another.
  struct Rounds {
    static constexpr std::uint32_t kRemembered = 8;

    // REQUIRES: count > 0, as for `Since`.
    Round Last() const { return rounds[(count - 1) % kRemembered].first; }
    void Add(Round round, Time at) { rounds[count++ % kRemembered] = {round, at}; }
    // When the first of the remembered values of `round` or later was complete. REQUIRES: Last() >= round.
    Time Since(Round round) const {
      std::uint64_t first = count - std::min<std::uint64_t>(count, kRemembered);
      while (rounds[first % kRemembered].first < round) ++first;
      return rounds[first % kRemembered].second;
    }

    std::array<std::pair<Round, Time>, kRemembered> rounds{};
    std::uint64_t count = 0;
    std::uint32_t awaited = 0;
  };

  static std::size_t CostOf(const std::vector<double>& reply) {
    return reply.size() * sizeof(double) + kOfQueue;
  }

  template <class Write>
  void Change(Write write) {
    {
      std::lock_guard lock(mutex_);
      write();
    }
    changed_.notify_all();
  }

  // Counts its thread as waiting. REQUIRES: `lock` is held when it is made.
  class Waiting {
   public:
    Waiting(RunStatus& status, std::unique_lock<std::mutex>& lock) : status_(status), lock_(lock) {
      if (status_.waiting_++ == 0) status_.waiting_since_ = Now();
    }
    ~Waiting() {
      if (!lock_.owns_lock()) lock_.lock();  // `look_` has thrown
      if (--status_.waiting_ == 0) status_.waited_ += Now() - status_.waiting_since_;
    }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    RunStatus& status_;
    std::unique_lock<std::mutex>& lock_;
  };

  template <class Ready>
  bool Wait(std::unique_lock<std::mutex>& lock, double timeout_s, Ready ready) {
    if (ready()) return true;
    const Waiting waiting(*this, lock);
    const auto deadline =
        std::chrono::steady_clock::now() + std::chrono::nanoseconds(Nanoseconds(timeout_s));
    for (;;) {
      if (ready()) return true;
      if (failure_) throw NodeLost(*failure_);
      if (ended_) throw std::runtime_error("the loop was closed");
      const auto now = std::chrono::steady_clock::now();
      if (now >= deadline) return false;
      const auto pause = std::min(deadline, look_ ? now + kLookEvery : deadline);
      if (changed_.wait_until(lock, pause) == std::cv_status::timeout && look_) {
        lock.unlock();
        look_();
        lock.lock();
      }
    }
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Joined> joined_;
  std::map<std::string, std::string> roster_;
  std::string join_error_;
  std::optional<Time> started_;
  bool stopped_ = false;
  bool ended_ = false;
  Round released_ = 0;
  std::vector<BegunIteration> iterations_;  // as announced
  std::map<std::uint32_t, std::deque<std::vector<double>>> replies_;
  std::size_t unread_bytes_ = 0;  // CostOf those
  std::deque<std::string> states_;
  bool asked_states_ = false;
  std::unordered_map<Key, Rounds> values_;  // whose entries stay where they are
  std::optional<Failure> failure_;
  std::vector<std::string> refusals_;
  int refusals_told_ = 0;
  std::vector<MemberNotice> members_;
  std::atomic<bool> in_charge_ = true;
  std::optional<std::uint32_t> awaited_;
  std::uint32_t waiting_ = 0;  // threads
  Time waiting_since_ = 0;     // REQUIRES: waiting_ > 0
  Time waited_ = 0;            // by earlier waits
  std::function<void()> look_;
};

}  // namespace geomx::io
