"""The timeline of a run, kept in bounded memory and written for Perfetto and chrome://tracing.

A party is a process of the trace, a node a thread in it. Perfetto draws the spans of a thread only
if they nest, but a node sends while it computes: sends get a thread of their own below the node's,
and other overlapping spans get further ones.

A run may have more spans than a page or a browser can hold. Half of the limit is used for the
beginning of the run, the other half for its end; spans in between are counted but dropped.
"""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from geomx.results.files import damaged, plain, read_json, replacing

MAX_SPANS = 200_000
_WAN_PROCESS = "WAN links"
_LANE = " · "
"""Separator of a node's name and its lane in the names of threads."""


class Span(NamedTuple):
    """An activity of a node. Times in seconds since the start of the run."""

    node: str
    party: str
    name: str
    category: str
    start_s: float
    duration_s: float
    args: dict[str, Any]

    @property
    def end_s(self) -> float:
        """Its end."""
        return self.start_s + self.duration_s

    @property
    def receiver(self) -> str:
        """The node to which a message is sent, of spans of the category ``send``."""
        return self.name.partition(" to ")[2]


class Counter(NamedTuple):
    """A value that holds from `time_s` until the next of the same name."""

    name: str
    time_s: float
    value: float


class Timeline:
    """Spans and counters of one run, at most `max_spans` of each.

    Args:
        max_spans: Limit on the number of spans; 0 keeps none.
    """

    def __init__(self, max_spans: int = MAX_SPANS) -> None:
        self._early_limit = max_spans - max_spans // 2
        self._early: list[Span] = []
        self._late: deque[Span] = deque(maxlen=max_spans // 2)
        self._counters: deque[Counter] = deque(maxlen=max_spans)
        self.seen = 0
        self.gaps: list[tuple[float, float | None]] = []
        self._gap: tuple[float, float] | None = None

    def add(self, span: Span) -> None:
        """Add a span, dropping one from the middle of the run if the limit is reached."""
        self.seen += 1
        if len(self._early) < self._early_limit:
            self._early.append(span)
        else:
            if len(self._late) == self._late.maxlen:
                lost = self._late[0] if self._late else span
                start_s, end_s = self._gap or (lost.start_s, lost.end_s)
                self._gap = min(start_s, lost.start_s), max(end_s, lost.end_s)
            self._late.append(span)

    def lost(self, count: int, start_s: float, end_s: float | None) -> None:
        """Record that spans were dropped elsewhere.

        Args:
            count: Number of spans.
            start_s: Start of the interval in which they ended, seconds.
            end_s: Its end; None: the end of the run.
        """
        self.seen += count
        self.gaps.append((start_s, end_s))

    def count(self, counter: Counter) -> None:
        """Add a counter's new value, dropping the oldest value if the limit is reached."""
        self._counters.append(counter)

    @property
    def all_gaps(self) -> list[tuple[float, float | None]]:
        """Intervals in which spans were dropped, in seconds; None: until the end of the run."""
        return [*self.gaps, *([self._gap] if self._gap else [])]

    @property
    def dropped(self) -> int:
        """Number of dropped spans."""
        return self.seen - len(self._early) - len(self._late)

    @property
    def spans(self) -> list[Span]:
        """The kept spans, by start; of equal starts the longer first, so that nested spans nest."""
        kept = (*self._early, *self._late)
        return sorted(kept, key=lambda span: (span.start_s, -span.duration_s))

    def write(self, path: Path, order: Sequence[str] = (), title: str = "geomx") -> None:
        """Write ``trace.json``, one event per line.

        Args:
            path: The file.
            order: Preferred order of nodes; others follow in the order of their appearance.
            title: Stored in the metadata, to distinguish traces of several runs.
        """
        about = {"title": title, "dropped_spans": self.dropped, "gaps_s": self.all_gaps}
        _write(path, about, self._events(order))

    def _events(self, order: Sequence[str]) -> Iterator[str]:
        spans = self.spans
        party_of = {span.node: span.party for span in spans}
        position = {name: index for index, name in enumerate(order)}
        nodes = sorted(party_of, key=lambda node: position.get(node, len(position)))
        pids = {party: pid for pid, party in enumerate(dict.fromkeys(map(party_of.get, nodes)), 1)}
        for party, pid in pids.items():
            yield _metadata("process_name", pid, 0, name=party)
            yield _metadata("process_sort_index", pid, 0, sort_index=pid)
        lanes = _Lanes(spans)
        tids: dict[tuple[str, str, int], int] = {}
        for node in nodes:
            for group, lane in lanes.of(node):
                tid = tids[node, group, lane] = len(tids) + 1
                pid = pids[party_of[node]]
                which = " ".join(filter(None, (group, str(lane + 1) if lane else "")))
                name = f"{node}{_LANE}{which}" if which else node
                yield _metadata("thread_name", pid, tid, name=name)
                yield _metadata("thread_sort_index", pid, tid, sort_index=tid)
        heads: dict[tuple[str, str, str, str, int], str] = {}  # common prefixes of events
        for span, (group, lane) in zip(spans, lanes.places, strict=True):
            kind = (span.name, span.category, span.node, group, lane)
            head = heads.get(kind)
            if head is None:
                ids = {"pid": pids[span.party], "tid": tids[span.node, group, lane]}
                event = {"ph": "X", "name": span.name, "cat": span.category, **ids}
                head = heads[kind] = _json(event)[:-1]
            start, duration = _microseconds(span.start_s), _microseconds(span.duration_s)
            yield f'{head}, "ts": {start!r}, "dur": {duration!r}, "args": {_arguments(span.args)}}}'
        if self._counters:
            pid = len(pids) + 1
            yield _metadata("process_name", pid, 0, name=_WAN_PROCESS)
            yield _metadata("process_sort_index", pid, 0, sort_index=pid)
            for name, time_s, value in sorted(self._counters, key=lambda item: item.time_s):
                ts = _microseconds(time_s)
                args = {"Mbit/s": plain(float(value))}
                yield _json({"ph": "C", "name": name, "pid": pid, "ts": ts, "args": args})


def read(path: Path) -> Timeline:
    """Read the spans of a file of `Timeline.write`, without its counters.

    Raises:
        GeomxError: It is not such a file.
        OSError: It cannot be read.
    """
    content = read_json(path)
    try:
        return _timeline(content)
    except (KeyError, TypeError, ValueError) as error:
        raise damaged(path, f"it holds no timeline ({error!r})") from error


def _timeline(content: Mapping[str, Any]) -> Timeline:
    names: dict[str, dict[int, str]] = {"process_name": {}, "thread_name": {}}
    for event in content["traceEvents"]:
        if event["ph"] == "M" and event["name"] in names:
            of_what = event["pid" if event["name"] == "process_name" else "tid"]
            names[event["name"]][of_what] = event["args"]["name"]
    party = names["process_name"]
    node = {tid: name.partition(_LANE)[0] for tid, name in names["thread_name"].items()}
    spans = [
        Span(
            node[event["tid"]], party[event["pid"]], event["name"], event["cat"],
            event["ts"] / 1e6, event["dur"] / 1e6, event["args"],
        )
        for event in content["traceEvents"]
        if event["ph"] == "X"
    ]  # fmt: skip
    timeline = Timeline(2 * len(spans))
    for span in spans:
        timeline.add(span)
    about = content["otherData"]
    timeline.seen += about["dropped_spans"]
    timeline.gaps = [(start_s, end_s) for start_s, end_s in about["gaps_s"]]
    return timeline


def merge(traces: Mapping[str, Path], path: Path) -> None:
    """Merge the traces of several runs, all starting at time 0.

    Every process keeps its events and gets a new number and a name with the run's name in front:
    ``sim · beijing`` is above ``live · beijing``.

    Args:
        traces: Files of `Timeline.write`, by name of the run.
        path: The merged file.
    """
    contents = {name: json.loads(one.read_text(encoding="utf-8")) for name, one in traces.items()}
    about = {name: content["otherData"] for name, content in contents.items()}

    def events() -> Iterator[dict[str, Any]]:
        for number, (name, content) in enumerate(contents.items()):
            for event in content["traceEvents"]:
                pid = event["pid"]
                event["pid"] = pid * len(contents) + number
                if event["ph"] == "M" and event["name"] == "process_name":
                    event["args"]["name"] = f"{name} · {event['args']['name']}"
                elif event["ph"] == "M" and event["name"] == "process_sort_index":
                    event["args"]["sort_index"] = event["pid"]
                yield event

    _write(path, about, map(_json, events()))


def _write(path: Path, about: Mapping[str, Any], events: Iterable[str]) -> None:
    """Write one event per line, so that a trace can be read, cut and compared as text."""
    with replacing(path) as file:
        file.write('{"displayTimeUnit": "ms",\n"otherData": ')
        file.write(json.dumps(about, ensure_ascii=False))
        file.write(',\n"traceEvents": [')
        separator = "\n"
        for event in events:
            file.write(separator)
            file.write(event)
            separator = ",\n"
        file.write("\n]}\n")


class _Lanes:
    """Assigns every span of a node to a lane in which spans overlap only if they nest."""

    def __init__(self, spans: Sequence[Span]) -> None:
        open_ends: dict[tuple[str, str], list[list[float]]] = defaultdict(list)
        self.places: list[tuple[str, int]] = []
        for span in spans:
            group = "send" if span.category == "send" else ""
            lanes = open_ends[span.node, group]
            self.places.append((group, _place(lanes, span)))
        self._used = {key: len(lanes) for key, lanes in open_ends.items()}

    def of(self, node: str) -> list[tuple[str, int]]:
        """Return the lanes of a node, its own activities first."""
        return [
            (group, lane)
            for group in ("", "send")
            for lane in range(self._used.get((node, group), 0))
        ]


def _place(lanes: list[list[float]], span: Span) -> int:
    start = _microseconds(span.start_s)
    end = round(start + _microseconds(span.duration_s), 3)
    for index, stack in enumerate(lanes):
        while stack and stack[-1] <= start:
            stack.pop()
        if not stack or end <= stack[-1]:
            stack.append(end)
            return index
    lanes.append([end])
    return len(lanes) - 1


def _microseconds(seconds: float) -> float:
    return round(seconds * 1e6, 3)


def _json(event: dict[str, Any]) -> str:
    return json.dumps(event, ensure_ascii=False, allow_nan=False)


def _arguments(args: dict[str, Any]) -> str:
    """Return the JSON of `args`; fast for the common case of a few integers."""
    if all(type(value) is int for value in args.values()):
        return "{" + ", ".join(f'"{name}": {value}' for name, value in args.items()) + "}"
    return _json(plain(args))


def _metadata(kind: str, pid: int, tid: int, **args: object) -> str:
    return _json({"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": args})
