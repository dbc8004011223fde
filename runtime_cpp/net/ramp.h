// The window of one TCP connection, as far as it limits the rate.
//
// A WAN connection is slower than its share of the link for three reasons that no constant factor
// captures: it starts with ten segments and doubles its window once per round trip, it never has more
// than one window in flight, and its window shrinks while it is idle. This class models exactly these
// three effects. The simulator uses it to limit a connection's fluid rate, and the live shaper to
// limit what it sends, so both modes follow the same model.
//
// Time is divided into rounds of one round trip. While the window grows, the connection sends a
// round's window as fast as the link allows, and then waits for the acknowledgements that start the
// next round: `RateCap` is infinite until the window is used up, and 0 until the round ends. Ten
// kilobytes on a new connection therefore take only their transmission time, for which a smooth rate
// of window / RTT would be wrong by a round trip. Once the window has reached its limit,
// acknowledgements arrive evenly and the cap is window / RTT; after a pause in which all of them
// arrived, a whole window may leave at once. Under bbr, a connection that was idle sends at most at
// its estimated bandwidth, which is low if it has only sent bursts shorter than a round trip. All
// byte counts are payload. Sans-IO: time is an argument, never a call.
//
// Formulas and where they come from
//   initial window    10 segments of 1448 B                           RFC 6928; 1500 - 20 - 20 - 12
//   growth            W += bytes acknowledged, if at least W / 2      RFC 5681 3.1, Linux
//                     were under way; so up to 2 W_max (cubic, reno:  tcp_is_cwnd_limited
//                     2.4 W_max), of which no more than W_max are     measured; unpaced segments
//                     ever under way; while bbr paces, until          share buffers
//                     2.885 E RTT + 3 quanta                          tcp_bbr.c, bbr_set_cwnd
//   rounds unfilled   ceil(log2(b / w0 + 1))                          follows; Cardwell et al. 2000
//   window limit      rate <= W_max / RTT, W_max 2.75e6 B             stock Linux (4 MiB tcp_wmem)
//   idle restart      cubic, reno: W halves per RTO of idleness,      RFC 7661, Linux
//                     not below w0; RTO = RTT + 200 ms + the time in  tcp_cwnd_restart, TCP_RTO_MIN
//                     which the last round left + V; V = 2 RTT -      tcp_rtt_estimator
//                     200 ms at first, 3/4 of it after each round
//                     bbr: keeps its estimate                         BBR draft, "restart from idle"
//   bbr's pacing      2.885 E, where E is the most that was ever      BBR draft, "startup", Linux
//                     delivered per second: w0 / RTT at first;        bbr_init_pacing_rate_from_rtt
//                     b / (RTT + T) by a burst of b bytes in T; by a  tcp_rate.c, tcp_bbr.c
//                     round, b / (RTT + T - T') after one of b' in
//                     T' < T, else (b + (1 - T / T') b') / RTT; until
//                     three rounds in a row have not brought a
//                     quarter more though the window would have       tcp_rate_check_app_limited
//                     let them
//   bbr's quantum     two segments, or what it paces in 1 / 1024 s,   Linux tcp_tso_autosize
//                     leave unpaced after a pause, and the first ten  tcp_update_skb_after_send
//   a repeated burst  of b bytes takes (b - quantum) / (2.885 E) at   follows
//                     most, less than RTT / (2.885 - 1), if the link
//                     allows
//   loss, reno        1.22 MSS / (RTT sqrt p)                         Mathis et al. 1997
//   loss, cubic       1.054 (RTT / p)^0.75 segments, at least reno's  RFC 8312 5.1
//   loss, all         the share p of what is sent is sent again       follows; BBR tolerates ~15 %
//   sharing           equal (bbr); 1 / RTT (cubic, reno)              Lakshman and Madhow 1997
//   sharing of FIFO   bbr: in proportion to the rate of sending, that a queue serves in the order of
//   queues            is 2.885 E while it paces, then W / (2 RTT)   arrival; measured; standing.cc
//   W in such queues  2.885 E RTT, then 2 E RTT + 16 segments       tcp_bbr.c, bbr_set_cwnd; measured
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/digest.h"
#include "core/types.h"
#include "net/congestion.h"
#include "net/hold.h"

