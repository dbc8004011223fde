// What a worker's application does; see geomx/training and geomx/live for the real one.
#include <algorithm>

#include "core/worker.h"
#include "faults/world.h"

namespace geomx::faults {

Worker& Trainer::worker() { return process_.node()->worker(); }

// The master gives the optimizer and the initial values; one that comes back repeats that, in case its
// predecessor did not come to it.
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

void Trainer::OnValue(Key key) {
  const Round round = worker().ValueRound(key);
  const auto value = worker().Value(key);
  const History::Contribution which{process_.id.node, key, round};
  const Values held(value.begin(), value.end());
  const auto [known, fresh] = history_.values.emplace(which, held);
  if (!fresh && experiment_.exact && known->second != held) history_.ambiguous = true;
  const auto pushed = pushed_.find(key);
  if (pushed != pushed_.end()) {
    if (pushed->second != round) world_.Fail(process_.id.node, "is given a value of a round that it did not push");
    history_.acknowledged.insert(which);
  }
  if (rounds_.contains(key) && rounds_[key] >= round) {
    world_.Fail(process_.id.node, "is given the value of a round twice");
  }
  rounds_[key] = round;
  if (!experiment_.lockstep && round < experiment_.rounds && !leaves_) return Compute({key});
  Continue();
}

// The next step, or the end, if all values of this one are in.
void Trainer::Continue() {
  const auto keys = static_cast<Key>(experiment_.tensors.size());
  std::vector<Key> due;
  for (Key key = 0; key < keys; ++key) {
    if (!rounds_.contains(key) || (pushed_.contains(key) && pushed_[key] > rounds_[key])) return;
    if (rounds_[key] < experiment_.rounds) due.push_back(key);
  }
  if (due.empty() || leaves_) return Finish();
  Compute(due);
}

void Trainer::Compute(const std::vector<Key>& keys) {
  for (const Key key : keys) pushed_[key] = rounds_[key] + 1;
  const auto longest = static_cast<std::uint64_t>(experiment_.compute);
  const Time done = world_.now() + static_cast<Time>(check::Between(world_.random(), 0, longest));
  world_.Later(process_.id, done, [this, keys] {
    for (const Key key : keys) Push(key);
    process_.Follow();
  });
}

void Trainer::Push(Key key) {
  const NodeId self = process_.id.node;
  const Round round = pushed_[key];
  const auto value = worker().Value(key);
  const auto push = std::make_shared<const Values>(
      PushOf(experiment_, self, key, round, Values(value.begin(), value.end())));
  const auto [known, fresh] = history_.pushed.emplace(History::Contribution{self, key, round}, *push);
  if (!fresh && *push != known->second) history_.ambiguous = true;
  worker().Submit(key, {push->data(), push, 0, round == experiment_.rounds}, world_.now());
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
  if (!at_barrier_) world_.Fail(process_.id.node, "is released from a barrier that it was not at");
  at_barrier_ = false;
  left_ = true;
  process_.node()->Leave(world_.now());
  process_.Follow();
}

}  // namespace geomx::faults
