// The live driver as applications use it: one node of a run, on one port, with one thread.
//
// A Loop owns the sockets, the thread and the core Node of one member. All functions may be called
// from any thread: those that change the node post to the loop's thread, and those that wait use a
// status that this thread writes (run_status.h). Values are copied once, directly into the caller's
// memory.
//
//   Loop loop("127.0.0.1", 0, token);
//   loop.StartJoin(scheduler, name, id, 30.0);        // not on the scheduler
//   auto joined = loop.WaitJoined(30.0);              // the experiment, and all addresses
//   loop.Run(config, joined->roster, shape);          // a Node, connections to all peers
//   loop.WaitStarted(30.0);                           // all members are connected: time 0
//   ... verbs ...
//   loop.Leave(); loop.WaitStopped(10.0); loop.Close();
//
// The loss of a member fails the run: every wait, present and future, throws NodeLost unless its
// result has already arrived. Waits return nothing (or false) when time is up.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "core/node.h"
#include "core/optimizer_states.h"
#include "io/run_status.h"
#include "io/driver.h"
#include "io/own_process.h"
#include "io/shaper.h"
#include "io/step_record.h"
#include "io/device_staging.h"
#include "io/tls.h"

namespace geomx::io {

struct PushOptions {
  float loss = std::numeric_limits<float>::quiet_NaN();  // the worker's last training loss
  bool last = false;          // the last push of this key
  bool absent = false;        // the worker has nothing to contribute: the value is zeros
  double not_before_s = 0.0;  // since the start of the run; leaves no earlier
  std::uint32_t made = 0;     // see Worker::Push; 0: as SetMade has said

  Worker::Push Applied(Worker::Push push) const {
    push.loss = loss;
    push.last = last;
    push.absent = absent;
    push.made = made;
    return push;
  }
};

class Loop : public std::enable_shared_from_this<Loop> {
 public:
  // Binds TCP and UDP on one port (0: any free one) and starts the thread. With `tls` everything
  // that is sent is encrypted; without, only this machine can connect unless `insecure`. Throws
  // std::runtime_error if the token is empty, the port cannot be bound, or a file cannot be used.
  Loop(const std::string& host, int port, const std::string& token,
       const std::optional<TlsFiles>& tls = std::nullopt, bool insecure = false);
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  // See RunStatus::OnWait.
  void OnWait(std::function<void()> look) { state_->status.OnWait(std::move(look)); }

  const std::string& address() const { return address_; }  // "host:port"

  // ---- membership ----
  // Calls the scheduler at "host:port" repeatedly until it answers or time is up. Without an id the
  // name identifies this node. `late`: it joins only a run that has started.
  void StartJoin(const std::string& scheduler, const std::string& name, std::optional<NodeId> id,
                 double timeout_s, bool late = false);
  // Throws std::runtime_error that says what was tried and what to check.
  std::optional<Joined> WaitJoined(double timeout_s);

