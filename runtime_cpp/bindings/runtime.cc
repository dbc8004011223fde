// Python's view of the live driver: Loop and the Shape of its emulated links.
//
// No call holds the interpreter lock while it copies data or waits, as the loop's thread takes that lock
// to call plugins in Python. It does not take it to release arrays: those that it no longer needs are
// queued (release_queue.h), and the next call from Python releases them.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <cstring>
#include <utility>

#include "bindings/arrays.h"
#include "bindings/release_queue.h"
#include "bindings/shards.h"
#include "bindings/handles.h"
#include "bindings/members.h"
#include "bindings/report.h"
#include "core/replica.h"
#include "io/loop.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace geomx::io {
namespace {

std::shared_ptr<const void> KeepAlive(const ConstHostArray& array) {
  return ReleaseQueue::Instance().Keep(array);
}

std::span<const float> View(const ConstHostArray& array) { return {array.data(), array.size()}; }

void LookAtSignals() {
  nb::gil_scoped_acquire locked;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

using TlsPaths = std::tuple<std::string, std::string, std::string>;

std::shared_ptr<Loop> MakeLoop(const std::string& host, int port, const std::string& token,
                               const std::optional<TlsPaths>& paths, bool insecure) {
  nb::gil_scoped_release unlocked;
  std::optional<TlsFiles> tls;
  if (paths) tls = TlsFiles{std::get<0>(*paths), std::get<1>(*paths), std::get<2>(*paths)};
  std::shared_ptr<Loop> loop(new Loop(host, port, token, tls, insecure), [](Loop* old) {
    if (PyGILState_Check() == 0) {
      delete old;
      return;
    }
    nb::gil_scoped_release unlocked_too;  // its thread may be waiting for the lock
    delete old;
  });
  loop->OnWait(&LookAtSignals);
  return loop;
}

[[noreturn]] void RaiseTimeout(const std::string& what) {
  PyErr_SetString(PyExc_TimeoutError, what.c_str());
  throw nb::python_error();
}

std::pair<std::string, std::map<std::string, std::string>> Join(Loop& loop,
                                                                const std::string& scheduler,
                                                                const std::string& name,
                                                                std::optional<NodeId> id,
                                                                double timeout_s, bool late) {
  nb::gil_scoped_release unlocked;
  loop.StartJoin(scheduler, name, id, timeout_s, late);
  // The loop's thread watches the deadline, and has the better error message.
  const Joined joined = *loop.WaitJoined(Seconds(kNever));
  return {joined.experiment, joined.roster};
}

double WaitStarted(Loop& loop, double timeout_s) {
  nb::gil_scoped_release unlocked;
  if (const auto started = loop.WaitStarted(timeout_s)) return *started;
  char why[64];
  std::snprintf(why, sizeof why, "it did not join the run in %g s", timeout_s);
  if (loop.IsScheduler()) loop.GiveUpOnMissing(why);
  std::string missing;
  for (const std::string& name : loop.Missing()) missing += (missing.empty() ? "" : ", ") + name;
  throw std::runtime_error("the run did not start in time; " +
                           (missing.empty() ? "every peer of this node is connected to it"
                                            : "not connected: " + missing));
}

double WaitForValue(Loop& loop, Key key, Round round, double timeout_s) {
  std::optional<double> complete;
  {
    nb::gil_scoped_release unlocked;
    complete = loop.Wait(key, round, timeout_s);
  }
  ReleaseQueue::Instance().Release();
  if (!complete) {
    RaiseTimeout("no value of key " + std::to_string(key) + " after round " +
                 std::to_string(round) + " in time");
  }
  return *complete;
}

void Barrier(Loop& loop, double timeout_s) {
  bool released;
  {
    nb::gil_scoped_release unlocked;
    released = loop.WaitBarrier(loop.StartBarrier(), timeout_s);
  }
  if (!released) RaiseTimeout("not every worker came to the barrier in time");
}

Round Push(Loop& loop, Key key, const ConstHostArray& array, float loss, bool last, double not_before_s,
           bool absent) {
  ReleaseQueue::Instance().Release();
  auto owner = KeepAlive(array);
  nb::gil_scoped_release unlocked;
  return loop.Push(key, View(array), std::move(owner),
                   {.loss = loss, .last = last, .absent = absent, .not_before_s = not_before_s});
}

Round PushValue(Loop& loop, Key key, const std::shared_ptr<DeviceStaging::Value>& value, float loss,
                bool last, double not_before_s, bool absent) {
  ReleaseQueue::Instance().Release();
  nb::gil_scoped_release unlocked;
  return loop.Push(
      key, value, {.loss = loss, .last = last, .absent = absent, .not_before_s = not_before_s});
}

void Init(Loop& loop, Key key, const ConstHostArray& array) {
  auto owner = KeepAlive(array);
  nb::gil_scoped_release unlocked;
  loop.Init(key, View(array), std::move(owner));
}

void Declare(Loop& loop, Key key, std::uint64_t elements, const ShardTuples& tuples,
             const std::string& name) {
  std::vector<ShardInfo> shards = Shards(tuples);
  nb::gil_scoped_release unlocked;
  loop.Declare(key, elements, std::move(shards), name);
}

void Initialise(Loop& loop, Key key, std::uint32_t index,
                const std::tuple<std::uint64_t, std::uint32_t, std::uint32_t, std::int32_t>& placed,
                const ConstHostArray& array) {
  const auto& [offset, elements, server, priority] = placed;
  const std::span<const float> view = View(array);
  Buffer value(view.begin(), view.end());
  nb::gil_scoped_release unlocked;
  loop.Initialise({.key = key,
                   .index = index,
                   .offset = offset,
                   .elements = elements,
                   .server = server,
                   .priority = priority},
                  std::move(value));
}

nb::object GlobalValue(Loop& loop, Key key, std::uint32_t shard) {
  std::optional<Buffer> value;
  {
    nb::gil_scoped_release unlocked;
    value = loop.GlobalValue(key, shard);
  }
  if (!value) return nb::none();
  auto* copy = new float[value->size()];
  std::memcpy(copy, value->data(), value->size() * sizeof(float));
  nb::capsule owner(copy, [](void* memory) noexcept { delete[] static_cast<float*>(memory); });
  return nb::cast(nb::ndarray<nb::numpy, float, nb::ndim<1>>(copy, {value->size()}, owner));
}

}  // namespace
}  // namespace geomx::io

