// Clusters on a Wire: scheduler, global servers, and local servers with workers, with helpers for tests,
// and a slicer that belongs to no plugin.
#pragma once

#include "core/worker.h"
#include "tests/layout.h"
#include "tests/wire.h"

namespace geomx::check {

// Divides a shard into blocks of `rows`. Every `reliable_every`-th is reliable (0: none); the others are
// sent on channels 1, 2, 3 in turn.
std::shared_ptr<const SlicerFactory> BlockSlices(std::uint32_t rows, std::uint32_t reliable_every);

class Cluster : public Wire, public Layout {
 public:
  Cluster(std::uint64_t seed, const Plan& plan);

  // Declares the tensor at all workers.
  void Declare(Key key, std::uint32_t elements, const std::vector<ShardInfo>& shards);
  // Returns up to `most` shards, with random boundaries, servers and priorities.
  std::vector<ShardInfo> RandomShards(std::uint32_t elements, std::uint32_t most);
  // Gives the initial value, by the first worker.
  void Init(Key key, const std::vector<float>& value);
  void RequestAll(Key key);
  void Push(NodeId id, Key key, const std::vector<float>& value, bool last = false,
            float loss = std::numeric_limits<float>::quiet_NaN());
  void Command(const std::string& text);
  std::vector<float> Value(NodeId id, Key key);
  // Returns how many pushed values some node still keeps: frameworks compute no gradients into them.
  std::size_t Lent() const;

  std::vector<float> RandomValues(std::uint32_t elements);
  // Returns integers, whose sums are exact in any order.
  std::vector<float> RandomIntegers(std::uint32_t elements);

 private:
  std::vector<std::weak_ptr<const void>> lent_;
};

// Checks that no node has reported an error, a loss or a refusal.
void CheckNoErrors(const Cluster& cluster);

// Returns a push or a value of a complete shard in one slice.
Message Transfer(Kind kind, NodeId source, Round round, std::uint32_t elements, float value = 1);
// Returns a control message of `source`.
Message Control(Kind kind, NodeId source, std::initializer_list<std::string_view> strings = {});

// A law of party policies that keep the initial value: a push before it is refused, and no more happens.
inline void CheckThatPushesNeedTheInitialValue(const Plan& plan) {
  Cluster cluster(1, plan);
  cluster.Declare(0, 4, {{.elements = 4}});
  cluster.Push(cluster.workers[0], 0, std::vector<float>(4, 1.0f));
  cluster.Drive();
  const auto errors = cluster.Events(cluster.servers[0], Event::Kind::kPeerError);
  CHECK_EQ(errors.size(), 1u);
  if (!errors.empty()) CHECK_EQ(errors[0].reason, "push before the initial value was asked for");
}

}  // namespace geomx::check
