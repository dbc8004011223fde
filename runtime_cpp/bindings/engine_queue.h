// The pushes and pulls that MXNet's engine has executed in the process of a simulated worker, until
// the simulator is told.
//
// A simulated worker passes what its script asks for to the simulator, and is told when virtual time
// has come so far. The engine must not wait for that, as its other threads compute: an operation is
// noted here with the time of its execution, and told once all threads of the process sleep. Then
// nothing more can be computed before a value arrives.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <ctime>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bindings/engine_target.h"

namespace geomx {

class EngineQueue final : public EngineTarget {
 public:
  struct Pushed {
    std::uint64_t number;
    Key key;
    std::span<const float> value;
    std::shared_ptr<const void> reader;
    io::PushOptions options;
    std::int64_t used_ns;    // see used_ns()
    std::int64_t passed_ns;  // by the monotonic clock
  };

  void Push(std::uint64_t number, Key key, std::span<const float> value,
            std::shared_ptr<const void> reader, const io::PushOptions& options) override;
  void WhenReady(std::uint64_t number, Key key, Round round, Arrived arrived) override;

  // Processor time of all threads of the process but the one that calls Wait.
  std::int64_t used_ns() const;
  // Waits until there is a push that was not taken or a pull that was not filled. Returns false if the
  // queue is closed.
  bool Wait();
  // Returns the pushes since the last call, in the order of execution.
  std::vector<Pushed> Take();
  // Returns key and round of the pull that the script made first, of those that wait.
  std::optional<std::pair<Key, Round>> Oldest() const;
  // Ends the pulls of this round of a key, and of earlier ones.
  void Fill(Key key, Round round, std::span<const float> value);
  // Ends all pulls, and all later ones, with an error.
  void Close(const std::string& why);

 private:
  struct Pull {
    Key key;
    Round round;
    Arrived arrived;
  };

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Pushed> pushed_;
  std::map<std::uint64_t, Pull> pulls_;
  bool closed_ = false;
  std::string why_;
  std::atomic<clockid_t> waiter_ = 0;  // the clock of its processor time; 0: none has waited
};

// Waits until all threads of this process but the calling one sleep.
void AwaitStillness();

}  // namespace geomx
