#include "core/event.h"

#include <span>

namespace geomx {

void EventQueue::Describe(Digest& digest, Digest::Level level) const {
  for (const Event& event : std::span(events_).subspan(next_)) {
    digest.Add(std::uint64_t{static_cast<std::uint8_t>(event.kind)} << 32 | event.key);
    digest.Add(std::uint64_t{event.shard});
    digest.Count(level, event.round);
    if (event.kind != Event::Kind::kValueReady && event.kind != Event::Kind::kUpdated) {
      digest.Unknown();
    }
  }
}

}  // namespace geomx
