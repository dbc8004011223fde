"""Writes a run as Chakra execution traces: what each node computed, sent and received, and why.

Chakra (MLCommons, https://github.com/mlcommons/chakra, schema 0.0.4) describes a distributed run by
one graph for each of its processors, which simulators such as ASTRA-sim replay over other
networks. Here every node of a run is one: workers, servers and the scheduler. What depends on what
is concluded from the timeline:

* Computing of a worker depends on its computing before, and on all that has arrived since that
  began. It is cut where the worker sends: what is sent depends on the part before.
* What a server computes of a tensor depends on what has arrived of the tensor since it computed the
  same the last time, and on what else it computed of it last.
* What a server sends of a tensor depends likewise on what has arrived of it since it sent the same
  the last time, and on what it has computed of it last.

A message that waited for its link thus depends on the computing up to the moment at which it left.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from geomx.errors import ConfigError
from geomx.explaining.evidence import Evidence, Sent
from geomx.explaining.protobuf import delimited, text, whole, wholes
from geomx.results.files import write_text
from geomx.results.trace import Span

VERSION = "0.0.4"
COMPUTES, SENDS, RECEIVES = 4, 5, 6
"""Types of nodes in the schema: COMP_NODE, COMM_SEND_NODE, COMM_RECV_NODE."""

_ID, _NAME, _TYPE, _CONTROL, _DATA, _START, _DURATION, _ATTRIBUTE = 1, 2, 3, 4, 5, 6, 7, 10
_INT32, _INT64, _UINT64, _BOOL = 7, 9, 13, 27  # kinds of values of an attribute


@dataclass
class Step:
    """A node of a graph: something that a processor does.

    Attributes:
        kind: `COMPUTES`, `SENDS` or `RECEIVES`.
        name: What it is.
        start_s: When it began, in seconds since the start of the run.
        end_s: When it was over.
        key: The tensor; -1 for none.
        after: Numbers of the steps of this processor that must be over before.
        about: Of a message: bytes, source, target and tag.
        number: Its number, from 1.
    """

    kind: int
    name: str
    start_s: float
    end_s: float
    key: int = -1
    after: list[int] = field(default_factory=list)
    about: tuple[int, int, int, int] | None = None
    number: int = 0

    def encoded(self) -> bytes:
        """Return it as a message ``Node``; its times are whole microseconds."""
        start_us, end_us = round(self.start_s * 1e6), round(self.end_s * 1e6)
        fields = [
            whole(_ID, self.number),
            text(_NAME, self.name),
            whole(_TYPE, self.kind),
            wholes(_DATA, sorted(set(self.after))),
            whole(_START, start_us),
            whole(_DURATION, end_us - start_us),
            _attribute("is_cpu_op", _BOOL, 0),
        ]
        if self.about is not None:
            size, source, target, tag = self.about
            fields.append(_attribute("comm_size", _INT64, size))
            for name, number in (("comm_src", source), ("comm_dst", target), ("comm_tag", tag)):
                fields.append(_attribute(name, _INT32, number))
        return b"".join(fields)


def _attribute(name: str, kind: int, value: int) -> bytes:
    return text(_ATTRIBUTE, text(1, name) + whole(kind, value))


def export(directory: Path, folder: Path) -> list[str]:
    """Write the traces of a run: ``geomx.N.et`` for its N-th node, and ``nodes.json``, their names.

    Args:
        directory: Directory of the run.
        folder: Where to write; it is created.

    Returns:
        The names of the nodes, by number.

    Raises:
        ConfigError: The run has no timeline, or an incomplete one.
    """
    run = Evidence(directory)
    if run.timeline.dropped:
        remedy = (
            f"has a timeline without {run.timeline.dropped} of its spans, of which no trace can be "
            "made; run fewer iterations, or with a larger sim.max_spans"
        )
        raise ConfigError("run", directory, remedy)
    acting = {span.node for span in run.timeline.spans} | {each.target for each in run.sent}
    names = [name for name in run.graph.nodes if name in acting]
    steps = _steps(run, names)
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(names):
        metadata = text(1, VERSION) + text(2, text(1, "node") + text(29, name))
        messages = [metadata, *(step.encoded() for step in steps[name])]
        (folder / f"geomx.{number}.et").write_bytes(b"".join(map(delimited, messages)))
    write_text(folder / "nodes.json", json.dumps(names, indent=1) + "\n")
    return names


def _steps(run: Evidence, names: list[str]) -> dict[str, list[Step]]:
    """Return the steps of every node, in the order in which they began, with their numbers."""
    places = {name: number for number, name in enumerate(names)}
    sent: dict[str, list[Sent]] = defaultdict(list)
    found: dict[str, list[Step]] = {name: [] for name in names}
    tags: Counter[tuple[str, str]] = Counter()
    for message in run.sent:
        pair = (message.source, message.target)
        about = (message.bytes, places[pair[0]], places[pair[1]], tags[pair])
        tags[pair] += 1
        name, key = f"{message.kind} {message.key}.{message.shard}", message.key
        found[pair[0]].append(Step(SENDS, name, message.start_s, message.left_s, key, about=about))
        found[pair[1]].append(
            Step(RECEIVES, name, message.start_s, message.arrives_s, key, about=about)
        )
        sent[pair[0]].append(message)
    for span in run.timeline.spans:
        if span.category not in ("send", "wait"):
            found[span.node] += _parts(span, sent[span.node])
    for name, steps in found.items():
        steps.sort(key=lambda step: (_begins(step), step.kind != RECEIVES, step.name))
        for number, step in enumerate(steps, 1):
            step.number = number
        _depend(steps, worker=name in run.speed)
    return found


def _begins(step: Step) -> float:
    """When it counts: a message that arrives counts when it is there."""
    return step.end_s if step.kind == RECEIVES else step.start_s


def _parts(span: Span, sent: list[Sent]) -> Iterator[Step]:
    """Yield the steps of a span of computing, cut where a worker sends."""
    cuts = {span.end_s}
    if span.category == "compute":
        cuts |= {each.start_s for each in sent if span.start_s < each.start_s < span.end_s}
    start_s, key = span.start_s, span.args.get("key", -1)
    for end_s in sorted(cuts):
        yield Step(COMPUTES, span.name, start_s, end_s, key)
        start_s = end_s


def _depend(steps: list[Step], worker: bool) -> None:
    """Set what each step of a node comes after."""
    arrived: dict[int, list[Step]] = defaultdict(list)  # by key; -1: all
    computed: dict[int, list[Step]] = defaultdict(list)  # likewise
    taken: Counter[tuple[object, ...]] = Counter()
    for step in steps:
        key = -1 if worker else step.key
        if step.kind == RECEIVES:
            arrived[key].append(step)
            continue
        # A worker's sends need no arrivals: what was computed before them has taken these.
        if not (worker and step.kind == SENDS and computed[-1]):
            target = step.about[2] if step.about else None
            user = () if worker else (step.kind, step.name, target)
            new = arrived[key][taken[user, key] :]
            taken[user, key] = len(arrived[key])
            step.after += [each.number for each in new]
        before = [each for each in computed[key] if each.end_s <= step.start_s + 1e-7]
        step.after += [before[-1].number] if before else []
        if step.kind == COMPUTES:
            computed[key].append(step)
            computed[key].sort(key=lambda each: each.end_s)
