// What a live node was told about who takes part, as Python gets it.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "io/loop.h"

namespace geomx::io {

inline const char* MemberKind(Event::Kind kind) {
  switch (kind) {
    case Event::Kind::kGone: return "gone";
    case Event::Kind::kBack: return "back";
    case Event::Kind::kMoved: return "moved";
    case Event::Kind::kTakesPart: return "takes_part";
    default: return "partial";
  }
}

inline nanobind::list Members(Loop& loop) {
  nanobind::list told;
  for (const MemberNotice& notice : loop.TakeMembers()) {
    const Event& event = notice.event;
    told.append(nanobind::make_tuple(Seconds(notice.at), MemberKind(event.kind), notice.names, event.key,
                                     event.shard, event.round, event.above, event.workers, notice.late,
                                     event.dropped));
  }
  return told;
}

}  // namespace geomx::io
