// Whole clusters on a Wire: scheduler, global servers, and per party a local server and workers,
// with the verbs that tests need, and a slicer that belongs to no plugin.
#pragma once

#include "core/worker.h"
#include "tests/layout.h"
#include "tests/wire.h"

namespace geomx::check {

// Cuts a shard into blocks of `rows`: every `reliable_every`-th is reliable (0: none is), the
// others travel on channels 1, 2, 3 in turn.
std::shared_ptr<const SlicerFactory> BlockSlices(std::uint32_t rows, std::uint32_t reliable_every);

class Cluster : public Wire, public Layout {
 public:
  Cluster(std::uint64_t seed, const Plan& plan);

  // All workers declare the tensor.
  void Declare(Key key, std::uint32_t elements, const std::vector<ShardInfo>& shards);
  // At most so many shards, in random places and with random priorities.
  std::vector<ShardInfo> RandomShards(std::uint32_t elements, std::uint32_t most);
  // By the first worker.
  void Init(Key key, const std::vector<float>& value);
  void RequestAll(Key key);
  void Push(NodeId id, Key key, const std::vector<float>& value, bool last = false,
            float loss = std::numeric_limits<float>::quiet_NaN());
  void Command(const std::string& text);
  std::vector<float> Value(NodeId id, Key key);

  std::vector<float> RandomValues(std::uint32_t elements);
  // Integers are added exactly in any order.
  std::vector<float> RandomIntegers(std::uint32_t elements);
};

// No node complained, was given up or refused anything.
void CheckNoErrors(const Cluster& cluster);

// A push or a value of a whole shard that arrives in one piece.
Message Transfer(Kind kind, NodeId source, Round round, std::uint32_t elements, float value = 1);

}  // namespace geomx::check
