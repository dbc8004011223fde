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
  for (const auto& [at, event] : loop.TakeMembers()) {
    std::vector<std::string> names;
    if (!event.text.empty()) names.push_back(event.text);
    for (const double id : event.values) names.push_back(loop.NameOf(static_cast<NodeId>(id)));
    std::vector<std::pair<std::string, Round>> late;
    for (const auto& [id, meant] : event.late) late.emplace_back(loop.NameOf(id), meant);
    told.append(nanobind::make_tuple(Seconds(at), MemberKind(event.kind), names, event.key,
                                     event.shard, event.round, event.above, event.workers, late, event.dropped));
  }
  return told;
}

}  // namespace geomx::io
