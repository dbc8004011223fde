// A whole run in virtual time: the processes of all members, their applications, the network, the launchers
// and the faults.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "core/policy.h"
#include "faults/admissions.h"
#include "faults/closings.h"
#include "faults/experiment.h"
#include "faults/history.h"
#include "faults/network.h"
#include "faults/process.h"
#include "faults/suspicions.h"

namespace geomx::faults {

// The application of a worker: it trains for the rounds of the experiment, then leaves.
class Trainer {
 public:
  Trainer(Surroundings& world, const Experiment& experiment, Process& process, History& history)
      : world_(world), experiment_(experiment), process_(process), history_(history) {}

  void OnStarted();
  void OnValue(Key key);
  void OnBarrier();
  void LeaveSoon() { leaves_ = true; }
  bool left() const { return left_; }
  bool Answered() const;  // all that was pushed

 private:
  History::Contribution Contribution(Key key, Round round);
  void Continue();
  Round Position(Key key);
  void Compute(const std::vector<Key>& keys);
  void Push(Key key);
  bool MadeLastPush() const;
  bool Leaves() const;
  void Finish();
  Worker& worker();

  Surroundings& world_;
  const Experiment& experiment_;
  Process& process_;
  History& history_;
  std::map<Key, Round> rounds_;   // of the values that have arrived
  std::map<Key, Round> pushed_;
  std::set<Key> ended_;  // keys whose last push has been made
  std::size_t computing_ = 0;  // steps
  bool leaves_ = false, left_ = false, at_barrier_ = false;
};

struct Outcome {
  std::string broken;  // the broken law, and where; empty: none
  Time end = 0;
  bool stopped = false;  // by a loss, with OnLoss::kStop, or by a hostile member; there is nothing to judge
  History history;
  Counts counts;
  std::uint64_t actions = 0, resets = 0, kills = 0, suspicions = 0;
};

class World final : public Surroundings {
 public:
  // `faults`: a subset of those of the experiment. `note`: print a trace.
  World(const Experiment& experiment, const std::vector<Fault>& faults, bool note);
  ~World();

  // Runs until all members have stopped, a law is broken, or `patience` has passed since the last fault ended.
  Outcome Run(Time patience);

  // ---- Surroundings ----
  Time now() const override { return agenda_.now(); }
  Network& network() override { return *network_; }
  check::Random& random() override { return random_; }
  NodeConfig Config(NodeId id) override;
  std::uint32_t Incarnation(ProcessId process) override {
    return Alive(process) ? members_.at(process.node).process->incarnation() : 0;
  }
  void Later(ProcessId process, Time at, std::function<void()> action) override;
  void OnEvent(ProcessId process, const Event& event) override;
  void OnEnd(ProcessId process, const std::string& reason) override;
  void Fail(NodeId node, const std::string& what) override;
  void OnLeaving(ProcessId process, std::uint32_t incarnation, const Message& message) override;
  void OnDelivered(ProcessId process, NodeId from, std::uint32_t incarnation, const Message& message) override;

 private:
  struct Member {
    std::unique_ptr<Process> process;  // null: there is none
    std::unique_ptr<Trainer> trainer;
    Journal journal;
    std::uint32_t life = 0;
    Time begun = 0, paused_until = 0;
    bool repeats = false;         // this process repeats its journal
    std::uint32_t announced = 0;  // the latest life of which the scheduler has told the others
    bool accuses = false;         // this process has reported a loss
    bool deceived = false;        // a worker: this process was sent a forged value
    bool gone = false;            // the scheduler has declared it lost, or it was absent at the start
    bool left = false;            // a worker: it has said goodbye to the scheduler, and did not come back
    // Of a local server: rounds of its party that were escalated and whose sums have not been sent.
    std::map<std::pair<Key, std::uint32_t>, std::deque<Round>> escalated;
    std::vector<std::tuple<Key, std::uint32_t, Round>> closed;  // the same that are still to be checked
  };

  void Stop(ProcessId process, const std::string& reason);
  bool Alive(ProcessId process) const;
  void Run(ProcessId process, const std::function<void()>& action);
  void Begin(NodeId id);
  void Kill(NodeId id, Time lasts, bool told, double written, const std::string& reason);
  void EndThoseThatWaitForTheStart();
  void Inflict(const Fault& fault);
  bool MayBeKilled(NodeId id) const;
  bool KeepsJournal(NodeId id) const;
  // The scheduler and the global servers, without which no run continues.
  bool IsNeeded(NodeId id) const { return id < layout_.servers.front(); }
  void Announce(NodeId id, std::uint32_t incarnation);
  void CheckLoss(const Event& event);
  void HasLeft(NodeId worker);
  void CheckEnd(NodeId which);
  void CheckReturn(NodeId server, NodeId from, const Header& header);
  void OnMembers(NodeId global, NodeId party, const Header& header);
  // Breaks a law unless `wrong` is empty.
  void Expect(NodeId node, const std::string& wrong) {
    if (!wrong.empty()) Fail(node, wrong);
  }
  // What hostile members say, in forgery.cc.
  void ForgePush(NodeId global, NodeId party);
  void ForgeNext(NodeId global, NodeId party, const Header& push, std::size_t updates);
  std::size_t Updates(NodeId global, const Header& header) const;
  void ForgeValue(NodeId worker, const Header& push);
  void Forge(NodeId to, Message message);
  void ForEnds(const Fault& fault, const std::function<void(NodeId, NodeId)>& act);
  void Record(ProcessId process, const Event& event);
  // A local server has closed a round of its party. The laws are checked once what it was told before is known.
  void NoteClosed(NodeId server, const PartyRound& round);
  void CheckClosed(NodeId server);
  void OnParty(NodeId server, NodeId from, std::uint32_t incarnation, const Header& header);
  bool Over() const;
  void ReadLast();
  std::string Standstill();
  void Note(NodeId node, const std::string& what);
  Time Delay(NodeId from, NodeId to) const;

  const Experiment& experiment_;
  const check::Layout layout_;
  const bool note_;
  check::Random random_;
  Agenda agenda_;
  std::unique_ptr<Network> network_;
  std::map<NodeId, Member> members_;
  Time healed_ = 0;  // when the last fault ends
  std::optional<NodeId> gone_;  // with OnLoss::kStop: the member that was killed
  std::optional<std::pair<NodeId, NodeId>> forged_;  // receiver and sender of a message that is to be refused
  const bool disturbed_;   // there are faults
  bool curtails_;          // the first worker that leaves lets the others leave
  bool forgets_ = false;  // a scheduler was killed before it had logged all that it was told
  bool convicted_ = false;  // a hostile member was refused, which ends the run except with `continue`
  Suspicions suspicions_;
  Closings closings_;
  Admissions admissions_;
  Outcome outcome_;
};

// Runs an experiment without faults, then with these of its faults, and checks the laws.
Outcome Try(const Experiment& experiment, const std::vector<Fault>& faults, bool note);

}  // namespace geomx::faults
