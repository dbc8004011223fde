"""A run's timeline and network, indexed for the computation of its critical path.

The timeline (``trace.json``) records every message with its kind, key, shard and round, for both
modes alike. Together with the network it gives the arrival time of a message, the edges that it
crossed, and their load in the meantime.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from geomx.errors import ConfigError
from geomx.pages.utilisation import Ways
from geomx.results.files import Row, read_network
from geomx.results.results import Results
from geomx.results.trace import Span, read

LATE_S = 1e-5
"""Tolerance for rounded times."""
LIVE_S = 1e-3
"""The same in live runs: a process may note that a message has left after another has received it,
and that a connection takes more after it could have (by half a millisecond in one of twenty)."""
TOUCH_S = 1e-8
"""A message that starts this soon after the end of another one was waiting for it."""
FULL = 0.5
"""A path with no edge utilised beyond this fraction is not limited by bandwidth."""
ENOUGH = 20
"""Limit on the number of iterations that are examined."""

Edge = tuple[str, str]


class Sent(NamedTuple):
    """One message on one hop. Times in seconds since the start of the run.

    Attributes:
        start_s: Time at which its first byte left.
        left_s: Time at which its last byte had left.
        arrives_s: `left_s` plus the propagation delay.
    """

    kind: str
    source: str
    target: str
    key: int
    shard: int
    round: int
    channel: int
    bytes: int
    start_s: float
    left_s: float
    arrives_s: float


class Evidence:
    """A run, indexed for a walk backwards in time.

    Args:
        directory: Directory of the run.

    Attributes:
        results: Its results.
        graph: Its network.
        party: Party by node.
        speed: Relative speed by worker.
        late_s: Tolerance for the order of what two nodes, or two messages, did.
        kernel: Whether messages crossed the kernel's network stack, which records no arrival times.
        timeline: Its spans.
        sent: Its messages, in the order of their starts.

    Raises:
        ConfigError: It has no timeline.
    """

    def __init__(self, directory: Path) -> None:
        self.results = Results.load(directory)
        try:
            self.timeline = read(directory / "trace.json")
            self.graph: nx.DiGraph = read_network(directory / "network.json")
        except OSError as error:
            aborted = self.results.summary.get("aborted")
            reason = aborted or f"{Path(error.filename or directory).name}: {error.strerror}"
            remedy = f"left no timeline to explain ({reason}); run it again, to its end"
            raise ConfigError("run", directory, remedy) from error
        live = self.results.summary["mode"] == "live"
        self.late_s = LIVE_S if live else LATE_S
        self._touch_s = LIVE_S if live else TOUCH_S
        self.kernel = live and self.results.summary.get("emulate") != "shaper"
        self._routes = Ways(self.graph)
        self.party = {node: str(data.get("party")) for node, data in self.graph.nodes(data=True)}
        self.speed = {
            node: float(data.get("speed", 1.0))
            for node, data in self.graph.nodes(data=True)
            if data.get("kind") == "worker"
        }
        self._own: dict[str, list[Span]] = defaultdict(list)
        self._handling: dict[str, list[Span]] = defaultdict(list)
        self.sent: list[Sent] = []
        for span in self.timeline.spans:
            if span.category == "send":
                self.sent.append(self._sent(span))
            elif span.category in ("compute", "wait"):
                self._own[span.node].append(span)
            else:
                self._handling[span.node].append(span)
        self._handled_s = {  # by node, the last end of its spans up to each of them
            node: list(accumulate((span.end_s for span in spans), max))
            for node, spans in self._handling.items()
        }
        self._links: dict[tuple[str, str, bool], list[Sent]] = defaultdict(list)
        self._arrivals: dict[tuple[object, ...], list[Sent]] = defaultdict(list)
        for message in self.sent:  # in the order of their starts
            self._links[message.source, message.target, message.channel > 0].append(message)
        for message in sorted(self.sent, key=attrgetter("arrives_s")):
            node, kind = message.target, message.kind
            for index in ((kind, message.key, message.shard), (kind, message.key), (kind,), ()):
                self._arrivals[node, *index].append(message)
        self._loads = _loads(self.sent, self._routes)
        self.limit = lru_cache(maxsize=None)(self._limit)

    def _sent(self, span: Span) -> Sent:
        kind, target = span.name.partition(" to ")[0], span.receiver
        about = span.args
        delay_s = sum(
            self.graph.edges[edge].get("delay_ms", 0.0) for edge in self._routes(span.node, target)
        )
        return Sent(
            kind, span.node, target, about.get("key", -1), about.get("shard", 0),
            about.get("round", 0), about.get("channel", 0), about.get("bytes", 0),
            span.start_s, span.end_s, span.end_s + delay_s / 1e3,
        )  # fmt: skip

    # ---- nodes and messages ----

    def own(self, worker: str, before_s: float) -> Span | None:
        """Return the computation or wait of `worker` just before a moment, or None if unknown.

        Args:
            worker: Name of the worker.
            before_s: The moment, seconds since the start of the run.
        """
        spans = self._own[worker]
        place = bisect_left(spans, before_s - TOUCH_S, key=attrgetter("start_s"))
        return spans[place - 1] if place else None

    def handling(self, node: str, start_s: float, end_s: float) -> dict[str, float]:
        """Return the time that `node` spent on sums, updates and codecs in an interval.

        Args:
            node: Name of the node.
            start_s: Start of the interval, seconds since the start of the run.
            end_s: Its end.

        Returns:
            Seconds by kind of work.
        """
        spans = self._handling[node]
        spent: dict[str, float] = defaultdict(float)
        first = bisect_right(self._handled_s.get(node, []), start_s)
        past = bisect_left(spans, end_s, key=attrgetter("start_s"))
        for span in spans[first:past]:
            spent[span.category] += max(0.0, min(span.end_s, end_s) - max(span.start_s, start_s))
        return spent

    def before(self, message: Sent) -> Sent | None:
        """Return the message that `message` had to wait for on its link, or None."""
        lane = self._links[message.source, message.target, message.channel > 0]
        place = bisect_left(lane, message.start_s - TOUCH_S / 2, key=attrgetter("start_s"))
        previous = lane[place - 1] if place else None
        touches = previous is not None and previous.left_s >= message.start_s - self._touch_s
        return previous if touches else None

    def arrived(
        self, node: str, by_s: float, *index: object, most: int | None = None
    ) -> Sent | None:
        """Return the last matching message that reached `node` by a moment, or None.

        Args:
            node: Receiving node.
            by_s: The moment, seconds since the start of the run.
            index: Kind, key and shard, or the first of them.
            most: Limit on its round; None for no limit.
        """
        known = self._arrivals[node, *index]
        place = bisect_right(known, by_s + self.late_s, key=attrgetter("arrives_s"))
        while place and most is not None and known[place - 1].round > most:
            place -= 1
        return known[place - 1] if place else None

    # ---- the network ----

    def _limit(self, source: str, target: str, start_s: float, end_s: float) -> Edge | None:
        """Return the most utilised edge of a path in an interval, or None if none was limiting."""
        best, most = None, FULL
        changing = None
        for edge in self._routes(source, target):
            data = self.graph.edges[edge]
            mbps = data.get("bandwidth_mbps")
            if not mbps:
                continue
            if {"trace", "redraw", "outages"} & data.keys():
                changing = edge
            times, total = self._loads[edge]
            crossed = np.diff(np.interp([start_s, end_s], times, total))[0]
            used = crossed * 8e-6 / (mbps * max(end_s - start_s, 1e-9))
            if used > most:
                best, most = edge, used
        return best or changing

    def crossed(self, kind: str) -> list[Edge]:
        """Return the edges that messages crossed, in the order of the network.

        Args:
            kind: Kind of the messages.
        """
        pairs = {
            (source, target)
            for (source, target, _), messages in self._links.items()
            if any(message.kind == kind for message in messages)
        }
        found = {edge for pair in pairs for edge in self._routes(*pair)}
        return [edge for edge in self.graph.edges if edge in found]

    # ---- iterations ----

    def stretch(self) -> list[Row]:
        """Return consecutive iterations of the slowest worker that are complete in the timeline.

        The first and the last iteration are omitted if there are others: nothing is under way when
        the first begins, and the last waits for everything.

        Returns:
            Rows of ``iterations.csv``, at most `ENOUGH`.
        """
        rows: dict[str, list[Row]] = defaultdict(list)
        for row in self.results.iterations:
            rows[row["worker"]].append(row)
        if not rows:
            return []
        gaps = [
            (row["start_s"], row["end_s"])
            for one in rows.values()
            for row in one
            if not self._whole(row)
        ]
        gaps += [(start, math.inf if end is None else end) for start, end in self.timeline.gaps]

        def mean_s(worker: str) -> float:
            spent_s: float = rows[worker][-1]["end_s"] - rows[worker][0]["start_s"]
            return spent_s / len(rows[worker])

        mine = rows[max(rows, key=lambda worker: round(mean_s(worker), 6))]
        stretches = _runs(mine, gaps)
        if len(stretches) == 0:
            return []
        inner = [[r for r in s if r is not mine[0] and r is not mine[-1]] for s in stretches]
        chosen = max((s for s in inner if s), key=len, default=None) or max(stretches, key=len)
        return chosen[-ENOUGH:]

    def _whole(self, row: Row) -> bool:
        """Return whether the timeline contains all that a worker did in an iteration."""
        spans = self._own[row["worker"]]
        first = bisect_left(spans, row["start_s"] - TOUCH_S, key=attrgetter("start_s"))
        past = bisect_left(spans, row["end_s"] - TOUCH_S, key=attrgetter("start_s"))
        known = sum(span.duration_s for span in spans[first:past])
        lasted_s: float = row["end_s"] - row["start_s"]
        return known >= 0.99 * lasted_s - LATE_S


def _runs(rows: Iterable[Row], gaps: Sequence[tuple[float, float]]) -> list[list[Row]]:
    """Return `rows` that lie outside all `gaps`, as lists of consecutive rows."""
    pieces: list[list[Row]] = [[]]
    for row in rows:
        if any(start < row["end_s"] and end > row["start_s"] for start, end in gaps):
            pieces.append([])
        else:
            pieces[-1].append(row)
    return [piece for piece in pieces if piece]


def _loads(sent: Iterable[Sent], routes: Ways) -> Mapping[Edge, tuple[NDArray[Any], NDArray[Any]]]:
    """Return, for each edge, moments and the bytes transferred by then, linear in between."""
    changes: dict[Edge, list[tuple[float, float]]] = defaultdict(list)
    for message in sent:
        took_s = max(message.left_s - message.start_s, 1e-9)
        rate = message.bytes / took_s
        for edge in routes(message.source, message.target):
            changes[edge] += [(message.start_s, rate), (message.start_s + took_s, -rate)]
    loads = {}
    for edge, each in changes.items():
        times, rates = np.array(sorted(each)).T
        crossed = np.cumsum(rates)[:-1] * np.diff(times)
        loads[edge] = times, np.concatenate([[0.0], np.cumsum(crossed)])
    return loads
