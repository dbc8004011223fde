// The application of a worker: a model of geomx/training and geomx/live.
#include <algorithm>

#include "core/worker.h"
#include "faults/world.h"

namespace geomx::faults {

Worker& Trainer::worker() { return process_.node()->worker(); }

// The first worker gives the optimizer and the initial values. If its process was replaced, the new one
// repeats both, because the old one may have ended before it gave them.
void Trainer::OnStarted() {
  const Time now = world_.now();
  const bool master = process_.id.node == check::Layout(experiment_.plan).workers.front();
  const auto keys = static_cast<Key>(experiment_.tensors.size());
  for (Key key = 0; key < keys; ++key) {
    worker().Declare(key, experiment_.tensors[key].elements, experiment_.tensors[key].shards);
  }
  if (master && !experiment_.optimizer.empty()) {
    worker().Command(experiment_.optimizer, now, process_.late());
  }
  for (Key key = 0; key < keys; ++key) {
    if (!master) continue;
    const auto initial = std::make_shared<const Values>(InitialOf(experiment_, key));
    worker().Init(key, initial->data(), initial, now);
  }
  for (Key key = 0; key < keys; ++key) worker().Request(key, now);
  process_.Follow();
}

History::Contribution Trainer::Contribution(Key key, Round round) {
  const NodeId server = process_.node()->config().parents.front();
  return {process_.id.node, key,
          PushNumber(experiment_, process_.incarnation(server), process_.incarnation(), round)};
}

void Trainer::OnValue(Key key) {
  const Round round = worker().ValueRound(key);
  const auto value = worker().Value(key);
  const History::Contribution which = Contribution(key, round);
  const Values held(value.begin(), value.end());
  const auto [known, fresh] = history_.values.emplace(which, held);
  if (!fresh && experiment_.exact && known->second != held) history_.ambiguous = true;
  const auto pushed = pushed_.find(key);
  if (pushed != pushed_.end()) {
    if (pushed->second != round) {
      world_.Fail(process_.id.node, "receives the value of a round that it did not push");
    }
    history_.acknowledged.insert(which);
    if (worker().Absent(key)) history_.absent.insert(which);
  }
  if (rounds_.contains(key) && rounds_[key] >= round) {
    world_.Fail(process_.id.node, "receives the value of a round twice");
  }
  rounds_[key] = round;
  if (!pushed_.contains(key) && Position(key) >= experiment_.rounds) ended_.insert(key);
  if (!experiment_.lockstep && !ended_.contains(key) && !Leaves()) return Compute({key});
  Continue();
}

// Returns the number of rounds that the others have completed, including those without this worker's party.
Round Trainer::Position(Key key) {
  Round reached = worker().Reached(key);
  if (!experiment_.early() || !experiment_.lockstep) return reached;
  for (const auto& [each, round] : rounds_) reached = std::max(reached, worker().Reached(each));
  return reached;
}

// Begins the next step, or ends, if all values of the current step have arrived.
void Trainer::Continue() {
  const auto keys = static_cast<Key>(experiment_.tensors.size());
  std::vector<Key> due;
  for (Key key = 0; key < keys; ++key) {
    if (!rounds_.contains(key) || (pushed_.contains(key) && pushed_[key] > rounds_[key])) return;
    if (!ended_.contains(key)) due.push_back(key);
  }
  if (due.empty() || Leaves()) return Finish();
  Compute(due);
}

// Computes the next step of these keys, then pushes them; the step is a key's last if it completes the rounds.
void Trainer::Compute(const std::vector<Key>& keys) {
  const NodeId self = process_.id.node;
  const check::Layout layout(experiment_.plan);
  std::size_t party = 0;
  while (party + 1 < layout.servers.size() && layout.servers[party + 1] < self) ++party;
  for (const Key key : keys) {
    pushed_[key] = rounds_[key] + 1;
    if (Position(key) + 1 >= experiment_.rounds) ended_.insert(key);
  }
  ++computing_;
  const auto slower = experiment_.slower.find(self);
  const double factor = slower == experiment_.slower.end() ? 1 : slower->second;
  const double longest = static_cast<double>(experiment_.compute) * std::max(experiment_.slow[party], factor);
  const auto takes = check::Between(world_.random(), 0, static_cast<std::uint64_t>(longest));
  const Time done = world_.now() + static_cast<Time>(takes);
  world_.Later(process_.id, done, [this, keys] {
    for (const Key key : keys) Push(key);
    --computing_;
    process_.Follow();
    if (experiment_.hasty && MadeLastPush()) Finish();
  });
}

void Trainer::Push(Key key) {
  const NodeId self = process_.id.node;
  const auto which = Contribution(key, pushed_[key]);
  const auto value = worker().Value(key);
  const auto push = std::make_shared<const Values>(
      PushOf(experiment_, self, key, std::get<2>(which), Values(value.begin(), value.end())));
  const auto [known, fresh] = history_.pushed.emplace(which, *push);
  if (!fresh && *push != known->second) history_.ambiguous = true;
  const bool absent = ShareOf(experiment_, self, key, std::get<2>(which)) == Share::kNothing;
  if (ended_.contains(key)) history_.ending.insert(which);
  worker().Submit(
      key, {.value = push->data(), .owner = push, .last = ended_.contains(key), .absent = absent},
      world_.now());
}

// Where last pushes wait for those of others, a worker that has made that of one tensor makes those of all.
bool Trainer::Leaves() const { return leaves_ && (ended_.empty() || experiment_.party_rounds.empty()); }

// Returns true if all values have arrived once, and no more will be pushed.
bool Trainer::MadeLastPush() const {
  if (computing_ > 0 || rounds_.size() < experiment_.tensors.size()) return false;
  return Leaves() || ended_.size() == experiment_.tensors.size();
}

bool Trainer::Answered() const {
  return std::all_of(pushed_.begin(), pushed_.end(), [this](const auto& each) {
    const auto value = rounds_.find(each.first);
    return value != rounds_.end() && value->second >= each.second;
  });
}

void Trainer::Finish() {
  if (left_ || at_barrier_) return;
  if (experiment_.barrier) {
    at_barrier_ = true;
    worker().Barrier(world_.now());
  } else {
    left_ = true;
    process_.node()->Leave(world_.now());
  }
  process_.Follow();
}

void Trainer::OnBarrier() {
  if (!at_barrier_) world_.Fail(process_.id.node, "is released from a barrier that it did not enter");
  at_barrier_ = false;
  left_ = true;
  process_.node()->Leave(world_.now());
  process_.Follow();
}

}  // namespace geomx::faults
