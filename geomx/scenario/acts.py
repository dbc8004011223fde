"""The acts of a scenario, in the order of time."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from geomx.cluster import Cluster
from geomx.errors import ConfigError, GeomxError, near
from geomx.scenario.events import (
    ANY,
    ENDS,
    FIGURES,
    MOST_TIMES,
    PLACES,
    TIMES,
    ScenarioEvent,
    nodes_of,
)

NS = 1_000_000_000
BY_HAND = -1
"""Takes the place of the joining event's number for nodes that no event lets join."""


@dataclass(frozen=True, order=True)
class Act:
    """The beginning or the end of an event.

    Attributes:
        at_ns: Time, in nanoseconds since the start of the run.
        event: Number of the event in its scenario.
        what: The event's kind; for its end, ``heal`` after ``cut``, ``resume`` after ``pause``,
            ``restart`` after ``kill``, ``usual`` after ``slow``, ``quiet`` after ``traffic``.
        one: Ids of nodes; empty for changes of edges, and traffic.
        other: Ids of the nodes at the other end of links; empty for events of nodes.
        for_ns: Duration in nanoseconds; 0: instantaneous.
    """

    at_ns: int
    event: int
    what: str
    one: frozenset[int]
    other: frozenset[int] = frozenset()
    for_ns: int = 0

    def peers_of(self, node: int) -> frozenset[int]:
        """Return the ids of nodes whose links with `node` are affected."""
        return self.other if node in self.one else self.one if node in self.other else frozenset()


