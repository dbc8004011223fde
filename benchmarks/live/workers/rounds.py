"""The measured part, the same for every contender: averaging rounds of all workers at once.

A worker's program calls `measure`, under the interpreter of its contender: this module needs
nothing but numpy. The command that starts the workers describes the task in the environment:
``BENCH_TASK``, JSON with the tensors' ``sizes`` (and how many in a row have them), the number of
``rounds``, the number of ``workers``, the ``folder`` of the results, and the process ``root`` whose
descendants are all processes of the contender.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

TICKS = os.sysconf("SC_CLK_TCK")


def task() -> dict[str, Any]:
    """Return the task from the environment."""
    found: dict[str, Any] = json.loads(os.environ["BENCH_TASK"])
    found["sizes"] = [size for size, times in found["sizes"] for _ in range(times)]
    return found


def measure(
    rank: int,
    barrier: Callable[[], None],
    average: Callable[[Sequence[Any]], None],
    arrays: Sequence[Any],
    began: float,
    view: Callable[[Any], Any] = lambda array: array,
    before: Sequence[tuple[str, int]] = (),
) -> None:
    """Run the rounds, check every sum, and write ``RANK.json``.

    Args:
        rank: Of this worker.
        barrier: Waits for all workers.
        average: Replaces the arrays by the sums over all workers.
        arrays: One for each tensor.
        began: When initialisation began, in seconds of ``time.monotonic``.
        view: Returns an array as one of numpy that shares its memory.
        before: What `memory` returned before initialisation.
    """
    todo = task()
    ready = time.monotonic()
    spans: list[tuple[float, float]] = []
    cpu = aside = 0.0
    for number in range(todo["rounds"]):
        before_s = time.thread_time()
        for index, array in enumerate(arrays):
            view(array)[...] = contribution(rank, number, index)
        aside += (time.thread_time() - before_s) * (number > 1)
        barrier()
        if number == 1 and rank == 0:  # what the first round needs once is not counted
            cpu = processor_seconds(todo["root"])
        start = time.monotonic()
        average(arrays)
        spans.append((start, time.monotonic()))
        before_s = time.thread_time()
        for index, array in enumerate(arrays):
            total = sum(contribution(each, number, index) for each in range(todo["workers"]))
            values = view(array).reshape(-1)
            if values[0] != total or values[-1] != total:
                raise SystemExit(f"round {number}: {values[0]} is not the sum {total}")
        aside += (time.thread_time() - before_s) * (number > 0)
    barrier()
    facts: dict[str, Any] = {"init_s": ready - began, "spans": spans, "aside_s": aside}
    if rank == 0 and todo["rounds"] > 1:
        facts["cpu_s"] = processor_seconds(todo["root"]) - cpu
        facts["memory"] = [before, memory(todo["root"], "VmHWM")]
    Path(todo["folder"], f"{rank}.json").write_text(json.dumps(facts))
    barrier()


def contribution(rank: int, number: int, index: int) -> float:
    """Return what a worker contributes; sums over workers are exact in float32."""
    return float(rank + 1 + number % 3 + index % 5)


def descendants(root: int) -> list[Path]:
    """Return the folders in ``/proc`` of a process and all its descendants."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parents[int(folder.name)] = int(_fields(folder)[1])
            except OSError:  # it has ended
                continue
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return [Path("/proc", str(pid)) for pid in sorted(found)]


def processor_seconds(root: int) -> float:
    """Return the processor time that a process and its descendants have used so far."""
    total = 0.0
    for folder in descendants(root):
        try:
            total += sum(map(int, _fields(folder)[11:13])) / TICKS
        except OSError:
            continue
    return total


def memory(root: int, kind: str = "VmRSS") -> list[tuple[str, int]]:
    """Return the command lines of the descendants, and their memory in bytes.

    Args:
        root: Their ancestor.
        kind: ``VmRSS``: now; ``VmHWM``: the most so far.
    """
    found = []
    for folder in descendants(root):
        try:
            words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            status = (folder / "status").read_text()
        except OSError:
            continue
        lines = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        found.append((words.strip(), int(lines.get(kind, "0 kB").split()[0]) * 1024))
    return found


def _fields(folder: Path) -> list[str]:
    """Return the fields of ``stat`` behind the name, which may contain anything."""
    return (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()


def zeros(sizes: Sequence[int]) -> list[Any]:
    """Return an array for each size, whose pages exist."""
    return [np.full(size, 1.0, np.float32) for size in sizes]
