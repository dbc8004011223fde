// What a server holds of a shard that outlasts its cluster: another run can begin with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/inbox.h"
#include "core/types.h"

namespace geomx {

struct SavedShard {
  Key key = 0;
  std::uint32_t shard = 0;
  Round round = 0;                      // that was completed at the server; its latest push, where rounds are
                                        // of each child's own
  std::shared_ptr<const Buffer> value;  // the weights; null: this server has none
  std::vector<std::byte> optimizer;     // Optimizer::Save; empty: it has made no update
};

}  // namespace geomx
