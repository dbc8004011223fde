"""One combination: predicted, the prediction recorded with its hash, then run live.

Every run is a process of its own with the command line that a user would type. Finished runs are
kept, so that an interrupted study can be resumed.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from geomx.errors import GeomxError
from geomx.experiment.costs import this_machine
from geomx.results.results import Results

TIMEOUT_S = 600
PREDICTION = "prediction.json"


def measure(
    words: Sequence[str], directory: Path, repeats: int, files: Sequence[Path] = ()
) -> tuple[Results, list[Results]]:
    """Return the simulated and the live runs, running those that do not exist.

    Args:
        words: Overrides.
        directory: Directory of the runs.
        repeats: Number of live runs.
        files: Files that `words` name; runs that are older than one of them do not count.

    Raises:
        GeomxError: A run failed.
    """
    # As with mode=both: the nodes of the live run share the cores that this process may use.
    cores = this_machine()[1]
    sim = _run(["mode=sim", f"costs.cores={cores}", *words], directory / "sim", files)
    note = directory / PREDICTION
    digest = hashlib.sha256((sim.directory / "summary.json").read_bytes()).hexdigest()
    if not note.exists() or json.loads(note.read_text("utf-8"))["sha256"] != digest:
        predicted = sim.summary["seconds_per_iteration"]["mean"]
        content = {"seconds_per_iteration": predicted, "sha256": digest}
        note.write_text(json.dumps(content) + "\n", encoding="utf-8")
    live = [
        _run(["mode=live", *words], directory / f"live{index}", [note, *files])
        for index in range(repeats)
    ]
    return sim, live


def _run(words: Sequence[str], directory: Path, files: Sequence[Path]) -> Results:
    """Run `words` unless `directory` has their results, and these are newer than all `files`."""
    words = [*words, f"hydra.run.dir={directory}"]
    summary = directory / "summary.json"
    changed = max((file.stat().st_mtime for file in files), default=0.0)
    if summary.exists() and summary.stat().st_mtime >= changed:
        results = Results.load(directory)
        whole = "aborted" not in results.summary and "behind_pace_s" in results.summary
        if results.summary["words"] == list(words) and whole:  # of this version, and not cut short
            return results
    # Existing results have other overrides, or are incomplete.
    shutil.rmtree(directory, ignore_errors=True)
    command = [sys.executable, "-m", "geomx", *words]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise GeomxError(f"took longer than {TIMEOUT_S} s") from error
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or [f"status {done.returncode}"]
        raise GeomxError(lines[-1])
    return Results.load(directory)


def phases(results: Results) -> dict[str, float]:
    """Return the time of an iteration by phase, in seconds.

    ``compute`` and ``wait`` are means over all workers and iterations; ``push`` and ``pull`` are
    the seconds per iteration during which the busiest WAN link was sending towards and from global
    servers.
    """
    rows = results.iterations
    steps = results.summary["iterations"]
    spent: dict[str, float] = {
        name: sum(row[f"{name}_s"] for row in rows) / len(rows) for name in ("compute", "wait")
    }
    busy: dict[str, list[float]] = {"push": [0.0], "pull": [0.0]}
    for row in results.links:
        if row["kind"] == "wan":
            way = "pull" if "global_server" in row["source"] else "push"
            busy[way].append(row["busy_s"] / steps)
    return spent | {way: max(values) for way, values in busy.items()}


def traffic(results: Results) -> dict[str, Any]:
    """Return bytes and messages per link, with the run's control traffic apart."""
    return {
        f"{row['source']} -> {row['target']}": (row["bytes"], row["messages"])
        for row in results.links
    }
