"""Notes of a run's processes for the process that started them: one JSON object per line.

Every line reaches the operating system at once, so a process that is killed outright leaves all
that it had measured. A worker writes ``iteration`` and ``evaluation`` lines; every node begins with
``started`` and ends with ``end``.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from geomx.results.files import naming, sync_folder

Span = tuple[str, str, float, float, dict[str, int]]
"""(name, category, start in seconds since the start of the run, duration in seconds, arguments)"""

Note = dict[str, Any]


def stem(directory: Path, name: str) -> Path:
    """Return the path of a node's files without suffix: ``directory/nodes/beijing-worker0``."""
    return directory / "nodes" / quote(name.replace("/", "-"), safe="")


def path(stem: Path, suffix: str) -> Path:
    """Return the path of one of a node's files."""
    return stem.with_name(stem.name + suffix)


def durable(directory: Path, name: str) -> Path:
    """Return the path of the file from which a node can be continued."""
    return directory / "durable" / (stem(directory, name).name + ".journal")


class Notes:
    """A node's own file. What the system refuses to write raises an `OSError` that names it.

    Args:
        stem: Of the node's files.
        resumed: Whether another process of this node has written before; its last line may be cut
            short.
    """

    def __init__(self, stem: Path, resumed: bool = False) -> None:
        self._path = path(stem, ".jsonl")
        self._noted: set[tuple[str, int]] = set()  # of a worker that repeats its last steps
        if resumed and self._path.exists():
            written = self._path.read_bytes()
            os.truncate(self._path, written.rfind(b"\n") + 1)
            self._noted = {
                (kind, note[kind])
                for note in Reader(stem).new()
                for kind in ("iteration", "evaluation")
                if kind in note
            }
        self._file = self._path.open("a" if resumed else "w", encoding="utf-8", buffering=1)
        self._lock = threading.Lock()
        self._ended = False
        self._synced = False

    def sync(self) -> None:
        """From now on, every line survives a failure of the machine (faults.log_sync)."""
        with naming(self._path):
            os.fsync(self._file.fileno())
            sync_folder(self._path.parent)
        self._synced = True

    def started(self, monotonic_s: float) -> None:
        """Note the start of the run, by the clock of the run."""
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

        A step that was noted before has no effect; nor has an evaluation.
        """
        if ("iteration", step) in self._noted:
            return
        times = {"start_s": start_s, "compute_s": compute_s, "end_s": end_s}
        self._write({"iteration": step, **times, "loss": loss, "spans": list(spans)})

    def evaluation(self, time_s: float, step: int, accuracy: float, loss: float) -> None:
        """Note an evaluation of the model after local step `step`, which ended at `time_s`."""
        if ("evaluation", step) in self._noted:
            return
        self._write({"evaluation": step, "time_s": time_s, "accuracy": accuracy, "loss": loss})

    def waits(self, whom: str) -> None:
        """Note that this node has waited too long for `whom`; empty when the wait is over."""
        self._write({"waits": whom})

    def killed(self, restart_s: float | None) -> None:
        """Note that the scenario kills this process now; None: for good."""
        self._write({"killed": restart_s})

    def resumes(self) -> None:
        """Note that the whole run was killed, and is continued."""
        self._write({"resumes": True})

    def again(self) -> None:
        """Note that another process of this node begins, which remembers nothing."""
        self._write({"again": True})

    def member(self, time_s: float, kind: str, names: Sequence[str], about: Sequence[int]) -> None:
        """Note who takes part; see ``members`` of `geomx._core.Loop`."""
        self._write({"member": kind, "time_s": time_s, "names": names, "about": about})

    def recovered(self, monotonic_s: float) -> None:
        """Note when another process of this node has continued it."""
        self._write({"recovered": monotonic_s})

    def end(self, **facts: Any) -> None:
        """The last line; a second call has no effect."""
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


class Reader:
    """Follows the file of a node that may still be writing, or may not have begun."""

    def __init__(self, stem: Path) -> None:
        self._path = path(stem, ".jsonl")
        self._read = 0

    def new(self) -> Iterable[Note]:
        """Return the lines that were completed since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._read)
                data = file.read()
        except FileNotFoundError:
            return
        complete = data[: data.rfind(b"\n") + 1]
        self._read += len(complete)
        for line in complete.splitlines():
            yield json.loads(line)
