"""Where a node's files are, and the reader of its notes (`geomx.live.journal` writes them).

Imports little: on every machine of a job, a process beside each node reads that node's notes, and
should begin quickly and take little memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

Note = dict[str, Any]


def stem(directory: Path, name: str) -> Path:
    """Return the path of a node's files without suffix: ``directory/nodes/beijing-worker0``."""
    return directory / "nodes" / quote(name.replace("/", "-"), safe="")


def path(stem: Path, suffix: str) -> Path:
    """Return the path of one of a node's files."""
    return stem.with_name(stem.name + suffix)


def experiment_file(directory: Path) -> Path:
    """Return the path of the experiment (`geomx.live.spec.Spec`) of the run in `directory`."""
    return directory / "nodes" / "experiment.json"


def checkpoint_file(directory: Path) -> Path:
    """Return the path of what the run in `directory` begins with (`geomx.live.checkpoint`)."""
    return directory / "nodes" / "checkpoint.npz"


def script_file(directory: Path) -> Path:
    """Return the path of the command that workers started by hand run, if the run is a script's."""
    return directory / "nodes" / "script.txt"


def durable(directory: Path, name: str) -> Path:
    """Return the path of a node's journal."""
    return directory / "durable" / (stem(directory, name).name + ".journal")


def members_noted(notes: Iterable[Note]) -> set[str]:
    """Return the changes of members among notes, without their times."""
    return {
        json.dumps([note["member"], note["names"], note["about"]])
        for note in notes
        if "member" in note
    }


class Reader:
    """Reads the notes of a node, which may still be writing them, or may not have begun."""

    def __init__(self, stem: Path) -> None:
        self._path = path(stem, ".jsonl")
        self._read = 0

    def new(self) -> Iterable[Note]:
        """Yield the notes whose lines were completed since the last call."""
        return map(json.loads, self.lines())

    def lines(self) -> Iterable[str]:
        """Yield these lines themselves."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._read)
                data = file.read()
        except FileNotFoundError:
            return
        complete = data[: data.rfind(b"\n") + 1]
        self._read += len(complete)
        for line in complete.splitlines():
            yield line.decode()


def has_left(stem: Path) -> bool:
    """Return whether the latest process of a node has noted its end."""
    kinds = [next(iter(note)) for note in Reader(stem).new()]
    return next((kind for kind in reversed(kinds) if kind in ("end", "again")), "") == "end"