namespace geomx::net {

inline constexpr double kPayloadShare = 1448.0 / 1500.0;     // payload bytes per byte on the link
inline constexpr double kInitialWindow = 10 * kSegmentBytes;
inline constexpr double kWindowLimit = 2.75e6;               // bytes; measured by calibration
// A growing window leaves no faster than a 100 Gbit/s card sends: on an edge without limit it would
// otherwise be gone within the nanosecond to which events are rounded, and more with it.
inline constexpr double kBurstRate = 12.5e9;                 // bytes/s
// bbr's, 2 / ln 2. Linux takes 1 % off, counts headers that it does not pace, and lets timers be late:
// measured, 2.85 to 2.95.
inline constexpr double kPacingGain = 2.885;
inline constexpr double kQuantumShare = 0.2;                 // of w0: two segments leave at once,
inline constexpr double kQuantumSeconds = 1.0 / 1024;        // or what bbr paces in this time
inline constexpr double kNews = 1.0001;                      // a larger factor changes the pace
inline constexpr double kFullGrowth = 1.25;                  // a round below it finds the path full
inline constexpr int kFullRounds = 3;                        // after this many of them the path is full
inline constexpr double kWindowGain = 2.0;                   // of E RTT, bbr's window afterwards;
inline constexpr double kWindowSpare = 16 * kSegmentBytes;   // and what Linux adds for bundled ACKs
inline constexpr Time kRtoMargin = 200 * kMillisecond;
inline constexpr double kCalmer = 0.75;                      // of the timeout's V, per round
inline constexpr double kUnpacedGrowth = 1.2;                // of W_max, without pacing: see above

struct RampOptions {
  Time rtt = 0;
  Congestion congestion = Congestion::kBbr;
  bool fifo = false;                       // SendingRate decides its share of the edges
  double initial_window = kInitialWindow;  // bytes
  double window_limit = kWindowLimit;      // bytes; infinite: no window at all
  double rate_limit = kInfinity;           // bytes/s, for loss (LossRateCap) or pacing
};

class TcpRamp {
 public:
  explicit TcpRamp(const RampOptions& options = {})
      : options_(options),
        limited_(options.rtt >= kLocalRtt && options.window_limit < kInfinity),
        window_(std::min(options.initial_window, options.window_limit)),
        floor_(window_),
        variation_(static_cast<double>(std::max<Time>(2 * options.rtt - kRtoMargin, 0))) {}

  // The connection has data to send again. Applies the effects of idle time since `End`.
  void Begin(Time now) {
    if (!limited_) return;
    begun_ = now;
    ahead_ = used_ ? std::min(Ahead(0.0, now), Quantum()) : floor_;
    if (!used_) {
      round_start_ = now;
      fresh_ = true;
    } else if (now >= round_start_ + options_.rtt) {
      Time rounds = (now - last_) / Timeout();
      CloseRound();
      if (options_.congestion != Congestion::kBbr) {
        for (; rounds > 0 && window_ > floor_; --rounds) window_ = std::max(window_ / 2, floor_);
      }
      round_start_ = now;
      spread_before_ = 0;
      sent_before_ = 0.0;
      fresh_ = now - last_ >= options_.rtt;
    }
    used_ = true;
    last_ = now;
  }