class Scenario:
    """The acts of a scenario.

    Args:
        events: The events, from `read_scenario`.
        cluster: The nodes.
        seed: Seed of random times and nodes; equal seeds give equal acts, in every process.
        absent: Workers and parties that are absent at the start: the option ``faults.absent``.
            Those that no event lets join may join by hand.
    """

    def __init__(
        self,
        events: Sequence[ScenarioEvent],
        cluster: Cluster,
        seed: int,
        absent: Sequence[str] = (),
    ) -> None:
        self._events = tuple(events)
        self._absent = tuple(absent)
        self._cluster = cluster
        self._seed = seed

    def __bool__(self) -> bool:
        """Whether the scenario has any event."""
        return bool(self._events)

    @property
    def late(self) -> dict[int, int]:
        """The nodes that join later: the number of the joining event or `BY_HAND`, by node id.

        An event takes workers of its party that no earlier event of the list has taken: at first
        absent ones, then others, and of both the last ones first.

        Raises:
            ConfigError: A node would join twice, does not exist, or is the first worker, which
                supplies the initial values.
        """
        late = self._away()
        for number, event in enumerate(self._events):
            if event.join is None:
                continue
            party = next(p for p in self._cluster.parties if p.name in event.targets)
            left = [node.id for node in party.workers if late.get(node.id, BY_HAND) == BY_HAND]
            left.sort(key=late.__contains__)  # the absent ones come last
            joining = left[len(left) - event.join["workers"] :]
            key = f"scenario[{number}].join"
            if event.join["workers"] > len(left):
                raise ConfigError(key, event.join, f"only {len(left)} more can join")
            if self._cluster.workers[0].id in joining:
                remedy = "the first worker of all supplies the initial values and must be present"
                raise ConfigError(key, event.join, remedy)
            late |= dict.fromkeys(joining, number)
            if all(node.id in late for node in party.workers):
                joins = {late[node.id] for node in party.workers} - {BY_HAND}
                late[party.server.id] = self._first(joins)
        return late

    def _first(self, joins: Collection[int]) -> int:
        """Return the event with which a party begins, of those with which its workers join."""
        events = {number: self._events[number] for number in joins}
        if len({event.at_s is None for event in events.values()}) > 1:
            remedy = "all workers of a party must join at_s, or all at_iteration"
            raise ConfigError(f"scenario[{max(joins)}].join", events[max(joins)].join, remedy)
        return min(events, key=lambda n: events[n].at_s or events[n].at_iteration or 0.0)

    @property
    def by_hand(self) -> tuple[str, ...]:
        """The names of the nodes that are absent at the start and that no event lets join."""
        nodes = self._cluster.nodes
        return tuple(nodes[node].name for node, by in self.late.items() if by == BY_HAND)

    def _away(self) -> dict[int, int]:
        if not self._absent:
            return {}
        parties = {party.name: party for party in self._cluster.parties}
        workers = {node.name: node for node in self._cluster.workers}
        ids: set[int] = set()
        for name in self._absent:
            if name not in parties and name not in workers:
                remedy = f"there is no such worker or party; {near(name, [*parties, *workers])}"
                raise ConfigError("faults.absent", name, remedy)
            joining = parties[name].workers if name in parties else (workers[name],)
            if self._cluster.workers[0] in joining:
                remedy = "the first worker of all supplies the initial values and must be present"
                raise ConfigError("faults.absent", name, remedy)
            ids |= {node.id for node in joining}
        for party in parties.values():
            if party.workers and all(node.id in ids for node in party.workers):
                ids.add(party.server.id)
        return dict.fromkeys(sorted(ids), BY_HAND)

    def check(self) -> None:
        """Check that every member joins at most once.

        Raises:
            ConfigError: See `late`.
        """
        _ = self.late

    def acts(self) -> Iterator[Act]:
        """Yield all acts in the order of time; infinitely many if an event repeats.

        Where one event slows a node until another one begins to, the first ends first: only events
        that overlap multiply.

        Those of events with ``at_iteration`` are not among them; see `act`.
        """
        begins = [self._begins(number, event) for number, event in self._numbered]
        ends = [self._ends(number, each) for number, each in self._numbered if each.lasts_s]
        return heapq.merge(*begins, *ends, key=lambda act: (act.at_ns, act.what != "usual"))

    @property
    def dated(self) -> int:
        """The number of the acts of `acts` that do not repeat."""
        once = [(number, event) for number, event in self._numbered if event.every_s is None]
        acts = ((*self._begins(*each), *self._ends(*each)) for each in once)
        return sum(map(len, acts))

    @property
    def by_iteration(self) -> dict[int, int]:
        """The iterations at which events begin, by the number of the event."""
        return {n: e.at_iteration for n, e in self._numbered if e.at_iteration is not None}

    def worker_of(self, number: int) -> int | None:
        """Return the worker to which an event at an iteration happens; None: it is no worker."""
        event, workers = self._events[number], {node.id for node in self._cluster.workers}
        act = self.act(number, 0)
        alone = event.join is None and not act.other and act.one <= workers
        return min(act.one, default=None) if alone else None

    def act(self, number: int, at_ns: int) -> Act:
        """Return the act with which an event with ``at_iteration`` begins.

        Args:
            number: Number of the event.
            at_ns: When the iteration begins, in nanoseconds since the start of the run.
        """
        return self._act(number, at_ns, self._draws(number))

    def end(self, act: Act) -> Act | None:
        """Return the act with which an event ends that begins with `act`; None: with none."""
        if not act.for_ns:
            return None
        return Act(act.at_ns + act.for_ns, act.event, ENDS[act.what], act.one, act.other)

    def has(self, *kinds: str) -> bool:
        """Return whether there is an event of one of these kinds."""
        return any(event.what in kinds for event in self._events)

    def event(self, act: Act) -> ScenarioEvent:
        """Return the event of an act."""
        return self._events[act.event]

    def joins(self) -> list[Act]:
        """Return the acts of members that join at a time, in its order."""
        joins = [
            act
            for number, event in enumerate(self._events)
            if event.join is not None
            for act in self._begins(number, event)
        ]
        return sorted(joins)

    def row(self, act: Act) -> dict[str, Any] | None:
        """Return the row of an act in ``faults`` of ``summary.json``.

        Returns:
            Its time, its kind, the names of its ``link`` or ``node``, and its duration; None for
            the end of an event.
        """
        if act.what in ENDS.values():
            return None
        event = self._events[act.event]
        row: dict[str, Any] = {"time_s": act.at_ns / NS, "what": act.what}
        if event.at_iteration is not None:
            row["at_iteration"] = event.at_iteration
        if event.join is not None:
            return row | event.join
        if act.other or event.what in PLACES:
            row["link"] = list(event.targets)
        else:
            row["node"] = self._cluster.nodes[min(act.one)].name
        if event.for_s is not None:
            row["for_s"] = event.for_s
        for name in FIGURES.get(event.what, ()):
            if (figure := getattr(event, name)) is not None:
                row[name] = figure
        if event.restart_s is not None:
            row["restart_s"] = event.restart_s
        return row

    def rows(self, until_s: float) -> list[dict[str, Any]]:
        """Return the rows of all acts of `acts` up to `until_s` seconds."""
        due = takewhile(lambda act: act.at_ns <= until_s * NS, self.acts())
        return [row for act in due if (row := self.row(act)) is not None]

    def unreached(self, end_s: float, waiting: Collection[int]) -> list[int]:
        """Return the numbers of the events that a run did not reach.

        Args:
            end_s: Its end, in seconds since its start.
            waiting: The events with ``at_iteration`` that had not begun by then.
        """
        first = {number: next(self._begins(number, e), None) for number, e in self._numbered}
        late = {number for number, act in first.items() if act and act.at_ns > end_s * NS}
        return sorted(late | set(waiting))

    def named(self, number: int) -> str:
        """Return an event as warnings show it, ``scenario[0] (at_s=100)``."""
        event = self._events[number]
        key = next(name for name in TIMES if getattr(event, name) is not None)
        return f"scenario[{number}] ({key}={getattr(event, key):.12g})"

    @property
    def _numbered(self) -> list[tuple[int, ScenarioEvent]]:
        return list(enumerate(self._events))

    def _draws(self, number: int) -> random.Random:
        return random.Random(f"{self._seed}/{number}")

    def _begins(self, number: int, event: ScenarioEvent) -> Iterator[Act]:
        draws = self._draws(number)
        for at_ns in _times(event, draws):
            yield self._act(number, at_ns, draws)

    def _ends(self, number: int, event: ScenarioEvent) -> Iterator[Act]:
        for act in self._begins(number, event):
            if (end := self.end(act)) is not None:
                yield end

    def _act(self, number: int, at_ns: int, draws: random.Random) -> Act:
        event = self._events[number]
        lasts_ns = round((event.lasts_s or 0.0) * NS)
        if event.join is not None:
            joining = frozenset(node for node, by in self.late.items() if by == number)
            return Act(at_ns, number, event.what, joining)
        if event.what in PLACES:
            return Act(at_ns, number, event.what, frozenset(), for_ns=lasts_ns)
        one, *other = (self._nodes(name, draws) for name in event.targets)
        return Act(at_ns, number, event.what, one, frozenset().union(*other), lasts_ns)

    def _nodes(self, name: str, draws: random.Random) -> frozenset[int]:
        if not name.startswith(ANY):
            return nodes_of(name, self._cluster)
        role = name.removeprefix(ANY)
        return frozenset([draws.choice([n.id for n in self._cluster.nodes if n.role == role])])


