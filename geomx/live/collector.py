"""Records a live run from the notes of its nodes, while they are being written."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from geomx.cluster import NodeSpec
from geomx.errors import GeomxError, PluginError, no_initial_value
from geomx.experiment.experiment import Experiment
from geomx.experiment.rounds import close_early, may_lack_some
from geomx.experiment.unreached import warn_of_unreached
from geomx.live.files import Note, Reader, stem
from geomx.live.files import path as file_of
from geomx.live.held_tensors import HeldTensors
from geomx.live.left_early import LeftEarly
from geomx.results.files import read_arrays
from geomx.results.link_traffic import record_traffic
from geomx.results.participation import Fault, Partial, divided
from geomx.results.recorder import Recorder
from geomx.results.results import Results
from geomx.results.scripts import complete
from geomx.results.traffic import EdgeTraffic
from geomx.scenario.acts import NS, Act
from geomx.terminal.progress import Advance
from geomx.tracking.begin import begin

ANSWER_S = 1.0  # for which all workers wait at a time before the run is considered stuck


class Collector:
    """Records a run from the notes of its nodes, while they are being written.

    A node measures times from the moment at which it learned that the run had started. If all nodes
    share a clock, times are converted to seconds since the start at the scheduler. Otherwise, all
    nodes are assumed to have learned of the start at the same moment.

    Args:
        experiment: The experiment.
        directory: Directory of the run.
        recorder: Receives the records.
        one_clock: Whether all nodes share a clock.
        ahead_s: Offset of the clock of the run to the clock of this machine, in seconds.

    Attributes:
        seconds: End of the latest iteration, in seconds since the start.
    """

    def __init__(
        self,
        experiment: Experiment,
        directory: Path,
        recorder: Recorder,
        one_clock: bool = True,
        ahead_s: float = 0.0,
    ) -> None:
        self._one_clock = one_clock
        self._ahead_s = ahead_s
        self._experiment = experiment
        self._directory = directory
        self._recorder = recorder
        nodes = experiment.cluster.nodes  # the scheduler comes first
        self._readers = [(node, Reader(stem(directory, node.name))) for node in nodes]
        self._first = experiment.cluster.workers[0]
        # If parties do not wait for each other, all workers evaluate; the latest evaluation counts.
        self._latest: tuple[NodeSpec, float, Note] | None = None
        self._started_s: float | None = None
        self._late_s: dict[str, float] = {}
        self._computed_s: dict[str, list[float]] = defaultdict(list)  # by worker
        self.seconds = 0.0
        self._shard_rounds = self._with_rounds = 0
        self._waiting: dict[str, str] = {}  # coordinators by the nodes that wait for them
        self._lacking: dict[str, int] = {}  # keys without initial value, by global server
        self._idle: set[str] = set()  # nodes that neither compute nor send
        self._absent = set(experiment.event_schedule.by_hand)  # nodes without any process so far
        self._all_wait_since: float | None = None
        self._ended: set[str] = set()
        self._done: set[str] = set()  # workers that have left
        self._held = HeldTensors()
        self._ends: dict[str, tuple[NodeSpec, Note]] = {}  # of the latest process of each node
        self._recovered: dict[str, list[float]] = defaultdict(list)  # s since the start
        self._begun: dict[int, Act] = {}  # events that have begun at an iteration, by number
        self._by_hand = set(experiment.event_schedule.by_hand)  # nodes that have not joined yet
        some = may_lack_some(experiment.cluster, experiment.selection, experiment.faults)
        self._participation = recorder.continues(experiment.cluster) if some else None
        parts = experiment.cluster, experiment.selection
        planned = experiment.selection.coordinators(experiment.cluster)
        faults = experiment.faults
        self._left = LeftEarly(bool(planned) or close_early(*parts, faults), faults.continues)
        self._told: list[tuple[float, NodeSpec, Note]] = []  # changes of members
        self._names = {key: each.name for key, each in enumerate(experiment.workload.tensors)}
        self._elements = [tensor.elements for tensor in experiment.workload.tensors]

    def begin(self) -> None:
        """Begin the record."""
        begin(self._recorder, self._experiment)

    def collect(self, advance: Advance | None = None) -> None:
        """Record the notes that were written since the last call."""
        for node, reader in self._readers:
            for note in reader.new():
                self._record(node, note, advance)
            if self._started_s is None:
                return
        self._left.tell()

    def check(self, gone: Collection[str] = ()) -> None:
        """Check that not all workers wait for what will not come.

        This is an answer or an order that a coordinator does not give, an initial value, or the
        round of a tensor, or the optimizer, that some worker of a script does not have.

        Args:
            gone: Names of nodes that no process is, or will be.

        Raises:
            PluginError: All wait for a coordinator, each longer than ``runtime.failure_timeout_s``.
            GeomxError: All wait that long, and the first worker gave not all initial values, or
                some worker has a tensor, or the first worker has no optimizer, that another has.
        """
        if (stuck := self._stuck(gone)) is None:
            self._all_wait_since = None
            return
        self._all_wait_since = self._all_wait_since or time.monotonic()
        if time.monotonic() - self._all_wait_since >= ANSWER_S:
            raise stuck

    def _stuck(self, gone: Collection[str]) -> GeomxError | None:
        """Return the error that all workers wait for what will not come; None: they do not."""
        away = self._ended.union(self._absent, gone)
        left = [node.name for node in self._experiment.cluster.workers if node.name not in away]
        nodes = (node.name for node in self._experiment.cluster.nodes)
        idle = all(name in self._idle or name in away for name in nodes)
        first = self._first.name
        if left and idle and first in away.union(self._done) and self._lacking:
            tensor = self._tensor(min(self._lacking.values()))
            return GeomxError(no_initial_value(first, first in gone, tensor))
        if idle and (differing := self._held.differing(left, first)) is not None:
            return differing
        consult = all(name in self._waiting for name in left)
        if not left or not self._waiting or not (consult or idle):
            return None
        limit_s = self._experiment.runtime.failure_timeout_s
        whom = next(
            self._waiting[name] for name in [*left, *self._waiting] if name in self._waiting
        )
        return PluginError(
            f"{', '.join(left)} waited more than {limit_s:g} s for {whom}, and no worker computes; "
            f"runtime.failure_timeout_s={limit_s:g} is how long all workers may wait"
        )

    def since_start_s(self, monotonic_s: float) -> float:
        """Return the seconds from the start of the run to a time of this machine's clock.

        0 before the start.
        """
        if self._started_s is None:
            return 0.0
        return monotonic_s + self._ahead_s - self._started_s

    def total(self, until_s: float | None = None) -> None:
        """Record the counts of every node, once; `until_s`: when a failure ended the run.

        Those of a resumed node include its predecessor's.
        """
        of = self._experiment
        self._recorder.edges(EdgeTraffic(of.cluster, of.seed, until_s=until_s))
        for node, facts in self._ends.values():
            self._end(node, facts)
        self._ends.clear()

    def record_faults(self, until_s: float, ended: bool = False) -> None:
        """Record all faults and changes of members up to `until_s` seconds after the start.

        Args:
            until_s: Until when, in seconds since the start.
            ended: Whether the run was ended then, by an error or an interruption.
        """
        schedule = self._experiment.event_schedule
        begun = [row for act in self._begun.values() if (row := schedule.row(act)) is not None]
        rows = schedule.rows(until_s) + [row for row in begun if row["time_s"] <= until_s]
        rows.sort(key=lambda row: row["time_s"])
        nodes = self._experiment.cluster.nodes if self._participation else ()
        anew = {node.name for node in nodes if node.role in ("worker", "server")}  # counted there
        kills = [row for row in rows if row["what"] == "kill" and row["node"] not in anew]
        rows += recover(kills, self._recovered)
        told: list[tuple[float, Callable[[], Any]]] = [
            (row["time_s"], partial(self._recorder.fault, row)) for row in rows
        ]
        for time_s, node, note in self._told:
            if ended and time_s > until_s:
                continue  # other nodes that end because the run does
            told.append((time_s, partial(self._member, time_s, node, note)))
        for _, record in sorted(told, key=lambda each: each[0]):
            record()

    def _member(self, time_s: float, node: NodeSpec, note: Note) -> None:
        """Record a change of the members, or a partial round, that `node` has noted."""
        assert self._participation is not None
        kind, names = note["member"], note["names"]
        if kind == "gone" and node.role == "scheduler":
            self._participation.lost(time_s, names[0])
        elif kind == "takes_part":
            if names[0] in self._by_hand:
                self._by_hand.discard(names[0])
                self._recorder.fault({"time_s": time_s, "what": "join", "node": names[0]})
            self._participation.takes_part(time_s, names[0])
        elif kind == "partial":
            key, shard, number, above, workers, late, dropped = note["about"]
            tensor = self._tensor(key)
            absent = tuple(names)
            tardy = tuple(f"{name}:{meant}" for name, meant in late)
            about = (node.name, tensor, shard, number, above, workers, absent)
            row = Partial(time_s, *about, *divided(tardy, dropped))
            self._participation.partial(row)

    def finish(self, wall_seconds: float) -> Results:
        """Close the records of a finished run, and return its results."""
        self.total()
        self.record_faults(self.seconds)
        schedule = self._experiment.event_schedule
        waiting = schedule.by_iteration.keys() - self._begun.keys()
        warn_of_unreached(schedule, self.seconds, waiting)
        if self._latest is not None and self._latest[0] != self._first:
            self._evaluation(*self._latest[1:])
        last = self._first if self._latest is None else self._latest[0]
        parameters = file_of(stem(self._directory, last.name), ".npz")
        if parameters.exists():
            self._recorder.parameters(read_arrays(parameters))
        self.about_script()
        rounds = self._shard_rounds // max(1, self._with_rounds)
        return self._recorder.finish(self.seconds, rounds, wall_seconds)

    def about_script(self) -> None:
        """Record what is known at the end of a script; no effect on another run."""
        header = self._recorder.header
        if "script" in header:
            complete(header, self._elements, self._computed_s.values())

    def _record(self, node: NodeSpec, note: Note, advance: Advance | None) -> None:
        if "started" in note:
            self._absent.discard(node.name)
            self._started_s = note["started"] if self._started_s is None else self._started_s
            late_s = note["started"] - self._started_s if self._one_clock else 0.0
            self._late_s[node.name] = late_s
        elif "recovered" in note:
            self._begins_anew(node)
            if self._started_s is not None:
                self._recovered[node.name].append(note["recovered"] - self._started_s)
        elif "tensors" in note:
            self._declared(note["tensors"])
            self._held.add(node.name, (name for _, name, _, _ in note["tensors"]))
        elif "holds" in note:
            self._held.add(node.name, [note["holds"]])
        elif "sets_optimizer" in note:
            self._held.sets_optimizer(node.name)
        elif "iteration" in note:
            self._left.made(note["iteration"] + 1)
            self._iteration(node, note, advance)
        elif "left" in note:
            self._left.left(node.name, note["left"])
            self._done.add(node.name)
        elif "waits" in note:
            self._waiting.pop(node.name, None)
            if note["waits"]:
                self._waiting[node.name] = note["waits"]
        elif "lacks" in note:
            self._lacking.pop(node.name, None)
            if note["lacks"] >= 0:
                self._lacking[node.name] = note["lacks"]
        elif "idle" in note:
            (self._idle.add if note["idle"] else self._idle.discard)(node.name)
        elif "begins" in note:
            at_s = note["time_s"] + self._late_s.get(node.name, 0.0)
            act = self._experiment.event_schedule.act(note["begins"], round(at_s * NS))
            self._begun[act.event] = act
        elif "killed" in note or "resumes" in note:
            pass  # recorded from the scenario and from `recovered`
        elif "again" in note:
            self._begins_anew(node)
        elif "member" in note:
            self._told.append((note["time_s"] + self._late_s.get(node.name, 0.0), node, note))
        elif "evaluation" in note:
            time_s = note["time_s"] + self._late_s[node.name]
            if node == self._first:
                self._evaluation(time_s, note)
            if self._latest is None or time_s >= self._latest[1]:
                self._latest = node, time_s, note
        else:
            self._ended.add(node.name)
            if self._started_s is not None and "links" in note["end"]:
                self._ends[node.name] = node, note["end"]

    def _begins_anew(self, node: NodeSpec) -> None:
        """Forget the waits of the process before, and its end."""
        self._ended.discard(node.name)
        self._done.discard(node.name)
        self._held.forget(node.name)
        self._idle.discard(node.name)
        self._waiting.pop(node.name, None)
        self._lacking.pop(node.name, None)

    def _tensor(self, key: int) -> str:
        """Return the name of a tensor; a script that failed early may not have told it."""
        return self._names.get(key, f"tensor {key}")

    def _declared(self, tensors: Sequence[Sequence[Any]]) -> None:
        """Take note of a script's tensors, by its keys; another process repeats them."""
        new = [each for each in tensors if each[0] not in self._names]
        self._names |= {key: name for key, name, _, _ in new}
        self._elements += [math.prod(shape) for _, _, shape, _ in new]

    def _evaluation(self, time_s: float, note: Note) -> None:
        self._recorder.evaluation(time_s, note["evaluation"], note["accuracy"], note["loss"])

    def _iteration(self, node: NodeSpec, note: Note, advance: Advance | None) -> None:
        late_s = self._late_s[node.name]
        start_s, end_s = note["start_s"] + late_s, note["end_s"] + late_s
        self._recorder.iteration(
            node.name,
            node.party,
            note["iteration"],
            start_s,
            note["compute_s"],
            max(0.0, end_s - start_s - note["compute_s"]),
            end_s,
            note["loss"],
            self._experiment.workload.batch_size,
        )
        self._computed_s[node.name].append(note["compute_s"])
        self._spans(node, note["spans"])
        self.seconds = max(self.seconds, end_s)
        if advance is not None:
            advance(1, time_s=end_s, loss=note["loss"])

    def _end(self, node: NodeSpec, facts: dict[str, Any]) -> None:
        for link in facts["links"]:
            peer = self._experiment.cluster.node(link["peer"])
            push, pull, control = link["push"], link["pull"], link["control_bytes"]
            record_traffic(self._recorder, node, peer, push, pull, control, link["busy_s"])
        self._spans(node, facts["spans"])
        self._recorder.python(facts["python"])
        self._recorder.servers.add(node.name, facts)
        if self._experiment.runtime.pace:
            self._recorder.pace(facts["paced_pushes"], facts["behind_s"])
        if facts["spans_dropped"]:
            late_s = self._late_s.get(node.name, 0.0)
            kept_s = max((span[2] + span[3] for span in facts["spans"]), default=0.0)
            self._recorder.spans_lost(facts["spans_dropped"], kept_s + late_s)
        if self._participation:
            self._participation.closed(node, facts["node"])
        if node.role == "global_server":
            self._shard_rounds += facts["node"]["rounds"]
            self._with_rounds += facts["node"]["shards"]
            self._recorder.global_server(facts["node"])

    def _spans(self, node: NodeSpec, spans: Sequence[Sequence[Any]]) -> None:
        late_s = self._late_s.get(node.name, 0.0)
        for name, category, start_s, duration_s, about in spans:
            self._recorder.span(
                node.name, node.party, name, category, start_s + late_s, duration_s, **about
            )


def recover(kills: Sequence[Fault], recovered: Mapping[str, Sequence[float]]) -> list[Fault]:
    """Add ``recovered_s`` to the rows of kills.

    Args:
        kills: Rows of the scenario's kills. The kill of a node that is dead has no effect: the one
            that has ended it restarts it.
        recovered: When each node was connected again, in seconds since the start.

    Returns:
        Rows of the nodes that were connected again after something else had killed them.
    """
    events: list[tuple[float, str, Fault | None]]
    events = [(kill["time_s"], kill["node"], kill) for kill in kills]
    events += [(at, name, None) for name, times in recovered.items() for at in times]
    dead: dict[str, Fault] = {}
    others: list[Fault] = []
    for time_s, name, kill in sorted(events, key=lambda event: event[0]):
        if kill is not None:
            kill["recovered_s"] = None
            dead.setdefault(name, kill)
        elif (fatal := dead.pop(name, None)) is not None:
            fatal["recovered_s"] = time_s - fatal["time_s"]
        else:
            others.append({"time_s": time_s, "what": "restart", "node": name})
    return others
