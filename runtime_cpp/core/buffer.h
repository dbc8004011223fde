// The values of a shard, or their encoding, inside a node.
//
// Its memory is reused from round to round (kernels/memory.h). What `Buffer(n)` and `resize(n)` add
// is not cleared: it has to be written as a whole.
#pragma once

#include "kernels/memory.h"

namespace geomx {

using Buffer = kernels::Unset<float>;

}  // namespace geomx