  // `bytes` left at an even rate between the previous call (Begin or Sent) and `now`.
  void Sent(double bytes, Time now) {
    if (!limited_) return;
    const Time rtt = options_.rtt;
    double rest = bytes;
    ahead_ = Ahead(bytes, now);
    while (now >= round_start_ + rtt) {
      const Time end = round_start_ + rtt;
      if (now > last_ && end > last_) {
        const double part = rest * Seconds(end - last_) / Seconds(now - last_);
        round_sent_ += part;
        rest -= part;
      }
      LearnRounds(round_sent_, 1);
      CloseRound();
      round_start_ = last_ = end;
      if (now == end) break;
      // The rate is even: once such a round would not widen the window, none of them will.
      const double per_round = rest * Seconds(rtt) / Seconds(now - end);
      if (Grown(per_round) > window_) continue;
      const Time whole = (now - end) / rtt;
      if (whole > 0) LearnRounds(per_round, whole);
      Calm(whole);
      rest -= per_round * static_cast<double>(whole);
      round_start_ += whole * rtt;
      last_ = round_start_;
    }
    const bool more = !UsedUp();
    round_sent_ += std::max(rest, 0.0);
    if (more && UsedUp()) spread_ = now - round_start_;
    last_ = now;
  }

  // The path, and with it round trip and limits, is another one from now on; the window stays. `busy`:
  // the connection has data to send, and the bytes that left until `now` have been reported with
  // `Sent`. Otherwise it stays idle, since the last `End`.
  void Change(const RampOptions& options, bool busy, Time now) {
    options_.rtt = options.rtt;
    options_.rate_limit = options.rate_limit;
    options_.window_limit = options.window_limit;
    limited_ = options_.rtt >= kLocalRtt && options_.window_limit < kInfinity;
    if (!busy) return;
    last_ = now;
    round_start_ = std::max(round_start_, now - options_.rtt + 1);  // the round has not ended yet
  }

  // The connection has no data to send. The bytes that left until `now` have been reported with
  // `Sent`.
  void End(Time now) {
    if (!limited_) return;
    last_ = now;
    waited_ = UsedUp() ? spread_ : now - round_start_;
    const double rate = Rate(round_sent_, waited_);
    Learn(rate);
    delivered_ = std::max(delivered_, rate);
  }

  // Payload bytes/s that the window allows at the time of the last call: the rate of a network
  // card, window / RTT, or 0 while the window is used up. Infinite if no window limits the
  // connection.
  double RateCap() const {
    if (!limited_) return options_.rate_limit;
    if (Smooth()) return std::min(options_.rate_limit, Allowed() / Seconds(options_.rtt));
    if (UsedUp()) return 0.0;
    return std::min({options_.rate_limit, kBurstRate, Free() ? kInfinity : Pace()});
  }

  // Payload bytes/s at which bbr sends while it may: its share of a queue that serves connections in
  // the order of arrival. 0 under other controls, and without a window.
  double SendingRate() const {
    if (!limited_ || options_.congestion != Congestion::kBbr) return 0.0;
    return Paced() ? Pace() : QueueWindow() / (2 * Seconds(options_.rtt));
  }

  // The most payload bytes of bbr under way and in queues; 0 as above. `holds`: see hold.h.
  double QueueWindow(bool holds = false) const {
    if (!limited_ || options_.congestion != Congestion::kBbr) return 0.0;
    const double rtt = Seconds(options_.rtt), rate = Paced() ? Pace() : estimate_;
    const double window = Paced() ? rate * rtt : kWindowGain * rate * rtt + kWindowSpare;
    return holds && rate <= kFastRate ? std::min(window, HeldWindow(rate, rtt)) : window;
  }

  // The time at which `RateCap` changes if bytes keep leaving at `rate`, or, of a connection of FIFO
  // queues, `SendingRate`; kNever if they do not. Valid at the time of the last call.
  Time NextChange(double rate) const {
    if (!limited_) return kNever;
    const Time round_end = round_start_ + options_.rtt;
    const Time learns = options_.fifo && Learns(rate) ? round_end : kNever;
    if (Smooth()) return learns;
    if (UsedUp()) return round_end;
    if (rate <= 0.0) return learns;
    Time paced = rate >= Pace() * (1 - 1e-9) ? round_end : learns;  // then the estimate grows
    if (Free() && rate > Pace()) paced = std::min(paced, After(ahead_ / (rate - Pace())));
    const double until_used_up = (Allowed() - round_sent_) / rate;
    if (until_used_up < Seconds(round_end - last_)) {
      return std::min({paced, round_end, After(until_used_up)});
    }
    // This round ends first. The next one, with its own window, may stall.
    const double sent = round_sent_ + rate * Seconds(round_end - last_);
    const double allowed = std::min(Grown(sent), options_.window_limit);
    return rate * Seconds(options_.rtt) <= allowed ? paced : std::min(paced, round_end);
  }

