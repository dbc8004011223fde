"""What the first worker of a script calls its keys, for the others to compare.

Keys travel as numbers, in the order of their initialisation. Workers that initialise them in
another order would add up different tensors. The first worker notes the names of its keys in a file
that processes on the same machine can read; on other machines nothing is compared.
"""

from __future__ import annotations

import json
from pathlib import Path

from geomx.errors import GeomxError
from geomx.live.files import Reader, path


class KeyNames:
    """The names of the first worker's keys, as another worker reads them.

    Args:
        stem: Path of the first worker's notes without suffix.
        first: Name of the first worker.
        own: Name of the worker that compares.
    """

    def __init__(self, stem: Path, first: str, own: str) -> None:
        self._first, self._own = first, own
        self._names: dict[int, str] = {}
        self._reader = Reader(stem)

    def forget(self) -> None:
        """Ignore what the file holds by now: before the run can start, that is of another run."""
        for _ in self._reader.lines():
            pass

    def compare(self, key: int, name: int | str) -> None:
        """Check that the first worker means the same key, unless it has not noted it.

        Args:
            key: Number of the key, whose initial value has arrived.
            name: What this worker calls it.

        Raises:
            GeomxError: The first worker calls it something else.
        """
        if key not in self._names:
            for note in self._reader.new():
                for number, called, *_ in note.get("tensors", ()):
                    self._names[number] = called
        called = self._names.get(key, str(name))
        if called != str(name):
            raise GeomxError(
                f"{self._own} calls key {key} {str(name)!r}, and {self._first} calls it "
                f"{called!r}: initialise the same keys in the same order on every worker"
            )


def note_name(stem: Path, key: int, name: int | str) -> None:
    """Note the name of a key of the first worker, before its initial value is sent.

    Args:
        stem: Path of the file without suffix.
        key: Number of the key.
        name: What the first worker calls it.
    """
    with path(stem, ".jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps({"tensors": [[key, str(name)]]}) + "\n")