  // Creates the node and connects it to its peers. `roster`: addresses by name. `shape`: the
  // emulation of its links, or nothing on a real network. `congestion`: the congestion control of
  // connections to other machines, used if the kernel has it; empty: the system's default. The
  // scheduler calls this first, and the other members then join it. With a `journal` another
  // process can continue after this one is killed; if it already has records of this node, the node
  // continues from them without joining. Throws JournalError if it cannot.
  void Run(const NodeConfig& config, const std::map<std::string, std::string>& roster,
           const std::optional<Shape>& shape, const std::string& congestion = "bbr",
           std::shared_ptr<JournalFile> journal = nullptr);
  // Returns what a server holds, by its journal, in place of Run: it does not take part in anything.
  std::vector<SavedShard> Reopen(const NodeConfig& config, const std::shared_ptr<JournalFile>& journal) {
    std::vector<SavedShard> saved;
    Call([&] { saved = state_->driver.Reopen(config, journal); });
    return saved;
  }
  // Stands by a global server, whose node has the configuration `config`: `member`, the loop of a node
  // of the role kStandby that is going to run, passes on its records and tells when to take over. Callers
  // wait until then. Call it before `member` joins, which announces this loop's address.
  void Announce(const Loop& other) {
    const Address address = Resolve(other.address());
    Call([&] { state_->driver.Announce(address); });
  }
  void StandBy(const NodeConfig& config, const std::map<std::string, std::string>& roster,
               const std::optional<Shape>& shape, const std::string& congestion,
               const std::shared_ptr<Loop>& member);
  // Whether this loop has stood by and has taken over.
  bool InCharge() const { return state_->status.in_charge(); }
  // Seconds on this machine's monotonic clock at which the run started.
  std::optional<double> WaitStarted(double timeout_s);
  bool IsScheduler() {
    bool is = false;
    Call([&] { is = state_->driver.node().config().role == Role::kScheduler; });
    return is;
  }
  // The names of members that have not connected yet, for the error message after a timeout.
  std::vector<std::string> Missing();
  void GiveUpOnMissing(const std::string& why) {
    Call([&] { state_->driver.GiveUpOnMissing(why); });
    state_->status.ThrowIfFailed();
  }
  // Disturbances of the path to a peer, for scenarios: see Sessions.
  void Cut(NodeId peer) {
    Call([&] { state_->driver.Cut(peer); });
  }
  void Heal(NodeId peer) {
    Call([&] { state_->driver.Heal(peer); });
  }
  void Reset(NodeId peer) {
    Call([&] { state_->driver.Reset(peer); });
  }
  // Whether training goes on already, as another process of this node was lost; once joined.
  bool late() const { return state_->status.late(); }
  // See RunStatus::SetRoster.
  std::map<std::string, std::string> roster() const { return state_->status.roster(); }
  // On the scheduler: the process of a member is known to have ended; see Driver.
  void ReportEnded(const std::string& name, const std::string& reason) {
    Call([&] { state_->driver.ReportEnded(name, reason); });
  }
  // What was told about who takes part since the last call.
  std::vector<MemberNotice> TakeMembers() { return state_->status.TakeMembers(); }
  void Leave();
  bool WaitStopped(double timeout_s);
  std::optional<Failure> failure() const { return state_->status.failure(); }
  bool Waits() const { return state_->status.waits(); }
  std::int64_t OrderDue() const { return state_->driver.order_due(); }  // see Watch
  std::int64_t InitialDue() const { return state_->driver.initial_due(); }
  bool Settled() const { return state_->driver.settled(); }
  // Ends the thread: queued control messages still leave (within half a second), then all
  // connections are closed. Peers see a loss unless the run was stopped or this node left. Does not
  // wait if called on the loop's own thread (by a callback that held the last reference).
  // With `failed` they are told that this process ends by this error of its own: one line.
  void Close(const std::string& failed = {});