class NodeActs:
    """A node's acts of some kinds, as they come.

    Acts are drawn no further than a time: the next one of this node may never come while others
    repeat.

    Args:
        scenario: The scenario.
        kinds: Of acts on nodes.
        node: Id of the node.
    """

    def __init__(self, scenario: Scenario, kinds: Collection[str], node: int) -> None:
        self._kinds, self._node = kinds, node
        self._acts = scenario.acts()
        self._next = next(self._acts, None)

    def until(self, time_ns: int) -> Iterator[Act]:
        """Yield those up to a time, in order, each once.

        Args:
            time_ns: Nanoseconds since the start of the run.
        """
        while self._next is not None and self._next.at_ns <= time_ns:
            act, self._next = self._next, next(self._acts, None)
            if act.what in self._kinds and self._node in act.one:
                yield act


def check_slow(node: str, times: Iterable[float]) -> None:
    """Check how many times as long a node takes while some events ``slow`` overlap.

    Args:
        node: Its name.
        times: Those of the events.

    Raises:
        GeomxError: The product is no multiple that one event could have.
    """
    product = math.prod(times)
    if not 0 < product <= MOST_TIMES:
        raise GeomxError(
            f"{node} would take {product:g} times as long: overlapping events `slow` multiply, and "
            f"may come to more than 0 and at most {MOST_TIMES}; let fewer of them overlap"
        )


def _times(event: ScenarioEvent, draws: random.Random) -> Iterator[int]:
    if event.every_s is None:
        if event.at_s is not None:
            yield round(event.at_s * NS)
        return
    at_ns = 0
    while True:
        mean_s = event.every_s
        apart_s = draws.expovariate(1 / mean_s) if event.random else mean_s
        at_ns += max(1, round(apart_s * NS))
        yield at_ns
