// What a node's loop reports about itself, as Python objects.
#pragma once

#include <nanobind/nanobind.h>

#include "io/loop.h"

namespace geomx::io {

// Counts of the node and of each link, and the present state of each link.
nanobind::dict StatsOf(Loop& loop);
// The norms of what codecs keep of pushes and pulls for later ones.
nanobind::dict ResidualNormsOf(Loop& loop);
// What was recorded for the timeline: (name, category, start, duration, details).
nanobind::list SpansOf(const Loop& loop);

}  // namespace geomx::io
