"""The recorder of a run, which writes its files while it happens.

Both modes report to a `Recorder`, so that simulated and live runs have the same files and can be
compared value by value. The names of files, columns and fields are an interface for other tools.
Times are virtual seconds in simulated runs, and seconds of the wall clock since all nodes had
joined in live runs. Apart from `wall_seconds`, nothing depends on the real clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import networkx as nx
from numpy.typing import NDArray

from geomx.cluster import Cluster
from geomx.results import tables
from geomx.results.columns import EDGES, EVALUATIONS, ITERATIONS, LINKS
from geomx.results.files import Row, Table, write_arrays, write_json, write_network, write_text
from geomx.results.follower import Follower
from geomx.results.mean_rounds import Servers
from geomx.results.participation import Participation
from geomx.results.results import UNFINISHED, Results
from geomx.results.rounding import evaluation_row, figure, rounded
from geomx.results.steps import measured
from geomx.results.trace import MAX_SPANS, Counter, Span, Timeline
from geomx.results.traffic import EdgeTraffic

Render = Callable[[Results, Timeline, nx.Graph | None], str]
"""Renders the page of a run."""


class Recorder:
    """Records one run and writes its files.

    Rows of iterations and evaluations are in their files as soon as these methods return. Link
    totals, parameters and network are written when given; summary, trace and page at the end.

    Args:
        directory: Directory of the run; created if necessary.
        header: Values known before the run: the fields of ``summary.json`` up to `iterations`. A
            list of strings under ``words`` is shown as the command that repeats the run.
        max_spans: Limit on the spans kept for the trace (see `geomx.results.trace`).
        render: Renders ``report.html`` from the results, the timeline and the network; None: no
            page.

    Raises:
        OSError: A file cannot be written; names it.
    """

    def __init__(
        self,
        directory: Path,
        header: Mapping[str, Any],
        max_spans: int = MAX_SPANS,
        render: Render | None = None,
    ) -> None:
        self.directory = Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.header = dict(header)
        self._iterations = Table(self.directory / "iterations.csv", ITERATIONS)
        self._evaluations = Table(self.directory / "evaluations.csv", EVALUATIONS)
        self._links = Table(self.directory / "links.csv", LINKS)
        self._edges = Table(self.directory / "edges.csv", EDGES)
        self._edge_traffic: EdgeTraffic | None = None
        self._link_totals: dict[tuple[str, str, str], Row] = {}
        self._bytes = dict.fromkeys(("wan_push", "wan_pull", "lan", "control"), 0)
        self._slices = {"late": 0, "missing": 0}
        self._staleness = {"sum": 0, "max": 0, "updates": 0}
        self._skipped = 0
        self._faults: list[dict[str, Any]] = []
        self.participation: Participation | None = None
        self.servers = Servers()
        self._python: dict[str, tuple[float, ...]] = {}
        self._busiest: dict[str, Any] | None = None
        self._pushes = 0
        self._behind_s = 0.0
        self._timeline = Timeline(max_spans)
        self._graph: nx.Graph | None = None
        self._began = time.perf_counter()
        self._closed = False
        self._render = render
        self._follower: Follower | None = None
        # This summary remains only if the process is killed.
        unfinished = self._summary(None, None, None) | {"aborted": UNFINISHED}
        write_json(self.directory / "summary.json", unfinished)

    def follow(self, follower: Follower) -> None:
        """Pass what is recorded from now on to `follower` as well."""
        self._follower = follower
        self._iterations.added = follower.iteration
        self._evaluations.added = follower.evaluation

    def iteration(
        self,
        worker: str,
        party: str,
        iteration: int,
        start_s: float,
        compute_s: float,
        wait_s: float,
        end_s: float,
        loss: float | None,
        samples: int,
    ) -> None:
        """Record one local step of a worker.

        Args:
            worker: Name of the worker.
            party: Its party.
            iteration: Number of the step, from 0.
            start_s: Start, seconds since the start of the run.
            compute_s: Duration of its computation, seconds.
            wait_s: Duration of its waits, seconds.
            end_s: End, seconds since the start of the run.
            loss: Training loss; None without numerics.
            samples: Samples of the batch.
        """
        values = (
            worker, party, int(iteration), rounded(start_s), rounded(compute_s),
            rounded(wait_s), rounded(end_s), figure(loss), int(samples),
        )  # fmt: skip
        self._iterations.add(dict(zip(ITERATIONS, values, strict=True)))

    def evaluation(
        self, time_s: float, iteration: int, accuracy: float | None, loss: float | None
    ) -> None:
        """Record an evaluation of the global model on held-out data.

        Args:
            time_s: Time of the model's state, seconds since the start of the run.
            iteration: Number of the step, from 0.
            accuracy: 0..1; None: unknown.
            loss: Mean loss; None: unknown.
        """
        self._evaluations.add(evaluation_row(time_s, iteration, accuracy, loss))

    def link(
        self,
        source: str,
        target: str,
        kind: str,
        direction: str,
        bytes: int,
        messages: int,
        busy_s: float,
    ) -> None:
        """Add to the totals of a directed link, for one direction of the protocol.

        Args:
            source: Sending node.
            target: Receiving node.
            kind: ``lan`` or ``wan``.
            direction: ``push``, ``pull`` or ``control``; several calls for one link add up in
                ``links.csv``. Control traffic (joins, initial values) has a column and a sum of its
                own, so that the others are training traffic alone.
            bytes: Bytes on the wire, headers included.
            messages: Number of messages.
            busy_s: Seconds during which the link carried them.
        """
        values = (source, target, kind, 0, 0, 0.0, 0)
        empty = dict(zip(LINKS, values, strict=True))
        row = self._link_totals.setdefault((source, target, kind), empty)
        row["busy_s"] = rounded(row["busy_s"] + busy_s)
        if direction == "control":
            row["control_bytes"] += int(bytes)
            self._bytes["control"] += int(bytes)
            return
        row["bytes"] += int(bytes)
        row["messages"] += int(messages)
        self._bytes["lan" if kind == "lan" else f"wan_{direction}"] += int(bytes)

    def edges(self, traffic: EdgeTraffic) -> None:
        """Set the traffic on the edges of the graph; ``edges.csv`` is written at the end."""
        self._edge_traffic = traffic

    def span(
        self,
        node: str,
        party: str,
        name: str,
        category: str,
        start_s: float,
        duration_s: float,
        **args: Any,
    ) -> None:
        """Record an activity of `node` for the timeline.

        Both modes use the same names: ``forward`` and ``backward`` for compute, ``push to NODE``
        (or another kind of message) with key, shard, round and bytes for send, and the category for
        all others; a wait has the key and the round that ended it.

        Args:
            node: Name of the node.
            party: Its party.
            name: See above.
            category: compute, encode, send, wait, aggregate or update.
            start_s: Start, seconds since the start of the run.
            duration_s: Duration, seconds.
            args: Shown with the span.
        """
        self._timeline.add(Span(node, party, name, category, start_s, duration_s, args))

    def spans_lost(self, count: int, start_s: float, end_s: float | None = None) -> None:
        """Record that spans were dropped before they reached the recorder.

        Args:
            count: Number of spans.
            start_s: Start of the interval in which they ended, seconds since the start of the run.
            end_s: Its end; None: the end of the run.
        """
        self._timeline.lost(count, start_s, end_s)

    def counter(self, name: str, time_s: float, value: float) -> None:
        """Record the load of a WAN link, for the timeline.

        Args:
            name: Name of the link.
            time_s: Time from which it holds, seconds since the start of the run.
            value: Mbit/s.
        """
        self._timeline.count(Counter(name, time_s, value))

    def fault(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Record a row of ``faults`` in the summary; return it, as more may be added to it."""
        self._faults.append(fault := dict(row))
        if self.participation is not None:
            self.participation.fault(fault)
        self._tell(fault)
        return fault

    def _tell(self, fault: Row) -> None:
        if self._follower is not None:
            self._follower.fault(fault)

    def continues(self, cluster: Cluster) -> Participation:
        """Record who of `cluster` takes part, in a run that goes on without lost nodes."""
        path = self.directory / "participation.csv"
        self.participation = Participation(path, self._faults, cluster, self._tell)
        return self.participation

    def parameters(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Write the final parameters of the global model, by name."""
        write_arrays(self.directory / "parameters.npz", arrays)

    def global_server(self, counts: Mapping[str, int]) -> None:
        """Add the counters of a global server (`NodeStats` of the core)."""
        self._slices["late"] += counts["late_slices"]
        self._slices["missing"] += counts["missing_slices"]
        self._staleness["max"] = max(self._staleness["max"], counts["staleness_max"])
        self._staleness["sum"] += counts["staleness_sum"]
        self._staleness["updates"] += counts["rounds"]

    def python(self, costs: Mapping[str, Iterable[float]]) -> None:
        """Add the costs of plugins' Python parts in one process of a live run.

        Args:
            costs: By label, number of calls, seconds in Python, seconds of waiting for the
                interpreter lock.
        """
        for label, figures in costs.items():
            known = self._python.get(label, (0, 0.0, 0.0))
            self._python[label] = tuple(a + b for a, b in zip(known, figures, strict=True))

    def pace(self, pushes: int, behind_s: float) -> None:
        """Add the delays of one process of a live run against the pace of the workload.

        Args:
            pushes: Number of pushes.
            behind_s: Sum of the times by which they were ready too late, seconds.
        """
        self._pushes += pushes
        self._behind_s += behind_s

    def endpoint(self, node: str, share: float) -> None:
        """Set the node of a simulation that spends most time on messages.

        Args:
            node: Name of the node.
            share: That time as a fraction of the run's.
        """
        self._busiest = {"node": node, "share": share}

    def skipped(self, iterations: int) -> None:
        """Add iterations of every worker that were counted as repetitions and not simulated."""
        self._skipped += iterations

    def network(self, graph: nx.Graph) -> None:
        """Write the network as used; it also sets the order in which nodes are listed."""
        self._graph = graph
        write_network(self.directory / "network.json", graph)

    def finish(self, seconds: float, rounds: int, wall_seconds: float) -> Results:
        """Close the run.

        Args:
            seconds: Latest end of any worker's last iteration, seconds since the start of the run.
            rounds: Number of global synchronisations.
            wall_seconds: Real duration of the whole run.

        Returns:
            The results.
        """
        return self._close(self._summary(rounded(seconds), rounds, wall_seconds))

    def abort(self, reason: BaseException | str) -> None:
        """Close a run that failed, keeping its measurements; no effect on a closed run.

        Args:
            reason: What ended it, for ``aborted`` in ``summary.json``.
        """
        if self._closed:
            return
        latest_s = max((row["end_s"] for row in self._iterations.rows), default=None)
        summary = self._summary(latest_s, None, time.perf_counter() - self._began)
        text = "interrupted" if isinstance(reason, KeyboardInterrupt) else str(reason)
        self._close(summary | {"aborted": text or type(reason).__name__})

    def _close(self, summary: dict[str, Any]) -> Results:
        self._closed = True
        workers = (row["worker"] for row in self._iterations.rows)
        order = {name: index for index, name in enumerate(self._order(workers))}
        self._iterations.close(
            sorted(self._iterations.rows, key=lambda row: (row["iteration"], order[row["worker"]]))
        )
        self._evaluations.close()
        self._links.close(self._link_totals.values())
        traffic = self._edge_traffic
        self._edges.close(traffic.rows(self._links.rows, summary["seconds"]) if traffic else ())
        write_json(self.directory / "summary.json", summary)
        self._timeline.write(self.directory / "trace.json", self._order(()), tables.title(summary))
        results = Results(
            self.directory,
            summary,
            self._iterations.rows,
            self._evaluations.rows,
            self._links.rows,
            self._edges.rows,
        )
        if self._render is not None:
            html = self._render(results, self._timeline, self._graph)
            write_text(self.directory / "report.html", html)
        if self._follower is not None:
            self._follower.end(summary)
        return results

    def _order(self, names: Iterable[str]) -> list[str]:
        known = self._graph.nodes if self._graph is not None else ()
        return list(dict.fromkeys((*known, *names)))

    def _summary(
        self, seconds: float | None, rounds: int | None, wall_seconds: float | None
    ) -> dict[str, Any]:
        known = measured(self._iterations.rows, self._evaluations.rows, seconds)
        return {
            **self.header,
            "rounds": rounds,
            "seconds": seconds,
            **known["steps"],
            "bytes": dict(self._bytes),
            **({"participation": self.participation.summary()} if self.participation else {}),
            **({"faults": list(self._faults)} if self._faults else {}),
            "best_effort_slices": dict(self._slices),
            "staleness": {
                "mean": self._staleness["sum"] / max(1, self._staleness["updates"]),
                "max": self._staleness["max"],
            },
            "accuracy": known["accuracy"],
            "loss": known["loss"],
            "skipped_iterations": self._skipped,
            "python": self._python_per_iteration(),
            **self.servers.summary(),
            "busiest_endpoint": self._busiest,
            "behind_pace_s": rounded(self._behind_s / max(1, self._pushes)),
            "wall_seconds": wall_seconds,
        }

    def _python_per_iteration(self) -> dict[str, dict[str, float]]:
        """Return the costs of plugins' Python parts per iteration, for all nodes together."""
        names = ("calls", "seconds", "waited_s")
        steps = 1 + max((row["iteration"] for row in self._iterations.rows), default=0)
        return {
            label: {
                name: rounded(figure / steps) for name, figure in zip(names, figures, strict=True)
            }
            for label, figures in sorted(self._python.items())
        }
