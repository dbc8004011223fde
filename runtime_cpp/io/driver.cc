#include "io/driver.h"

#include <algorithm>
#include <stdexcept>

namespace geomx::io {
namespace {

constexpr std::uint64_t kMailbox = 1;
constexpr std::uint64_t kDatagrams = 2;
constexpr int kDatagramBudget = 256;
constexpr Time kSchedulerGone = 5 * kSecond;     // time without a connection to it, while joining

}  // namespace

Driver::Driver(Port port, const std::string& token, std::unique_ptr<Tls> tls, RunStatus& status)
    : status_(status),
      address_(port.address),
      datagrams_(std::move(port.datagrams), token, tls != nullptr),
      sessions_(std::move(port.listener), token, std::move(tls), poller_, *this),
      name_(Format(address_)) {
  poller_.Add(mailbox_.fd(), kMailbox, EPOLLIN);
  poller_.Add(datagrams_.fd(), kDatagrams, EPOLLIN);
}

// ---- the cycle -------------------------------------------------------------------------------

void Driver::ThreadMain() {
  try {
    while (!closing_ || !(Flushed() || Now() >= close_deadline_)) Cycle();
  } catch (const PluginFailure& failure) {
    status_.Fail(name_, failure.what());
  } catch (const JournalError& error) {
    status_.Fail(name_, error.what());
  } catch (const std::exception& error) {
    status_.Fail(name_, std::string("internal error: ") + error.what());
  }
  sessions_.StopListening();
  closing_ = true;
  TakeTasks(mailbox_.Close());
  while (!tasks_.empty()) {
    try {
      RunTasks();
    } catch (const std::exception& error) {
      status_.Fail(name_, std::string("internal error: ") + error.what());
    }
  }
  FailCallbacks();
  std::vector<Session*> open;
  sessions_.EachPeer([&](Session& session) {
    if (!sessions_.IsCut(session.peer)) open.push_back(&session);
  });
  for (Session* session : open) SayClosing(*session);
  sessions_.Sweep();
  status_.SetEnded();
}

void Driver::Cycle() {
  const auto ready = poller_.Wait(NextDeadline());
  AdvanceShaper(Now());
  for (const epoll_event& event : ready) {
    if (sessions_.Dispatch(event.data.u64, event.events)) continue;
    if (event.data.u64 == kDatagrams) {
      datagrams_.Receive(kDatagramBudget, [&](Frame frame) {
        const NodeId from = frame.message.header.source;
        if (!started_ || node_->FindPeer(from) == nullptr) return false;
        if (sessions_.IsCut(from)) {
          ++lost_messages_;
          return false;
        }
        Delay({.at = frame.arrives, .from = from, .message = std::move(frame.message)});
        return true;
      });
    }
  }
  TakeTasks(mailbox_.Take());
  RunTasks();
  const Time now = Now();
  if (standing_by()) {  // its node has no links, and no timers of its own
    sessions_.Tick(now);
    return sessions_.Sweep();
  }
  RunSubmissions(now);
  ReleaseDelayed(now);
  if (node_ && node_->PollTimeout() <= now) {
    sessions_.EachPeer([&](Session& session) {
      if (!session.reading) node_->Hear(session.peer, now);  // not read deliberately, so not silent
    });
    node_->HandleTimeout(now);
    DrainEvents();
  }
  sessions_.Tick(now);  // first: an unreachable scheduler explains more than the deadline below
  if (join_deadline_ <= now) {
    join_deadline_ = kNever;
    status_.SetJoinError("connected to the scheduler at " + join_address_ +
                        ", but it did not start the run in time: check that every node was "
                        "started");
  }
  if (scheduler_lost_ != kNever && scheduler_lost_ + kSchedulerGone <= now) {
    scheduler_lost_ = kNever;
    CannotJoin(scheduler_lost_why_, false);
  }
  if (watch_.next() <= now) LookAtWaits(now);
  if (acknowledge_at_ <= now) AcknowledgeAll();
  if (node_ && node_->replicator()) RecordReceived();
  Pump();
  if (journal_) {
    RecordReceived();
    if (node_->config().role != Role::kWorker) CutJournal();  // a worker's begins with a note
  }
  sessions_.Sweep();
}

// A task that throws leaves the others in `tasks_`: threads wait for them.
void Driver::RunTasks() {
  while (!tasks_.empty()) {
    const Mailbox::Task task = std::move(tasks_.front());
    tasks_.pop_front();
    task();
  }
}

Time Driver::NextDeadline() {
  Time next = std::min({sessions_.NextDeadline(), join_deadline_, close_deadline_});
  if (standing_by()) return next;
  if (node_) next = std::min(next, node_->PollTimeout());
  if (scheduler_lost_ != kNever) next = std::min(next, scheduler_lost_ + kSchedulerGone);
  next = std::min(next, acknowledge_at_);
  if (!closing_) next = std::min(next, watch_.next());
  if (shaper_) next = std::min(next, shaper_->NextEvent());
  if (!delayed_.empty()) next = std::min(next, delayed_.front().at);
  if (!submissions_.empty()) next = std::min(next, submissions_.begin()->first.first);
  for (const auto& [peer, at] : pacing_) next = std::min(next, at);
  return next;
}

// ---- membership ------------------------------------------------------------------------------

void Driver::Join(const Address& scheduler, NodeId self, const std::string& name, Time deadline,
                  bool late) {
  self_ = self;
  name_ = name;
  join_address_ = Format(scheduler);
  join_deadline_ = deadline;
  sessions_.Dial(kUnknownPeer, self, name, scheduler, deadline, late);
}

void Driver::Run(const NodeConfig& config, const std::map<NodeId, Address>& addresses,
                 const std::optional<Shape>& shape, const std::string& congestion,
                 Time connect_deadline, std::shared_ptr<JournalFile> journal) {
  if (node_) throw std::logic_error(name_ + " runs already");
  sessions_.SetCongestion(congestion);
  if (shape) {
    shaper_ = std::make_unique<Shaper>(*shape);
  }
  node_ = std::make_unique<RecordedNode>(config);
  node_->CountTimes();
  journal_ = std::move(journal);
  const bool recovers = journal_ && journal_->begin();
  connect_deadline_ = connect_deadline;
  SetPeers(config, addresses);
  scheduler_lost_ = kNever;
  WatchLinks(false);
  if (recovers) {
    Recover();
  } else if (config.scheduler) {
    sessions_.Identify(*config.scheduler);
    if (Session* scheduler = sessions_.Find(*config.scheduler)) {
      SealDatagrams(*scheduler);
    } else {
      PeerLink& link = sessions_.LinkOf(*config.scheduler);
      node_->HandleLinkLost(link.peer, link.lost_why, Now());
    }
  }
  if (journal_ && !recovers) BeginJournal();
  if (config.standby) BeginReplicating();
  CallPeers();
}

RecordedNode& Driver::node() {
  if (!node_) throw std::logic_error("the node does not run yet");
  return *node_;
}

void Driver::CheckReady() {
  if (!node_ || ready_ || !node_->config().scheduler) return;
  const std::vector<Peer>& peers = node_->config().peers;
  // A late one says so when its node is there: its peers are told of it then, and let it in.
  const auto knows = [this](const Peer& peer) { return !IsMissing(peer.id); };
  if (!told_.late && !std::all_of(peers.begin(), peers.end(), knows)) return;
  ready_ = true;
  node_->Ready(Now());
}

// ---- the node --------------------------------------------------------------------------------

void Driver::Handle(NodeId from, const Message& message) {
  const Time begin = Now();
  node_->HandleMessage(from, message, begin);
  if (message.header.kind == Kind::kReplicated) LetLeave();
  if (message.header.kind == Kind::kRecords && keeper_.repeat) keeper_.repeat(message);
  Follow(message.header.key, message.header.round, begin);
}

void Driver::Follow(Key key, Round round, Time begin) {
  const Work work = node_->TakeWork();
  const char* category = work.update.times > 0      ? "update"
                         : work.aggregate.times > 0 ? "aggregate"
                         : work.encode.times > 0    ? "encode"
                                                    : nullptr;
  const auto trace = [this, category, key, round, begin] {
    if (category == nullptr) return;
    const Time took = Now() - begin;
    handled_[category] += took;
    trace_.Add({.category = category, .key = key, .round = round, .start = begin, .duration = took});
  };
  const DeviceWork::Ends ends = node_->TakeDeviceWork();
  WatchDevice(ends, key, round, trace);
  if (ends.empty()) trace();
  DrainEvents();
}

void Driver::WatchDevice(const DeviceWork::Ends& ends, Key key, Round round,
                         const std::function<void()>& after) {
  for (const auto& end : ends) {
    const bool last = &end == &ends.back();
    completions_.Watch(end, [this, key, round, after, last](std::exception_ptr failed) {
      Post([this, key, round, after, last, failed] {
        if (last) after();
        ResumeNode(failed, key, round);
      });
    });
  }
}

void Driver::ResumeNode(std::exception_ptr failed, Key key, Round round) {
  if (failed) std::rethrow_exception(failed);
  const Time begin = Now();
  node_->Resume(begin);
  Follow(key, round, begin);
}

void Driver::DrainEvents() {
  while (auto event = node_->PollEvent()) Act(*event, Now());
}

void Driver::Act(Event& event, Time now) {
  switch (event.kind) {
    case Event::Kind::kStarted:
      started_ = now - (event.text.empty() ? 0 : std::stoll(event.text));
      WatchLinks(true);
      if (shaper_) shaper_->SetOrigin(*started_);
      status_.SetStarted(*started_);
      if (told_.late) sessions_.Recheck();
      return;
    case Event::Kind::kValueReady: {
      status_.SetValue(event.key, event.round, now);
      const auto [begin, end] = callbacks_.equal_range(event.key);
      std::vector<ReadyCallback> due;
      for (auto each = begin; each != end;) {
        if (each->second.first > event.round) {
          ++each;
          continue;
        }
        due.push_back(std::move(each->second.second));
        each = callbacks_.erase(each);
      }
      for (const ReadyCallback& callback : due) callback(node_->worker().Value(event.key));
      return;
    }
    case Event::Kind::kBarrier: status_.SetReleased(event.round); return;
    case Event::Kind::kIteration: return status_.AddIteration(event.round);
    case Event::Kind::kState:
      if (status_.AddState(std::move(event.text))) return;
      return Break(event.peer, "sends states that nobody asked for");
    case Event::Kind::kReply:
      if (status_.AddReply(event.key, std::move(event.values))) return;
      return Break(event.peer, "sends replies that nobody waits for");
    case Event::Kind::kStopped:
      StopReplicating();
      WatchLinks(false);
      status_.SetStopped();
      return;
    case Event::Kind::kSuspect:
      return Tell(Severity::kWarning, name_ + " waits for " + event.text + ": " + event.reason);
    case Event::Kind::kHeard: return Tell(Severity::kInfo, name_ + " hears " + event.text + " again");
    case Event::Kind::kDead:
      status_.Fail(event.text, event.reason);
      FailCallbacks();
      return;
    case Event::Kind::kRefused:
      status_.Fail(name_, "cannot carry out '" + event.text + "': " + event.reason);
      FailCallbacks();
      return;
    case Event::Kind::kPeerError:
      if (event.peer == self_) {  // a coordinator on this node, which has no link to itself
        status_.Fail(name_, event.reason);
        return FailCallbacks();
      }
      if (!sessions_.LinkOf(event.peer).closed) Break(event.peer, event.reason);
      return;
    case Event::Kind::kNonFinite: {
      const bool refuse = node_->config().non_finite == NonFinite::kRefuse;
      const std::string text = NonFiniteText(name_, KeyName(event.key), event.round, event.text, refuse);
      if (!refuse) return Tell(Severity::kWarning, text);
      status_.Fail(name_, text);
      FailCallbacks();
      return;
    }
    case Event::Kind::kGone:
    case Event::Kind::kBack:
    case Event::Kind::kMoved:
    case Event::Kind::kTakesPart:
    case Event::Kind::kPartial: return ActOnMember(event, now);
    case Event::Kind::kRoster:
      return status_.SetRoster({event.roster.begin(), event.roster.end()});
    case Event::Kind::kUpdated:
    case Event::Kind::kCommand: return;
  }
}

// ---- the application -------------------------------------------------------------------------

void Driver::Request(Key key) {
  node().Request(key, Now());
  DrainEvents();
}

void Driver::Submit(Key key, Worker::Push push, Time not_before) {
  // Rounds of a key leave in the order of their submission.
  Time& last = last_submission_[key];
  const Time now = Now();
  if (started_ && not_before > 0) {
    const Time due = *started_ + not_before;
    last = std::max(last, due);
    behind_ += std::max<Time>(now - due, 0);
    ++paced_pushes_;
  }
  if (last <= now) return SubmitNow(key, std::move(push), now);
  submissions_.emplace(std::pair{last, order_++},
                       [this, key, push = std::move(push)](Time at) mutable {
                         SubmitNow(key, std::move(push), at);
                       });
}

void Driver::SendReport(NodeId host, std::uint32_t number, std::vector<double> values,
                        Time not_before) {
  const Time when = started_ && not_before > 0 ? *started_ + not_before : 0;
  hosts_[number] = host;
  submissions_.emplace(std::pair{when, order_++},
                       [this, host, number, values = std::move(values)](Time) {
                         node().Report(host, number, values);
                       });
}

void Driver::RunSubmissions(Time now) {
  while (!submissions_.empty() && submissions_.begin()->first.first <= now) {
    const auto due = std::move(submissions_.begin()->second);
    submissions_.erase(submissions_.begin());
    due(now);
  }
}

void Driver::SubmitNow(Key key, Worker::Push push, Time now) {
  Follow(key, node().Submit(key, std::move(push), now), now);
}

void Driver::WhenReady(Key key, Round round, ReadyCallback callback) {
  if (closing_ || status_.failure()) return callback({});
  Worker& worker = node().worker();
  const auto value = worker.Value(key);
  if (!value.empty() && worker.ValueRound(key) >= round) return callback(value);
  callbacks_.emplace(key, std::pair{round, std::move(callback)});
}

void Driver::FailCallbacks() {
  for (auto& [key, waiting] : std::exchange(callbacks_, {})) waiting.second({});
}

}  // namespace geomx::io
