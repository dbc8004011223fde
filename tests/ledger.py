"""A sync policy that records its calls and follows a random schedule.

It is installed like a third-party plugin, as a module with an entry point. The module stores the
calls, because all workers of these tests run in one process.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from tests.strangers import install

LATE_S = 0.3
MODULE = "ledger_stranger"
SOURCE = '''
import json
import threading
from dataclasses import dataclass

import geomx

CALLS = {}  # by the name of a worker, a party or a coordinator's host, in the order of asking
LATE_S = 0.3
LOCK = threading.Lock()


def note(who, *call):
    with LOCK:
        CALLS.setdefault(who, []).append(call)
        CALLS.setdefault("all", []).append((who, *call))


@dataclass(frozen=True)
class Config:
    schedule: str = ""


class Worker(geomx.WorkerSync):
    """Synchronises after as many steps as it was told for each round; done after the last."""

    def __init__(self, name, rounds, coordinator):
        self.name, self.coordinator = name, coordinator
        self.ends = [sum(rounds[: number + 1]) - 1 for number in range(len(rounds))]

    def finished(self, step):
        note(self.name, "finished", step)
        return step == self.ends[-1]

    def after_step(self, step):
        note(self.name, "after_step", step)
        return step in self.ends

    def report(self, step_s):
        note(self.name, "report", step_s)
        return [1.0]

    def reply(self, values):
        note(self.name, "reply", list(values))


class Mind:
    """Tells a worker the number of its round; or all workers, when the first one reports."""

    def __init__(self, host, members, kind):
        self.host, self.members, self.kind = host, members, kind
        self.rounds = dict.fromkeys(members, 0)
        self.told = 0
        self.waiting = []

    def on_report(self, source, values, now_s):
        note(self.host, "on_report", source)
        self.rounds[source] += 1
        number = self.rounds[source]
        if self.kind == "late":
            self.waiting.append((now_s + LATE_S, source, [float(number)]))
            return []
        if self.kind == "prompt":
            return [(source, [float(number)])]
        if number <= self.told:
            return []
        self.told = number
        return [(each, [float(number)]) for each in self.members]

    def next_timeout(self):
        return min((due_s for due_s, *_ in self.waiting), default=None)

    def on_timeout(self, now_s):
        due = [reply for due_s, *reply in self.waiting if due_s <= now_s]
        note(self.host, "on_timeout", len(due))
        self.waiting = [each for each in self.waiting if each[0] > now_s]
        return [tuple(reply) for reply in due]


class Party:
    def __init__(self, name):
        self.name = name

    def complete(self, shard, round_number, last, total):
        note(self.name, "complete", shard, round_number, last)
        return True, total


class Policy(geomx.SyncPolicy):
    def __init__(self, schedule):
        self.schedule = schedule
        self.exchange = schedule["exchange"]

    def worker(self, cluster, worker, steps):
        note(worker.name, "worker", steps)
        rounds = self.schedule["rounds"][cluster.workers.index(worker)]
        parties = [party.name for party in cluster.parties]
        number = parties.index(worker.party) if self.schedule["inside"] else 0
        asks = self.schedule["coordinator"] != "none"
        return Worker(worker.name, rounds, number if asks else None)

    def push_scale(self, cluster, worker):
        note(worker.name, "push_scale")
        return self.schedule["scale"]

    def local_optimizer(self, optimizer):
        return dict(optimizer) if self.exchange == "parameters" else None

    def global_optimizer(self, optimizer, workers):
        return {"name": "sgd", "learning_rate": 0.01}

    def coordinators(self, cluster):
        if self.schedule["coordinator"] == "none":
            return []
        if not self.schedule["inside"]:
            return [self.site(cluster.scheduler, cluster.workers)]
        return [self.site(party.server, party.workers) for party in cluster.parties]

    def site(self, host, members):
        ids = [worker.id for worker in members]
        return geomx.Site(host, Mind(host.name, ids, self.schedule["coordinator"]))

    def party_policy(self, cluster, party):
        return Party(party.name) if self.schedule["parties"] else None


class Ledger:
    """Writes down what it is asked."""

    def __init__(self, config):
        self.schedule = json.loads(config.schedule)

    @geomx.hookimpl
    def geomx_sync_policy(self, cluster):
        return Policy(self.schedule)


@geomx.hookimpl
def geomx_register(register):
    register("sync", "ledger", Config, Ledger)
'''


@dataclass(frozen=True)
class Schedule:
    """A schedule of steps and rounds, and the policy's settings.

    Attributes:
        elements: Number of elements of each layer's only tensor.
        rounds: Number of local steps of each round, by worker.
        exchange: ``gradients`` or ``parameters``.
        scale: Factor on pushed values.
        coordinator: ``none``; ``prompt``; ``early``: replies to all workers at the first report of
            a round; ``late``: replies after `LATE_S`.
        inside: Whether every local server has a coordinator, instead of one on the scheduler.
        parties: Whether local servers have a part of the policy.
        switch: An option that must not affect the calls: pacing, or PyTorch's overlap.
    """

    elements: list[int]
    rounds: list[list[int]]
    exchange: str
    scale: float
    coordinator: str
    inside: bool
    parties: bool
    switch: bool

    @property
    def sync(self) -> tuple[str, dict[str, Any]]:
        """Return the plugin's name and its options."""
        return "ledger", {"schedule": json.dumps(asdict(self))}

    @property
    def steps(self) -> int:
        """The number of the slowest worker's steps, which all workers receive."""
        return min(map(sum, self.rounds))


@st.composite
def schedules(draw: st.DrawFn, workers: int) -> Schedule:
    """Draw a schedule for `workers` that all synchronise equally often."""
    count = draw(st.integers(1, 3))
    rounds = st.lists(st.integers(1, 3), min_size=count, max_size=count)
    return Schedule(
        elements=draw(st.lists(st.integers(1, 40), min_size=1, max_size=4)),
        rounds=draw(st.lists(rounds, min_size=workers, max_size=workers)),
        exchange=draw(st.sampled_from(["gradients", "parameters"])),
        scale=draw(st.sampled_from([1.0, 0.5, 1 / 3])),
        coordinator=draw(st.sampled_from(["none", "prompt", "early"])),
        inside=draw(st.booleans()),
        parties=draw(st.booleans()),
        switch=draw(st.booleans()),
    )


def expected(schedule: Schedule, worker: int) -> list[tuple[Any, ...]]:
    """Return the documented calls of a worker's policy, without times."""
    asked: list[tuple[Any, ...]] = [("worker", schedule.steps), ("push_scale",)]
    rounds, step = schedule.rounds[worker], -1
    for number, local_steps in enumerate(rounds, 1):
        for local_step in range(1, local_steps + 1):
            step += 1
            last = number == len(rounds) and local_step == local_steps
            asked += [("finished", step), *([] if last else [("after_step", step)])]
        if schedule.coordinator != "none":
            asked += [("report",), ("reply", [float(number)])]
    return asked


def completed(schedule: Schedule) -> list[tuple[Any, ...]]:
    """Return the documented calls of a local server's part, by key and round."""
    count = len(schedule.rounds[0])
    return [
        ("complete", (key, 0), number, number == count)
        for key in range(len(schedule.elements))
        for number in range(1, count + 1)
        if schedule.parties
    ]


@contextmanager
def installed(folder: Path) -> Iterator[dict[str, list[tuple[Any, ...]]]]:
    """Install the plugin; yields the record of its calls."""
    with pytest.MonkeyPatch.context() as patch:
        install(folder, MODULE, SOURCE, patch)
        yield importlib.import_module(MODULE).CALLS
