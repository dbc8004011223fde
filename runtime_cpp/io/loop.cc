#include "io/loop.h"

#include <algorithm>
#include <exception>
#include <future>
#include <stdexcept>
#include <utility>

#include "io/loop_thread.h"

namespace geomx::io {

Loop::Loop(const std::string& host, int port, const std::string& token,
           const std::optional<TlsFiles>& tls, bool insecure) {
  if (token.empty()) {
    throw std::runtime_error(
        "cannot listen on " + host + " without a token, which keeps strangers out: set GEOMX_TOKEN to a "
        "secret that all nodes of the run share");
  }
  auto opened = tls ? OpenTls(*tls) : nullptr;
  Port bound = Bind(host, port, tls || insecure);
  address_ = Format(bound.address);
  const auto state = std::make_shared<State>(std::move(bound), token, std::move(opened));
  state_ = OwnProcess(state);
  thread_ = StartLoopThread([state] { state->driver.ThreadMain(); });
  thread_id_ = thread_.get_id();
}

Loop::~Loop() {
  Close();
  if (thread_.joinable()) thread_.detach();
}

void Loop::Close(const std::string& failed) {
  if (!state_.here()) return;  // a forked process leaves the node to its parent
  Driver& driver = state_->driver;
  driver.Post([&driver, failed] { driver.BeginClose(failed); });
  if (std::this_thread::get_id() == thread_id_) return;
  std::lock_guard lock(joining_);
  if (thread_.joinable()) thread_.join();
}

void Loop::Call(const std::function<void()>& task) {
  std::promise<void> done;
  auto outcome = done.get_future();
  const bool posted = state_->driver.Post([&] {
    try {
      task();
      done.set_value();
    } catch (...) {
      done.set_exception(std::current_exception());
    }
  });
  if (posted) return outcome.get();
  state_->status.WaitEnded();
  std::lock_guard lock(ended_);
  task();
}

// ---- membership ------------------------------------------------------------------------------

void Loop::StartJoin(const std::string& scheduler, const std::string& name,
                     std::optional<NodeId> id, double timeout_s, bool late) {
  join_timeout_s_ = timeout_s;
  const Address address = Resolve(scheduler);
  const Time deadline = Now() + Nanoseconds(timeout_s);
  Call([&] { state_->driver.Join(address, id.value_or(kUnknownPeer), name, deadline, late); });
}

void Loop::Run(const NodeConfig& config, const std::map<std::string, std::string>& roster,
               const std::optional<Shape>& shape, const std::string& congestion,
               std::shared_ptr<JournalFile> journal) {
  std::map<NodeId, Address> addresses;
  for (const Peer& peer : config.peers) {
    const auto found = roster.find(peer.name);
    if (found != roster.end()) addresses.emplace(peer.id, Resolve(found->second));
  }
  const Time deadline = Now() + Nanoseconds(join_timeout_s_);
  Call([&] {
    state_->driver.Run(config, addresses, shape, congestion, deadline, std::move(journal));
    std::lock_guard lock(verbs_);
    done_ = state_->driver.resumed().done;
  });
}

std::optional<double> Loop::WaitStarted(double timeout_s) {
  const auto started = state_->status.WaitStarted(timeout_s);
  return started ? std::optional(Seconds(*started)) : std::nullopt;
}

std::optional<Joined> Loop::WaitJoined(double timeout_s) { return state_->status.WaitJoined(timeout_s); }

bool Loop::WaitStopped(double timeout_s) { return state_->status.WaitStopped(timeout_s); }

std::vector<std::string> Loop::Missing() {
  std::vector<std::string> missing;
  Call([&] { missing = state_->driver.Missing(); });
  return missing;
}

void Loop::Leave() {
  {
    std::lock_guard lock(verbs_);
    if (WasDone(RecordKind::kLeave, 0)) return;
  }
  Call([&] { state_->driver.Leave(); });
}

// ---- a worker's verbs ------------------------------------------------------------------------

Loop::Declared& Loop::FindTensor(Key key, std::size_t elements) {
  const auto found = tensors_.find(key);
  if (found == tensors_.end()) {
    throw std::invalid_argument("key " + std::to_string(key) + " was never declared");
  }
  if (found->second.elements != elements) {
    throw std::invalid_argument("key " + std::to_string(key) + " has " +
                                std::to_string(found->second.elements) + " elements, not " +
                                std::to_string(elements));
  }
  return found->second;
}

void Loop::Declare(Key key, std::uint64_t elements, std::vector<ShardInfo> shards,
                   const std::string& name) {
  Driver& driver = state_->driver;
  auto cut = Worker::Cut(key, elements, std::move(shards), name.empty() ? 0 : NameDigest(name));
  const auto declare = [&driver, key, elements, cut = std::move(cut), name] {
    driver.node().Declare(key, elements, cut);
    if (!name.empty()) driver.Name(key, name);
  };
  bool first;
  {
    std::lock_guard lock(verbs_);
    first = tensors_.empty();
    const auto known = tensors_.find(key);
    if (known != tensors_.end()) FindTensor(key, elements);
  }
  if (first) {
    Call(declare);  // throws if this node is not a worker
  } else {
    driver.Post(declare);  // before later tasks
  }
  std::lock_guard lock(verbs_);
  tensors_[key].elements = elements;
}

bool Loop::WasDone(RecordKind kind, std::uint32_t number) {
  const auto found = done_.find({kind, number});
  if (found == done_.end()) return false;
  if (--found->second == 0) done_.erase(found);
  return true;
}

void Loop::Note(const std::string& text, std::vector<std::string> state) {
  Driver& driver = state_->driver;
  std::lock_guard lock(verbs_);
  driver.Post([&driver, text, state = std::move(state)] { driver.Note(text, state); });
}

Resumed Loop::TakeResumed() {
  Resumed resumed;
  Call([&] { resumed = state_->driver.resumed(); });
  std::lock_guard lock(verbs_);
  for (const auto& [key, round] : resumed.rounds) tensors_.at(key).submitted = round;
  return resumed;
}

void Loop::Init(Key key, std::span<const float> value, std::shared_ptr<const void> owner) {
  state_->status.ThrowIfFailed();
  std::lock_guard lock(verbs_);
  FindTensor(key, value.size());
  if (WasDone(RecordKind::kInit, key)) return;
  Driver& driver = state_->driver;
  driver.Post([&driver, key, value, owner = std::move(owner)] {
    driver.node().Init(key, value.data(), owner, Now());
  });
}

Round Loop::Push(Key key, std::span<const float> value, std::shared_ptr<const void> owner,
                 const PushOptions& options) {
  return Submit(key, value.size(), {.value = value.data(), .owner = std::move(owner)}, options);
}

Round Loop::Push(Key key, const std::shared_ptr<DeviceStaging::Value>& value, const PushOptions& options) {
  value->Reach([state = state_.weak()](std::function<void()> task) {
    if (const auto held = state.lock()) held->driver.Post(std::move(task));
  });
  const std::span<const float> values = value->values();
  return Submit(key, values.size(),
                {.value = values.data(), .owner = value->owner(), .device = value}, options);
}

Round Loop::Submit(Key key, std::size_t elements, Worker::Push push, const PushOptions& options) {
  state_->status.ThrowIfFailed();
  std::lock_guard lock(verbs_);
  Declared& tensor = FindTensor(key, elements);
  if (WasDone(RecordKind::kSubmit, key)) return ++tensor.submitted;
  state_->steps.Push(key);
  const Time not_before = Nanoseconds(options.not_before_s);
  Driver& driver = state_->driver;
  push = options.Applied(std::move(push));
  if (options.made == 0) push.made = made_;
  driver.Post([&driver, key, not_before, push = std::move(push)]() mutable {
    driver.Submit(key, std::move(push), not_before);
  });
  state_->steps.Return();
  return ++tensor.submitted;
}

void Loop::Request(Key key) {
  state_->status.ThrowIfFailed();
  std::lock_guard lock(verbs_);
  if (!tensors_.contains(key)) {
    throw std::invalid_argument("key " + std::to_string(key) + " was never initialised");
  }
  if (WasDone(RecordKind::kRequest, key)) return;
  Driver& driver = state_->driver;
  driver.Post([&driver, key] { driver.Request(key); });
}

std::optional<double> Loop::Wait(Key key, Round round, double timeout_s) {
  const Time begin = Now();
  const auto complete = state_->status.WaitValue(key, round, timeout_s);
  const Time started = state_->status.started().value_or(0);
  if (Now() - begin > kNoticeable) {
    state_->driver.trace().Add({.category = "wait",
                                .key = key,
                                .round = round,
                                .start = begin,
                                .duration = Now() - begin});
  }
  return complete ? std::optional(Seconds(*complete - started)) : std::nullopt;
}

void Loop::WhenReady(Key key, Round round, ReadyCallback callback) {
  Driver& driver = state_->driver;
  auto shared = std::make_shared<ReadyCallback>(std::move(callback));
  const bool posted = driver.Post(
      [&driver, key, round, shared] { driver.WhenReady(key, round, std::move(*shared)); });
  if (!posted) (*shared)({});
}

bool Loop::Absent(Key key) {
  bool absent = false;
  Call([&] { absent = state_->driver.node().worker().Absent(key); });
  return absent;
}

Round Loop::GoOn(Key key) {
  Round round = 0;
  Call([&] { round = state_->driver.node().worker().ValueRound(key); });
  std::lock_guard lock(verbs_);
  return tensors_.at(key).submitted = round;
}

void Loop::Fill(Key key, DeviceStaging& stage, const io::DeviceTensor& tensor, const Stream& consumer) {
  std::shared_ptr<kernels::Mark> mark;
  {
    std::lock_guard lock(verbs_);
    FindTensor(key, tensor.elements);
  }
  Call([&] {
    Worker& worker = state_->driver.node().worker();
    for (const Worker::Encoded& shard : worker.EncodedValue(key)) {
      const auto decode = [&](kernels::DeviceContext& device, const Parts& there, float* out) {
        shard.decoder->DecodeOn(device, there, out);
      };
      mark = stage.Fill(shard.parts, decode, tensor, shard.offset, consumer);
    }
    worker.KeepEncoded(key);
  });
  if (!mark) {
    std::vector<float> value(tensor.elements);
    Value(key, value);
    stage.Fill(value, tensor, consumer);
  } else if (!consumer) {
    mark->Wait();
  }
  state_->steps.Return();
}

Round Loop::StartBarrier() {
  state_->status.ThrowIfFailed();
  Driver& driver = state_->driver;
  std::lock_guard lock(verbs_);
  if (!WasDone(RecordKind::kBarrier, 0)) driver.Post([&driver] { driver.node().Barrier(Now()); });
  return ++barriers_;
}

bool Loop::WaitBarrier(Round barrier, double timeout_s) {
  const bool released = state_->status.WaitReleased(barrier, timeout_s);
  state_->steps.Return();
  return released;
}

void Loop::BeginIteration(Round iteration) {
  Driver& driver = state_->driver;
  driver.Post([&driver, iteration] { driver.node().BeginIteration(iteration); });
}

void Loop::Command(const std::string& text, bool unless_given) {
  {
    std::lock_guard lock(verbs_);
    if (WasDone(RecordKind::kCommand, 0)) return;
  }
  Call([&] {
    RecordedNode& node = state_->driver.node();
    if (node.config().role == Role::kGlobalServer) {
      node.Instruct(text, Now());
    } else {
      node.Command(text, Now(), unless_given);
    }
  });
}

void Loop::Initialise(const ShardInfo& shard, Buffer value) {
  Call([&] { state_->driver.node().Initialise(shard, std::move(value), Now()); });
}

void Loop::SendReport(NodeId host, std::uint32_t number, std::vector<double> values,
                      double not_before_s) {
  state_->status.ThrowIfFailed();
  Driver& driver = state_->driver;
  const Time not_before = Nanoseconds(not_before_s);
  std::lock_guard lock(verbs_);
  if (WasDone(RecordKind::kReport, number)) return;
  driver.Post([&driver, host, number, not_before, values = std::move(values)]() mutable {
    driver.SendReport(host, number, std::move(values), not_before);
  });
}

std::optional<std::vector<double>> Loop::WaitReply(std::uint32_t number, double timeout_s) {
  auto values = state_->status.WaitReply(number, timeout_s);
  state_->steps.Return();
  return values;
}

// ---- reports ---------------------------------------------------------------------------------

std::optional<Buffer> Loop::GlobalValue(Key key, std::uint32_t shard) {
  std::optional<Buffer> copy;
  Call([&] {
    if (const Buffer* value = state_->driver.node().GlobalValue(key, shard)) copy = *value;
  });
  return copy;
}

Report Loop::GetReport() {
  Report report;
  Call([&] { report = state_->driver.report(); });
  return report;
}

std::array<double, kDirections> Loop::ResidualNorms() {
  std::array<double, kDirections> norms{};
  Call([&] { norms = state_->driver.ResidualNorms(); });
  return norms;
}

std::vector<Span> Loop::Spans() const {
  std::vector<Span> spans = state_->driver.trace().spans();
  const Time started = state_->status.started().value_or(kNever);
  std::erase_if(spans, [&](const Span& span) { return span.start < started; });
  for (Span& span : spans) span.start -= started;
  return spans;
}

}  // namespace geomx::io
