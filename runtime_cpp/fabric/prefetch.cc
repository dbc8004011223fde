// Large simulations wait for memory most of the time. Events of one instant are known in advance: what
// the next ones read is fetched into the cache while the present one is handled, a step at a time
// where one place says where the next one is.
#include "fabric/fabric.h"

namespace geomx {
namespace {

void Prefetch(const void* place, std::size_t lines) {
  constexpr std::size_t kLine = 64;
  for (std::size_t line = 0; line < lines; ++line) {
    __builtin_prefetch(static_cast<const char*>(place) + kLine * line);
  }
}

}  // namespace

void Fabric::PrefetchLeaving(std::size_t next) const {
  if (next + 1 < completed_.size()) {
    const std::uint32_t index = connection_owner_[completed_[next + 1]].first;
    if ((index & kTransfers) == 0) Prefetch(&links_[index], 3);
  }
  if (next < completed_.size()) {
    const auto [index, lane] = connection_owner_[completed_[next]];
    if ((index & kTransfers) == 0) {
      Prefetch(&messages_[links_[index].in_flight[static_cast<int>(lane)]], 2);
    }
  }
}

void Fabric::PrefetchArrivals() const {
  const auto arrival = [this](std::size_t more) {
    const Action* const action = agenda_.Soon(more);
    return action != nullptr && action->kind == Action::Kind::kDeliver ? action : nullptr;
  };
  if (const Action* const action = arrival(2)) {
    Prefetch(&messages_[action->which], 2);
    Prefetch(&endpoints_[action->node], 1);
  }
  if (const Action* const action = arrival(1)) {
    endpoints_[action->node].node->node().PrefetchSlot(messages_[action->which].message.header);
  }
  if (const Action* const action = arrival(0)) {
    endpoints_[action->node].node->node().PrefetchEntry(messages_[action->which].message.header);
  }
}

}  // namespace geomx
