"""The notes of a node: measurements for the launcher of its run, as one JSON object per line.

Every line is written to the operating system at once, so a process that is killed loses none. Every
node begins with a ``started`` line and ends with an ``end`` line; workers write ``iteration`` and
``evaluation`` lines in between.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from geomx import _core
from geomx.live.files import Note, Reader, members_noted, path
from geomx.metrics.families import NodeMetrics
from geomx.results.files import naming, sync_folder, write_arrays

Span = tuple[str, str, float, float, dict[str, int]]
"""(name, category, start in seconds since the start of the run, duration in seconds, arguments)"""

Declared = tuple[int, str, Sequence[int], Sequence[Sequence[int]]]
"""A tensor: (key, name, shape, shards), each shard (offset, elements, global server, priority)"""

CLOSING_S = 3.0
"""How long the kernel may take to close the files of a process that was killed."""


def opened(path: Path) -> _core.Journal:
    """Open a journal; a process that was just killed may have it open for another moment.

    Raises:
        RuntimeError: It cannot be had, is in use, or is damaged.
    """
    deadline_s = time.monotonic() + CLOSING_S
    while True:
        try:
            return _core.Journal(str(path))
        except RuntimeError as error:
            if "is in use" not in str(error) or time.monotonic() > deadline_s:
                raise
        time.sleep(0.05)


class Notes:
    """Writes the notes of a node. Errors of writing raise an `OSError` that names the file.

    Args:
        stem: Path of the node's files without suffix.
        resumed: Whether an earlier process of this node has written notes, of which the last line
            may be incomplete.

    Attributes:
        begun: Numbers of the events of the scenario that an earlier process has noted, also those
            that have killed one.
        metrics: Told of steps and long waits; None: there are none.
    """

    def __init__(self, stem: Path, resumed: bool = False) -> None:
        self._stem, self._path = stem, path(stem, ".jsonl")
        self._noted: set[tuple[str, int]] = set()  # a worker may repeat its last steps
        self.begun: frozenset[int] = frozenset()
        self._members: set[str] = set()  # changes of members, which a repeated journal tells again
        if resumed and self._path.exists():
            written = self._path.read_bytes()
            os.truncate(self._path, written.rfind(b"\n") + 1)
            self._noted = {
                (kind, note[kind])
                for note in Reader(stem).new()
                for kind in ("iteration", "evaluation")
                if kind in note
            }
            self._members = members_noted(Reader(stem).new())
            about = ("begins", "event")
            self.begun = frozenset(n[key] for n in Reader(stem).new() for key in about if key in n)
        if not resumed:
            self._path.write_bytes(b"")
            path(stem, ".npz").unlink(missing_ok=True)  # parameters of an earlier run
        # Another process may write, too: one that was declared lost, and its successor.
        self._file = self._path.open("a", encoding="utf-8", buffering=1)
        self._lock = threading.Lock()
        self._ended = False
        self._synced = False
        self.metrics: NodeMetrics | None = None

    def sync(self) -> None:
        """Force all lines to the disk from now on (``faults.log_sync``)."""
        with naming(self._path):
            os.fsync(self._file.fileno())
            sync_folder(self._path.parent)
        self._synced = True

    def started(self, monotonic_s: float) -> None:
        """Note when the run started, in seconds of the clock of the run."""
        self._write({"started": monotonic_s})

    def iteration(
        self,
        step: int,
        start_s: float,
        compute_s: float,
        end_s: float,
        *,
        loss: float | None,
        spans: Sequence[Span],
    ) -> None:
        """Note a finished local step, with times in seconds since the start of the run.

        Has no effect if the step was noted before; the same holds for evaluations.
        """
        if ("iteration", step) in self._noted:
            return
        if self.metrics is not None:
            self.metrics.steps.add(compute_s, max(0.0, end_s - start_s - compute_s), loss)
        times = {"start_s": start_s, "compute_s": compute_s, "end_s": end_s}
        self._write({"iteration": step, **times, "loss": loss, "spans": list(spans)})

    def evaluation(
        self, time_s: float, step: int, accuracy: float | None, loss: float | None
    ) -> None:
        """Note an evaluation of the model after local step `step`, which ended at `time_s`."""
        if ("evaluation", step) in self._noted:
            return
        self._write({"evaluation": step, "time_s": time_s, "accuracy": accuracy, "loss": loss})

    def tensors(self, declared: Sequence[Declared]) -> None:
        """Note tensors of a script."""
        self._write({"tensors": declared})

    def holds(self, name: str) -> None:
        """Note that this worker, a script, has initialised a tensor whose shape another notes."""
        self._write({"holds": name})

    def sets_optimizer(self) -> None:
        """Note that this worker, a script, sets an optimizer for the global servers."""
        self._write({"sets_optimizer": True})

    def parameters(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Write the final parameters into a file beside the notes."""
        write_arrays(path(self._stem, ".npz"), arrays)

    def waits(self, whom: str) -> None:
        """Note that this node has waited for `whom` beyond the limit; empty: the wait is over."""
        if self.metrics is not None:
            self.metrics.waits_for = whom
        self._write({"waits": whom})

    def lacks(self, key: int) -> None:
        """Note the key for whose initial value this global server waits beyond the limit.

        -1: the wait is over.
        """
        self._write({"lacks": key})

    def idle(self, is_idle: bool) -> None:
        """Note whether this node has neither computed nor sent anything for the limit."""
        self._write({"idle": is_idle})

    def killed(self, event: int, restart_s: float | None) -> None:
        """Note that the scenario kills this process now.

        Args:
            event: The number of the event in the scenario.
            restart_s: Seconds until a new process replaces it; None: never.
        """
        self._write({"killed": restart_s, "event": event})

    def begins(self, event: int, time_s: float) -> None:
        """Note that an event of the scenario begins, which does so at an iteration.

        Args:
            event: Its number in the scenario.
            time_s: Seconds since the start of the run.
        """
        self._write({"begins": event, "time_s": time_s})

    def resumes(self) -> None:
        """Note that all processes of the run were killed, and that it is continued."""
        self._write({"resumes": True})

    def again(self) -> None:
        """Note that a new process of this node, without state, begins."""
        self._write({"again": True})

    def member(self, time_s: float, kind: str, names: Sequence[str], about: Sequence[int]) -> None:
        """Note a change of the members that take part; see ``members`` of `geomx._core.Loop`.

        A change that another process of this node has noted has no effect.
        """
        if json.dumps([kind, names, about]) in self._members:
            return
        self._write({"member": kind, "time_s": time_s, "names": names, "about": about})

    def left(self, steps: int) -> None:
        """Note that this worker, a script, has left after so many local steps."""
        self._write({"left": steps})

    def recovered(self, monotonic_s: float) -> None:
        """Note when this process had resumed its node, in seconds of the clock of the run."""
        self._write({"recovered": monotonic_s})

    def end(self, **facts: Any) -> None:
        """Write the last line; further calls have no effect."""
        with self._lock:
            if self._ended:
                return
            self._ended = True
        self._write({"end": facts})

    def _write(self, note: Note) -> None:
        with naming(self._path):
            self._file.write(json.dumps(note) + "\n")
            if self._synced:
                os.fsync(self._file.fileno())
