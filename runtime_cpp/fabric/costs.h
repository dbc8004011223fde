// What the work of a simulated endpoint takes.
#pragma once

#include "core/event.h"

namespace geomx {

// The cost of a kind of work, in seconds.
struct Cost {
  double per_message = 0;
  double per_byte = 0;

  double For(const Work::Count& count) const {
    if (count.times == 0) return 0;
    return per_message * static_cast<double>(count.times) +
           per_byte * static_cast<double>(count.bytes);
  }
};

// Bytes of receive and send are those on the wire, of the others dense float32.
struct Costs {
  Cost receive, send, encode, decode, aggregate, update;

  double For(const Work& work) const {
    return encode.For(work.encode) + decode.For(work.decode) + aggregate.For(work.aggregate) +
           update.For(work.update);
  }
};

}  // namespace geomx