void BindManyKeys(nb::class_<geomx::io::Loop>& loop);
void BindSteps(nb::module_& m, nb::class_<geomx::io::Loop>& loop);

void init_runtime(nb::module_& m) {
  using namespace geomx;
  using namespace geomx::io;

  m.def("notice_line",
        [](bool json, bool warning, const std::string& node, const std::string& text) {
          const Severity severity = warning ? Severity::kWarning : Severity::kInfo;
          return NoticeLine(json, std::chrono::system_clock::now(), severity, node, text);
        },
        "json"_a, "warning"_a, "node"_a, "text"_a, "Return a line of the log as loops write it.");
  m.def("write_json", &WriteJson, "json"_a, "Choose the form of all later lines of this process's loops.");
  m.def("send_notices", &SendNotices, "descriptor"_a,
        "Write lines for the user to this file descriptor instead of standard error.");
  m.attr("TAKEN_FOR_LOST") = std::string(kTakenForLost);
  m.attr("BROKE_PROTOCOL") = std::string(kBrokeProtocol);

  nb::class_<Shape>(m, "Shape", R"(How an emulated network treats one node's messages.

Edges are this node's own copies of those on its outgoing paths. An edge that others send over too
has a row in `usage_file`, where each of `slots` nodes writes into a slot of its own. An edge's
bandwidth is a BandwidthSchedule, or a constant in bytes/s.)")
      .def("__init__",
           [](Shape* self, std::uint64_t seed, std::string usage_file, std::size_t slots,
              std::size_t slot) {
             new (self) Shape{
                 .seed = seed, .usage_file = std::move(usage_file), .slots = slots, .slot = slot};
           },
           "seed"_a = 0, "usage_file"_a = "", "slots"_a = 1, "slot"_a = 0)
      .def_static("usage_file_bytes", &UsageTable::FileBytes, "rows"_a, "slots"_a,
                  "Return the size of that file, which must be filled with zeros.")
      .def("add_edge",
           [](Shape& self, net::BandwidthSchedule schedule, Time delay_ns) {
             self.edges.push_back({std::move(schedule), delay_ns});
             return self.edges.size() - 1;
           },
           "schedule"_a, "delay_ns"_a, "Add an edge of outgoing paths; return its id.")
      .def("add_path",
           [](Shape& self, NodeId target, const net::LinkOptions& link) {
             self.paths[target] = link;
           },
           "target"_a, "link"_a, "Add the link to `target`; see Fabric.connect.")
      .def("share",
           [](Shape& self, net::EdgeId edge, std::uint32_t row) {
             self.shared.push_back({edge, row});
           },
           "edge"_a, "row"_a, "Share `edge` with other nodes, by this row of the usage file.");

  auto loop = nb::class_<Loop>(m, "Loop", R"(A live node: its port, its connections, and the thread that serves them.

Thread-safe. Once a node of the run is lost, every wait raises RuntimeError("node NAME was lost:
REASON"), and failure() says the same; TimeoutError means that time was up.)")
      .def(nb::new_(&MakeLoop), "host"_a = "127.0.0.1", "port"_a = 0, "token"_a = "",
           "tls"_a.none() = nb::none(), "insecure"_a = false,
           "Bind TCP and UDP to one port (0: any). RuntimeError if that fails, or if the token is empty. "
           "`tls`: PEM files of the authority, the certificate and its key, with which all traffic is "
           "encrypted. Without them, only loopback addresses are allowed, unless `insecure`.")
      .def_prop_ro("address", &Loop::address, "The address host:port of this node for others.")
      .def("join", &Join, "scheduler"_a, "name"_a, "id"_a.none(), "timeout_s"_a, "late"_a = false,
           "Join the run whose scheduler is at host:port; return (experiment, addresses by name). "
           "Without an id, the scheduler finds the node by its name. `late`: join only if the run has "
           "started.")
      .def("run", &Loop::Run, "config"_a, "roster"_a, "shape"_a.none(),
           "congestion"_a = "bbr", "journal"_a.none() = nb::none(),
           nb::call_guard<nb::gil_scoped_release>(),
           "Run the node of `config` and connect to its peers: over emulated links with `shape`, else with "
           "this congestion control, if the kernel has it. With a `journal`, the node is recorded, or "
           "resumed if the journal contains one.")
      .def("announce", &Loop::Announce, "other"_a, nb::call_guard<nb::gil_scoped_release>(), "Tell its address.")
      .def("stand_by", &Loop::StandBy, "config"_a, "roster"_a, "shape"_a.none(), "congestion"_a, "member"_a,
           nb::call_guard<nb::gil_scoped_release>(), "Repeat a server by the records of a standby, `member`.")
      .def_prop_ro("in_charge", &Loop::InCharge, "Whether this loop, which has stood by, has taken over.")
      .def_prop_ro("waits", &Loop::Waits,
                   "Whether a thread of the application waits: for a value, a reply, a barrier, the start or the end.")
      .def_prop_ro("order_due", &Loop::OrderDue,
                   "The coordinator on this node for whose order an overlay waits longer than the failure timeout;\n"
                   "-1: none.")
      .def_prop_ro("initial_due", &Loop::InitialDue,
                   "The key whose initial value this global server has awaited longer than the failure timeout; -1: none.")
      .def_prop_ro("settled", &Loop::Settled,
                   "Whether all messages of this node had left, and were received, when it last looked at its waits.")
      .def("wait_started", &WaitStarted, "timeout_s"_a,
           "Wait until all nodes are connected; return that time, the start of the run, of clock_s().")
      .def("cut", &Loop::Cut, "peer"_a, nb::call_guard<nb::gil_scoped_release>(),
           "Stop all communication with a peer until `heal`. Cuts add up.")
      .def("heal", &Loop::Heal, "peer"_a, nb::call_guard<nb::gil_scoped_release>(),
           "End one `cut`.")
      .def("reset", &Loop::Reset, "peer"_a, nb::call_guard<nb::gil_scoped_release>(),
           "Break the connection with a peer.")
      .def("leave", &Loop::Leave, nb::call_guard<nb::gil_scoped_release>(),
           "Leave the run, which stops when all workers have left.")
      .def("wait_stopped", &Loop::WaitStopped, "timeout_s"_a,
           nb::call_guard<nb::gil_scoped_release>(), "Wait for the end of the run; return whether it stopped in time.")
      .def("failure",
           [](const Loop& self) -> std::optional<std::pair<std::string, std::string>> {
             const auto failure = self.failure();
             if (!failure) return std::nullopt;
             return std::pair{failure->name, failure->reason};
           },
           "Return (name, reason) of the lost node; None if there is none.")
      .def("refusals", &Loop::TakeRefusals, nb::call_guard<nb::gil_scoped_release>(),
           "Return the callers refused since the last call, with reasons; at most a hundred per run.")
      .def_prop_ro("roster", &Loop::roster,
                   "The scheduler's: addresses of the members that have joined, by name.")
      .def_prop_ro("late", &Loop::late,
                   "Whether this process replaces a lost one of this node while training continues.")
      .def("report_ended", &Loop::ReportEnded, "name"_a, "reason"_a,
           nb::call_guard<nb::gil_scoped_release>(),
           "Report to the scheduler, which this node must be, that the process of a member has ended.")
      .def("members", &Members,
           "Return notices of participation since the last call: (monotonic s, kind, names, key, shard, "
           "round, global round, workers, late, dropped); kinds: gone, back, moved, takes_part, partial.")
      .def("close",
           [](Loop& self, const std::string& failed) {
             {
               nb::gil_scoped_release unlocked;
               self.Close(failed);
             }
             ReleaseQueue::Instance().Release();
           },
           "failed"_a = "",
           "End the thread and all connections. May be called repeatedly. `failed`: the error of this "
           "process, in one line, for its peers; empty for none.")
      .def("declare", &Declare, "key"_a, "elements"_a, "shards"_a, "name"_a = "",
           "Declare a tensor and its shards: (offset, elements, global server, priority); messages call it "
           "`name`.")
      .def("init", &Init, "key"_a, "array"_a.noconvert(),
           "Set the initial value of a tensor (float32) for all nodes; referenced, not copied.")
      .def("push_value", &PushValue, "key"_a, "value"_a, "loss"_a = NAN, "last"_a = false,
           "not_before_s"_a = 0.0, "absent"_a = false,
           "Push a value of a DeviceStaging, which is encoded on its device as far as codecs support it.")
      .def("push", &Push, "key"_a, "array"_a.noconvert(),
           "loss"_a = std::numeric_limits<float>::quiet_NaN(), "last"_a = false,
           "not_before_s"_a = 0.0, "absent"_a = false,
           "Contribute to the next round; return the round. The float32 array is referenced, not copied. "
           "`absent`: the array is zeros, as this worker has no gradient; a round without any contribution "
           "changes nothing.")
      .def("set_made", &Loop::SetMade, "steps"_a, nb::call_guard<nb::gil_scoped_release>(),
           "State the local steps that the next pushes include.")
      .def("request", &Loop::Request, "key"_a, nb::call_guard<nb::gil_scoped_release>(),
           "Request the current value, which completes its round.")
      .def("wait", &WaitForValue, "key"_a, "round"_a, "timeout_s"_a,
           "Wait for the value of `round`; return its arrival in seconds since the start.")
      .def("absent", &Loop::Absent, "key"_a, nb::call_guard<nb::gil_scoped_release>(),
           "Return whether no worker contributed to the last complete value.")
      .def("reached", &Loop::Reached, "key"_a, nb::call_guard<nb::gil_scoped_release>(),
           "Return the rounds that other parties have completed by the last complete value.")
      .def("go_on", &Loop::GoOn, "key"_a, nb::call_guard<nb::gil_scoped_release>(),
           "Count pushes from the round of the last complete value on; return it. For workers that join late.")
      .def("value",
           [](Loop& self, Key key, const HostArray& out) {
             nb::gil_scoped_release unlocked;
             self.Value(key, {out.data(), out.size()});
           },
           "key"_a, "out"_a.noconvert(), "Copy the last complete value into a float32 array.")
      .def("barrier", &Barrier, "timeout_s"_a, "Wait for all workers.")
      .def("begin_iteration", &Loop::BeginIteration, "iteration"_a, nb::call_guard<nb::gil_scoped_release>(),
           "Tell all nodes that this worker begins a local step; they hear of the first worker only.")
      .def("await_iteration",
           [](Loop& self, std::size_t number) -> std::optional<std::pair<Round, double>> {
             const auto begun = self.AwaitIteration(number);
             if (!begun) return std::nullopt;
             return std::pair(begun->iteration, Seconds(begun->at));
           }, "number"_a, nb::call_guard<nb::gil_scoped_release>(),
           "Wait for the `number`th local step that a worker has told of, from 0; return it, and when this node "
           "heard of it, in seconds of clock_s(). None: the run is over.")
      .def("report", &Loop::SendReport, "host"_a, "number"_a, "values"_a, "not_before_s"_a = 0.0,
           nb::call_guard<nb::gil_scoped_release>(),
           "Send numbers to the coordinator `number` on node `host`, after all earlier pushes.")
      .def("wait_reply",
           [](Loop& self, std::uint32_t number, double timeout_s) {
             std::optional<std::vector<double>> values;
             {
               nb::gil_scoped_release unlocked;
               values = self.WaitReply(number, timeout_s);
             }
             if (!values) RaiseTimeout("the coordinator did not answer in time");
             return *values;
           },
           "number"_a, "timeout_s"_a, "Wait for the oldest reply that has not been returned yet.")
      .def("run_optimizer",
           [](Loop& self, const std::string& optimizer, bool unless_given) {
             self.Command(Instruction(optimizer), unless_given);
           }, "optimizer"_a, "unless_given"_a = false, nb::call_guard<nb::gil_scoped_release>(),
           "Have all global servers run an optimizer (its name, then an option and its value per line); a global "
           "server does so itself. `unless_given`: not if they run one already.")
      .def("expect_optimizer", [](Loop& self) { self.Command(""); }, nb::call_guard<nb::gil_scoped_release>(),
           "Another worker has all global servers run an optimizer: they use no later push of this worker before.")
      .def("initialise", &Initialise, "key"_a, "index"_a, "shard"_a, "array"_a.noconvert(),
           "Set the initial value of a global server's shard: (offset, elements, server, priority).")
      .def("global_value", &GlobalValue, "key"_a, "shard"_a,
           "Return a global server's value of one shard, or None.")
      .def("stats", &StatsOf, "Return the traffic by peer and the node's counts; also after close.")
      .def("residual_norms", &ResidualNormsOf,
           "Return the Euclidean norms of what codecs keep of pushes and pulls for later ones. Reads all of it.")
      .def("spans", &SpansOf, "Return (name, category, start_s, duration_s, details) of a bounded number of spans.");
  BindManyKeys(loop);
  BindSteps(m, loop);
}
