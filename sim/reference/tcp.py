"""The window of one TCP connection, as far as it limits the rate.

Time is divided into rounds of one round trip. A growing window is sent as fast as the edges allow,
and then the connection waits for the acknowledgements that begin the next round. At its limit, the
window is sent evenly. `docs/model.md` and ``runtime_cpp/net/ramp.h`` have the sources.
"""

from __future__ import annotations

import math

NS = 1e9
SEGMENT = 1448.0
INITIAL_WINDOW = 10 * SEGMENT
WINDOW_LIMIT = 2.75e6
LOCAL_RTT_NS = 1000
BURST_RATE = 12.5e9
"""Bytes/s of a network card, the most at which a growing window leaves."""
PACING_GAIN = 2.885
QUANTUM_SHARE, QUANTUM_S = 0.2, 1 / 1024
NEWS, FULL_GROWTH, FULL_ROUNDS = 1.0001, 1.25, 3
RTO_MARGIN_NS = 200_000_000
CALMER = 0.75
"""What a round leaves of the timeout's first addition."""
UNPACED_GROWTH = 1.2
WINDOW_GAIN, WINDOW_SPARE = 2.0, 16 * SEGMENT
"""bbr's window once it does not pace: of what is under way, and besides."""


class Tcp:
    """One connection's window. Times are nanoseconds, sizes payload bytes, rates bytes/s.

    Args:
        rtt_ns: Round trip.
        congestion: ``bbr``, ``cubic`` or ``reno``.
        window_limit: Upper bound of the window; infinite: no window.
        rate_limit: Upper bound of the rate.
        first_window: Window at the beginning.
        fifo: Whether `sending_rate` decides its share of the edges.
    """

    def __init__(
        self,
        rtt_ns: int,
        congestion: str = "bbr",
        window_limit: float = WINDOW_LIMIT,
        rate_limit: float = math.inf,
        first_window: float = INITIAL_WINDOW,
        fifo: bool = False,
    ) -> None:
        self.rtt_ns, self.bbr, self.fifo = rtt_ns, congestion == "bbr", fifo
        self.limit, self.rate_limit = window_limit, rate_limit
        self.limited = rtt_ns >= LOCAL_RTT_NS and window_limit < math.inf
        self.window = self.floor = min(first_window, window_limit)
        self.sent = 0.0  # in this round
        self.round_ns = self.last_ns = 0  # beginning of the round; the last call
        self.begun_ns = 0  # the last call of `begin`
        self.used = self.fresh = False  # fresh: the first round after a pause
        self.ahead = 0.0  # bytes that may leave unpaced
        self.estimate = 0.0  # bbr's, bytes/s
        self.full_rounds = 0  # consecutive rounds without growth
        self.spread_ns = self.spread_before_ns = 0  # within which a window left
        self.sent_before = 0.0
        self.variation_ns = float(max(2 * rtt_ns - RTO_MARGIN_NS, 0))
        self.waited_ns = 0  # for which the last bytes of the latest transfer left

    # ---- what happens ----

    def begin(self, now: int) -> None:
        """The connection has data to send again."""
        if not self.limited:
            return
        self.begun_ns = now
        self.ahead = min(self._ahead(0.0, now), self._quantum) if self.used else self.floor
        if not self.used:
            self.round_ns, self.fresh = now, True
        elif now >= self.round_ns + self.rtt_ns:
            timeouts = (now - self.last_ns) // self._timeout_ns
            self._close_round()
            if not self.bbr:  # the window halves per timeout of idleness
                for _ in range(timeouts):
                    self.window = max(self.window / 2, self.floor)
            self.round_ns, self.spread_before_ns, self.sent_before = now, 0, 0.0
            self.fresh = now - self.last_ns >= self.rtt_ns
        self.used, self.last_ns = True, now

    def leave(self, count: float, now: int) -> None:
        """`count` bytes have left at an even rate since the last call."""
        if not self.limited:
            return
        rest = count
        self.ahead = self._ahead(count, now)
        while now >= self.round_ns + self.rtt_ns:
            end = self.round_ns + self.rtt_ns
            if now > self.last_ns and end > self.last_ns:
                part = rest * (end - self.last_ns) / (now - self.last_ns)
                self.sent += part
                rest -= part
            self._learn_rounds(self.sent, 1)
            self._close_round()
            self.round_ns = self.last_ns = end
            if now == end:
                break
            # The rate is even: once such a round would not widen the window, none of them will.
            per_round = rest * self.rtt_ns / (now - end)
            if self._grown(per_round) > self.window:
                continue
            if whole := (now - end) // self.rtt_ns:
                self._learn_rounds(per_round, whole)
            self._calm(whole)
            rest -= per_round * whole
            self.round_ns += whole * self.rtt_ns
            self.last_ns = self.round_ns
        more = not self._used_up
        self.sent += max(rest, 0.0)
        if more and self._used_up:
            self.spread_ns = now - self.round_ns
        self.last_ns = now

    def end(self, now: int) -> None:
        """The connection has nothing to send."""
        if self.limited:
            self.last_ns = now
            self.waited_ns = self.spread_ns if self._used_up else now - self.round_ns
            self._learn(self._rate(self.sent, self.waited_ns))

    def change(
        self, rtt_ns: int, window_limit: float, rate_limit: float, busy: bool, now: int
    ) -> None:
        """The path is another one from now on; the window stays. busy: there is data to send."""
        self.rtt_ns, self.limit, self.rate_limit = rtt_ns, window_limit, rate_limit
        self.limited = rtt_ns >= LOCAL_RTT_NS and window_limit < math.inf
        if not busy:
            return
        self.last_ns = now
        self.round_ns = max(self.round_ns, now - rtt_ns + 1)  # the round has not ended yet

    # ---- what it allows ----

    def cap(self) -> float:
        """Return the bytes/s that the window allows now."""
        if not self.limited:
            return self.rate_limit
        if self._smooth:
            return min(self.rate_limit, self._allowed / (self.rtt_ns / NS))
        if self._used_up:
            return 0.0
        return min(self.rate_limit, BURST_RATE, math.inf if self._free else self._pace)

    def sending_rate(self) -> float:
        """Return at how many bytes/s bbr sends while it may; 0 under other controls."""
        if not self.limited or not self.bbr:
            return 0.0
        return self._pace if self._paced else self.queue_window() / (2 * self.rtt_ns / NS)

    def queue_window(self) -> float:
        """Return the most bytes that bbr has under way and in queues; 0 under other controls."""
        if not self.limited or not self.bbr:
            return 0.0
        rtt_s = self.rtt_ns / NS
        paced = self._paced
        return self._pace * rtt_s if paced else WINDOW_GAIN * self.estimate * rtt_s + WINDOW_SPARE

    def change_ns(self, rate: float) -> float:
        """Return when `cap` changes if bytes keep leaving at `rate`; infinite if never.

        Of FIFO queues, `sending_rate` counts as well.
        """
        if not self.limited:
            return math.inf
        round_end = self.round_ns + self.rtt_ns
        sent = self.sent + rate * (round_end - self.last_ns) / NS
        more = sent > NEWS * self.estimate * (self.rtt_ns / NS)
        learns = self.fifo and self.bbr and sent > 0.5 and (self._paced or more)
        otherwise: float = round_end if learns else math.inf
        if self._smooth:
            return otherwise
        if self._used_up:
            return round_end
        if rate <= 0.0:
            return otherwise
        paced: float = round_end if rate >= self._pace * (1 - 1e-9) else otherwise
        if self._free and rate > self._pace:
            paced = min(paced, self._after(self.ahead / (rate - self._pace)))
        until_used_up_s = (self._allowed - self.sent) / rate
        if until_used_up_s < (round_end - self.last_ns) / NS:
            return min(paced, round_end, self._after(until_used_up_s))
        allowed = min(self._grown(sent), self.limit)
        stalls = rate * (self.rtt_ns / NS) > allowed
        return min(paced, round_end) if stalls else paced

    # ---- the window ----

    @property
    def _allowed(self) -> float:
        return min(self.window, self.limit)

    @property
    def _used_up(self) -> bool:
        return self.sent >= self._allowed - 0.5  # tolerates times in whole nanoseconds

    @property
    def _smooth(self) -> bool:
        return self.window >= self.limit and not self.fresh

    def _after(self, seconds: float) -> float:
        return self.last_ns + math.ceil(min(seconds, 1e6) * NS)

    def _grown(self, sent: float) -> float:
        wanted = PACING_GAIN * self.estimate * (self.rtt_ns / NS) + 3 * self._quantum
        if self.window >= wanted if self._paced else 2 * sent < self.window:
            return self.window
        most = 1.0 if self.bbr else UNPACED_GROWTH
        return min(2 * most * self.limit, self.window + min(sent, self.window))

    @property
    def _timeout_ns(self) -> int:
        return self.rtt_ns + self.waited_ns + RTO_MARGIN_NS + int(self.variation_ns)

    def _calm(self, rounds: int) -> None:
        self.variation_ns *= CALMER**rounds
        if self.variation_ns < 1e6:
            self.variation_ns = 0.0

    def _close_round(self) -> None:
        self.window = self._grown(self.sent)
        self._calm(1)
        self.sent, self.fresh = 0.0, False

    # ---- bbr's pacing ----

    @property
    def _paced(self) -> bool:
        return self.bbr and self.full_rounds < FULL_ROUNDS

    @property
    def _pace(self) -> float:
        if not self._paced:
            return math.inf
        return PACING_GAIN * max(self.estimate, self.floor / (self.rtt_ns / NS))

    @property
    def _quantum(self) -> float:
        return max(QUANTUM_SHARE * self.floor, QUANTUM_S * self._pace)

    @property
    def _free(self) -> bool:
        return self.ahead > 0.5 and self._paced

    def _ahead(self, sent: float, now: int) -> float:
        if not self._paced:
            return 0.0
        left = self.ahead + self._pace * ((now - self.last_ns) / NS) - sent
        return min(max(left, 0.0), max(self.ahead, self._quantum))

    def _learn_rounds(self, sent: float, rounds: int) -> None:
        """`sent` bytes have left in each of some rounds."""
        spread_ns = self.spread_ns if self._used_up else self.rtt_ns
        rate = self._rate(sent, spread_ns) if rounds == 1 else sent / (self.rtt_ns / NS)
        self.spread_before_ns, self.sent_before = spread_ns, sent
        tells = not self.fifo or (sent > 0.5 and self.round_ns >= self.begun_ns + self.rtt_ns)
        if self.full_rounds < FULL_ROUNDS and sent < self._allowed - 0.5 and tells:
            grows = rate >= FULL_GROWTH * self.estimate
            found = (0 if grows else self.full_rounds + 1) + rounds - 1
            self.full_rounds = min(found, FULL_ROUNDS)
        self._learn(rate)

    def _rate(self, sent: float, spread_ns: int) -> float:
        later_ns = spread_ns - self.spread_before_ns
        if later_ns < 0:
            sent -= self.sent_before * later_ns / self.spread_before_ns
        return sent / ((self.rtt_ns + max(later_ns, 0)) / NS)

    def _learn(self, rate: float) -> None:
        if rate > NEWS * self.estimate:
            self.estimate = rate