  // Adds the state that future results depend on. Under bbr a window at its limit stays there, and
  // the estimate of a path that is known to be full no longer changes.
  void Describe(Digest& digest) const {
    digest.Add(std::uint64_t{used_});
    if (!limited_ || !used_) return;
    digest.Add(window_);
    const bool full = options_.congestion == Congestion::kBbr && full_rounds_ == kFullRounds;
    if (Smooth() && full && !options_.fifo) {
      digest.Moment(last_);
      return;
    }
    if (options_.fifo && !full) digest.Moment(begun_);
    digest.Add(estimate_);
    digest.Add(std::uint64_t(full_rounds_));
    digest.Add(ahead_);
    digest.Add(round_sent_);
    digest.Add(sent_before_);
    digest.Add(static_cast<double>(spread_before_));
    digest.Add(static_cast<double>(UsedUp() ? spread_ : 0));
    digest.Add(std::uint64_t{fresh_});
    if (options_.congestion != Congestion::kBbr) {
      digest.Add(variation_);
      digest.Add(static_cast<double>(waited_));
    }
    digest.Moment(round_start_);
    digest.Moment(last_);
  }

  double window() const { return window_; }

  // The recent delivery rate in payload bytes/s: of the last whole round, or of a faster, shorter
  // burst since (Linux: tcpi_delivery_rate). The rate of a network card if no window limits the
  // connection.
  double Delivered() const { return limited_ ? delivered_ : kBurstRate; }

  const RampOptions& options() const { return options_; }

 private:
  static double Seconds(Time ns) { return static_cast<double>(ns) / kSecond; }

  // The time `seconds`, about a round trip at most, after the last call.
  Time After(double seconds) const {
    return last_ + static_cast<Time>(std::ceil(std::min(seconds, 1e6) * kSecond));
  }

  // Bytes that may be under way.
  double Allowed() const { return std::min(window_, options_.window_limit); }

  // Half a byte tolerates the rounding of event times to nanoseconds.
  bool UsedUp() const { return round_sent_ >= Allowed() - 0.5; }

  // At its limit the window is sent evenly from the second round after a pause on; the first round
  // leaves as a burst.
  bool Smooth() const { return window_ >= options_.window_limit && !fresh_; }

  double Grown(double sent) const {
    const double wanted = kPacingGain * estimate_ * Seconds(options_.rtt) + 3 * Quantum();
    if (Paced() ? window_ >= wanted : 2 * sent < window_) return window_;
    const double most = options_.congestion == Congestion::kBbr ? 1.0 : kUnpacedGrowth;
    return std::min(2 * most * options_.window_limit, window_ + std::min(sent, window_));
  }

  // The kernel's retransmission timeout.
  Time Timeout() const {
    return options_.rtt + waited_ + kRtoMargin + static_cast<Time>(variation_);
  }

  // Round trips were measured in `rounds` rounds; below a millisecond their variation is none.
  void Calm(Time rounds) {
    if (variation_ <= 0.0) return;
    variation_ *= std::pow(kCalmer, static_cast<double>(rounds));
    if (variation_ < static_cast<double>(kMillisecond)) variation_ = 0.0;
  }

  // Returns true if this round, sending at `rate` from now on, may change what it knows of the path.
  bool Learns(double rate) const {
    const double sent = round_sent_ + rate * Seconds(round_start_ + options_.rtt - last_);
    const bool more = sent > kNews * estimate_ * Seconds(options_.rtt);
    return options_.congestion == Congestion::kBbr && sent > 0.5 && (Paced() || more);
  }

