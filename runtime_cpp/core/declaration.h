// The shards of an experiment, where they are known before it starts.
//
// A server refuses everything about other shards before it takes memory for it. Shards of training
// scripts are not known before: they exist from their initial values on (server_role.h).
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "core/types.h"

namespace geomx {

class Declaration {
 public:
  // `tensors`: the shards of each tensor, by key; their keys and positions are set here.
  explicit Declaration(std::vector<std::vector<ShardInfo>> tensors) : tensors_(std::move(tensors)) {
    for (Key key = 0; key < tensors_.size(); ++key) {
      for (std::uint32_t index = 0; index < tensors_[key].size(); ++index) {
        tensors_[key][index].key = key;
        tensors_[key][index].index = index;
      }
    }
  }

  // Null if there is no such shard.
  const ShardInfo* Find(Key key, std::uint32_t shard) const {
    if (key >= tensors_.size() || shard >= tensors_[key].size()) return nullptr;
    return &tensors_[key][shard];
  }

 private:
  std::vector<std::vector<ShardInfo>> tensors_;
};

}  // namespace geomx
