// Lower priority of best-effort messages on a network that ignores their marks.
//
// The sender enforces it. Datagrams to a peer are sent only while no reliable message to that peer is
// being sent or queued on the path. A token bucket paces them at the recent delivery rate of the
// connection to the same peer, because the congestion control of that connection measures the same
// path. Both drivers use this bucket: the live driver with the kernel's measurements of the
// connection, the simulator with the model's.
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

  // Whether a datagram may be sent. `delivered` returns bytes/s and is called occasionally.
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

  // Records that a datagram of so many bytes was sent.
  void Spend(std::size_t bytes) { tokens_ -= static_cast<double>(bytes); }

  // The time of the next attempt after a refusal.
  Time NextAt() const {
    if (tokens_ > 0.0) return last_;
    return std::min(last_ + Nanoseconds(-tokens_ / rate_) + kMillisecond / 10, asked_ + kAge);
  }

  double rate() const { return rate_; }  // bytes/s
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