  // ---- a worker's verbs ----
  // `name`: the application's name of the key, for messages; empty: "key NUMBER".
  void Declare(Key key, std::uint64_t elements, std::vector<ShardInfo> shards,
               const std::string& name = {});
  // Records where the application is, if there is a journal; see RecordedNode::Note.
  void Note(const std::string& text, std::vector<std::string> state);
  // Where the application of the killed process was, once all tensors have been declared as they were
  // there. It repeats its calls after the latest note, and those that were made have no effect.
  Resumed TakeResumed();
  void Init(Key key, std::span<const float> value, std::shared_ptr<const void> owner);
  // `value` is read later and not copied: `owner` must keep it alive and unchanged. Returns the
  // round.
  Round Push(Key key, std::span<const float> value, std::shared_ptr<const void> owner,
             const PushOptions& options = {});
  // The same for several keys, in order, for less than as many calls cost. If it throws, nothing was
  // pushed.
  void PushAll(std::span<const std::pair<Key, std::span<const float>>> values,
               const std::shared_ptr<const void>& owner, const PushOptions& options = {});
  // Pushes a value on a device: it is encoded there as far as its codecs have kernels, and leaves
  // as it arrives on the host. Does not wait for the device.
  Round Push(Key key, const std::shared_ptr<DeviceStaging::Value>& value, const PushOptions& options = {});
  // Pushes are from now on made after so many local steps (Worker::Push::made).
  void SetMade(std::uint32_t steps) { made_ = steps; }
  std::uint32_t made() const { return made_; }
  void Request(Key key);
  // Waits for the value of `round` (or of a later one). Returns when it was complete, in seconds
  // since the start.
  std::optional<double> Wait(Key key, Round round, double timeout_s);
  // The same for several keys; returns when the last of them was complete.
  std::optional<double> WaitAll(std::span<const std::pair<Key, Round>> values, double timeout_s);
  // Calls back on the loop's thread, once, when that value has arrived: with the value, which is
  // valid during the call, or with nothing if it never will (a node was lost, the loop was closed).
  // A callback may push, request callbacks and read the clock; it must not wait for the loop.
  void WhenReady(Key key, Round round, ReadyCallback callback);
  // Returns true if no worker contributed to the last complete value.
  bool Absent(Key key);
  // See Worker::Reached.
  Round Reached(Key key) {
    Round reached = 0;
    Call([&] { reached = state_->driver.node().worker().Reached(key); });
    return reached;
  }
  // The round of the last complete value, from which on pushes of the key are counted. For a worker that
  // is late, before its first push.
  Round GoOn(Key key);
  // Copies the last complete value. Throws std::invalid_argument if sizes differ or there is none.
  void Value(Key key, std::span<float> out);
  // The same for several keys at once.
  void Values(std::span<const std::pair<Key, std::span<float>>> outs);
  // The same into a tensor on a device; `consumer` waits for it, or the caller if that is unknown.
  // From the next round on, values of this key are copied to the device encoded if it can decode
  // them.
  void Fill(Key key, DeviceStaging& stage, const io::DeviceTensor& tensor, const Stream& consumer);
  Round StartBarrier();
  bool WaitBarrier(Round barrier, double timeout_s);
  // See Node::BeginIteration, and RunStatus::AwaitIteration for what all nodes hear.
  void BeginIteration(Round iteration);
  std::optional<BegunIteration> AwaitIteration(std::size_t number) {
    return state_->status.AwaitIteration(number);
  }
  // A global server applies it to itself. `unless_given`: see Worker::Command.
  void Command(const std::string& text, bool unless_given = false);
  // Asks all global servers for the states of their optimizers, which arrive in parts
  // (core/optimizer_states.h). Returns the oldest part that was not taken yet.
  void AskStates() {
    state_->status.ExpectStates();
    Command(kAskVerb);
  }
  std::optional<std::string> WaitState(double timeout_s) { return state_->status.WaitState(timeout_s); }
  // Sets the initial value of a global server's shard, for a master that is not a member.
  void Initialise(const ShardInfo& shard, Buffer value);
  // Sends numbers to a coordinator, after all earlier pushes and no earlier than `not_before_s`
  // after the start.
  void SendReport(NodeId host, std::uint32_t number, std::vector<double> values,
                  double not_before_s);
  std::optional<std::vector<double>> WaitReply(std::uint32_t number, double timeout_s);

  // The local steps of a script: pushes are recorded by themselves.
  StepRecord& steps() { return state_->steps; }

  // Callers since the last call that were not members, and why: the first hundred of a run.
  std::vector<std::string> TakeRefusals() { return state_->status.TakeRefusals(); }

  // ---- reports; also after Close ----
  std::optional<Buffer> GlobalValue(Key key, std::uint32_t shard);  // a global server's
  Report GetReport();
  // See Node::ResidualNorm; by direction.
  std::array<double, kDirections> ResidualNorms();
  std::vector<Span> Spans() const;  // from the start of the run on

 private:
  static constexpr Time kNoticeable = kMillisecond / 20;  // of a wait, for the timeline

  struct Declared {
    std::uint64_t elements = 0;
    Round submitted = 0;
  };

  // Runs `task` on the loop's thread and waits for it; on the caller's, if that thread has ended.
  void Call(const std::function<void()>& task);
  Declared& FindTensor(Key key, std::size_t elements);  // REQUIRES: verbs_ is held
  // Whether the process before has made this call. REQUIRES: verbs_ is held.
  bool WasDone(RecordKind kind, std::uint32_t number);
  Round Submit(Key key, std::size_t elements, Worker::Push push, const PushOptions& options);

  // The thread's state; it outlives the loop if the loop is destroyed on that thread.
  struct State {
    RunStatus status;
    StepRecord steps{status};
    Driver driver;
    State(Port port, const std::string& token, std::unique_ptr<Tls> tls)
        : driver(std::move(port), token, std::move(tls), status) {}
  };

  std::string address_;
  OwnProcess<State> state_;
  double join_timeout_s_ = 30.0;
  std::mutex verbs_;  // never held while the loop's thread is waited for; keeps rounds and barriers in the order in which they were asked for
  std::atomic<std::uint32_t> made_ = 0;  // Worker::Push::made of the next pushes
  std::unordered_map<Key, Declared> tensors_;
  std::map<std::pair<RecordKind, std::uint32_t>, std::uint32_t> done_;  // see Resumed
  Round barriers_ = 0;
  std::mutex ended_;  // serialises access to the state of an ended thread
  std::mutex joining_;
  std::thread thread_;
  std::thread::id thread_id_;
};

}  // namespace geomx::io
