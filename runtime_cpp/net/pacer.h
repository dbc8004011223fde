// How best-effort messages give way on a network that does not look at their marks.
//
// There the sender sees to it. Datagrams to a peer leave only while no reliable message to it does or
// stands in a queue on its way, and a token bucket spreads them over time, filled at the rate at
// which the connection to the same peer has lately delivered: what a congestion control found out
// about the way holds for them too. The live driver and the simulator's ask the same bucket, one with
// what the kernel measured of its connection, the other with what the model did.
//
// Sans-IO: time is an argument.
#pragma once

#include <algorithm>
#include <cstddef>

#include "core/digest.h"
#include "core/types.h"

namespace geomx::net {

class Pacer {
 public:
  static constexpr double kSlowest = 32 * 1024.0;     // bytes/s: as good as nothing on any WAN
  static constexpr double kBurst = 64 * 1024.0;       // bytes
  static constexpr Time kAge = 100 * kMillisecond;    // of a rate, until it is asked for again

  // Whether a datagram may leave. `delivered`, which is asked now and then, returns bytes/s.
  template <typename Delivered>
  bool Allows(Time now, Delivered&& delivered) {
    if (now - asked_ >= kAge) {
      rate_ = std::max(kSlowest, static_cast<double>(delivered()));  // in this order also for NaN
      asked_ = now;
    }
    tokens_ = std::min(kBurst, tokens_ + rate_ * static_cast<double>(now - last_) / kSecond);
    last_ = now;
    return tokens_ > 0.0;
  }

  // One of so many bytes left.
  void Spend(std::size_t bytes) { tokens_ -= static_cast<double>(bytes); }

  // When to ask again, after a refusal.
  Time NextAt() const {
    if (tokens_ > 0.0) return last_;
    return std::min(last_ + Nanoseconds(-tokens_ / rate_) + kMillisecond / 10, asked_ + kAge);
  }

  bool used() const { return asked_ >= 0; }

  void Describe(Digest& digest) const {
    digest.Add(rate_);
    digest.Add(tokens_);
    digest.Moment(last_);
    digest.Moment(asked_);
  }

 private:
  double rate_ = kSlowest;
  double tokens_ = kBurst;
  Time last_ = 0;
  Time asked_ = -kAge;
};

}  // namespace geomx::net