  bool Paced() const {
    return options_.congestion == Congestion::kBbr && full_rounds_ < kFullRounds;
  }

  // Bytes that may leave unpaced once `sent` more bytes have left until `now`.
  double Ahead(double sent, Time now) const {
    if (!Paced()) return 0.0;
    const double left = ahead_ + Pace() * Seconds(now - last_) - sent;
    return std::clamp(left, 0.0, std::max(ahead_, Quantum()));
  }

  // The rate of a connection that is still learning the path. Infinite if it is not paced.
  double Pace() const {
    if (!Paced()) return kInfinity;
    return kPacingGain * std::max(estimate_, floor_ / Seconds(options_.rtt));
  }

  double Quantum() const {
    return std::max(kQuantumShare * floor_, kQuantumSeconds * Pace());
  }

  // Returns true if it may send unpaced now. Half a byte tolerates rounding.
  bool Free() const { return ahead_ > 0.5 && Paced(); }

  // Returns true if a round of `sent` bytes may find the path full: Linux does not count what was sent
  // before the first acknowledgement after a pause (tcp_rate_check_app_limited). Where only the pace
  // depends on it, that is left out.
  bool Tells(double sent) const {
    return !options_.fifo || (sent > 0.5 && round_start_ >= begun_ + options_.rtt);
  }

  // `sent` bytes left in each of several consecutive rounds. Rounds that the window has ended say
  // nothing about the path's capacity.
  void LearnRounds(double sent, Time rounds) {
    const Time spread = UsedUp() ? spread_ : options_.rtt;
    const double rate = rounds > 1 ? sent / Seconds(options_.rtt) : Rate(sent, spread);
    spread_before_ = spread;
    sent_before_ = sent;
    if (full_rounds_ < kFullRounds && sent < Allowed() - 0.5 && Tells(sent)) {
      const bool more = rate >= kFullGrowth * estimate_;
      const Time found = (more ? 0 : full_rounds_ + 1) + rounds - 1;
      full_rounds_ = static_cast<int>(std::min<Time>(found, kFullRounds));
    }
    Learn(rate);
    delivered_ = rate;
  }

  // The delivery rate in bytes/s that the last of a round's `sent` bytes, which left within
  // `spread`, measures; the rest of the previous round counts as well.
  double Rate(double sent, Time spread) const {
    const Time later = spread - spread_before_;
    if (later < 0) sent -= sent_before_ * Seconds(later) / Seconds(spread_before_);
    return sent / Seconds(options_.rtt + std::max<Time>(later, 0));
  }

  // Updates the estimate with a delivery rate in bytes/s. Repeated bursts converge to a rate; below
  // a small difference the estimate does not change, so that repetition can be detected.
  void Learn(double rate) {
    if (rate > kNews * estimate_) estimate_ = rate;
  }

  void CloseRound() {
    window_ = Grown(round_sent_);
    Calm(1);
    round_sent_ = 0.0;
    fresh_ = false;
  }

  RampOptions options_;
  bool limited_;
  double window_;           // bytes that may leave in the current round
  double floor_;            // idleness does not shrink it further
  double variation_;        // nanoseconds, V above
  Time waited_ = 0;         // for which the last bytes of the latest transfer left
  double round_sent_ = 0.0;
  Time round_start_ = 0;
  Time last_ = 0;           // of the last Begin, Sent or End
  Time begun_ = 0;          // the last Begin
  bool used_ = false;       // Begin was called before
  double ahead_ = 0.0;      // bytes that may leave unpaced
  double estimate_ = 0.0;   // bytes/s, bbr's: the most that was delivered
  double delivered_ = 0.0;  // bytes/s, recent
  int full_rounds_ = 0;     // consecutive rounds without growth
  Time spread_ = 0;         // within which the window of this round left, once it is used up
  Time spread_before_ = 0;  // that of the round before, within which this one's window opened
  double sent_before_ = 0;  // bytes of the round before
  bool fresh_ = false;      // the current round is the first one after a pause
};

}  // namespace geomx::net
