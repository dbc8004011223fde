// Congestion controls: their names, the share of an edge that they give a connection, and what loss
// leaves of its rate. ramp.h has the sources of the formulas.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <stdexcept>
#include <string_view>

#include "core/types.h"

namespace geomx::net {

inline constexpr double kSegmentBytes = 1448.0;  // payload of one full frame
inline constexpr Time kLocalRtt = 1000;          // below 1 us no window limits a connection
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

enum class Congestion : std::uint8_t { kBbr, kCubic, kReno };

inline constexpr const char* kCongestionNames[] = {"bbr", "cubic", "reno"};  // in the order above

inline const char* Name(Congestion congestion) {
  return kCongestionNames[static_cast<std::size_t>(congestion)];
}
// Throws std::invalid_argument for a name that is not one of bbr, cubic, reno.
inline Congestion CongestionNamed(std::string_view name) {
  const auto found = std::ranges::find(kCongestionNames, name);
  if (found == std::end(kCongestionNames)) {
    throw std::invalid_argument("congestion control is one of bbr, cubic, reno");
  }
  return static_cast<Congestion>(found - kCongestionNames);
}

// The weight of a connection where several share a link.
inline double SharingWeight(Congestion congestion, Time rtt) {
  if (congestion == Congestion::kBbr) return 1.0;
  return static_cast<double>(kSecond) / static_cast<double>(std::max(rtt, kLocalRtt));
}

// Payload bytes/s that random loss of a share `loss` of the packets leaves to one connection whose
// share of the link would be unlimited: no limit for a control that does not read loss as congestion.
// What is sent again takes its share of the link besides, under any control.
inline double LossRateCap(Congestion congestion, Time rtt, double loss) {
  if (loss <= 0.0 || congestion == Congestion::kBbr) return kInfinity;
  const double rtt_s = static_cast<double>(std::max(rtt, kLocalRtt)) / kSecond;
  const double reno = 1.22 / std::sqrt(loss);
  const double cubic = 1.054 * std::pow(rtt_s / loss, 0.75);
  const double segments = congestion == Congestion::kReno ? reno : std::max(reno, cubic);
  return segments * kSegmentBytes / rtt_s;
}

}  // namespace geomx::net
