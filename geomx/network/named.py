"""The networks that come with geomx, for ``network=NAME`` and for lists of them.

Each is a file of ``geomx.conf``. It opens with a comment: one sentence that says what it is, then
``Source:`` and where its figures come from. This module reads that, so that there is one place to
write it down.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import yaml

from geomx.cluster import Cluster
from geomx.network.files import read_network

_FOLDER = "network"
_SOURCE = "# Source: "


@dataclass(frozen=True)
class NamedNetwork:
    """One of them.

    Attributes:
        name: For ``network=NAME``.
        summary: One sentence.
        source: Where its figures come from.
        content: What the file holds.
    """

    name: str
    summary: str
    source: str
    content: dict[str, Any]

    def cluster(self) -> Cluster:
        """Who takes part, and the graph."""
        return read_network(self.content)


def named_networks() -> Iterator[NamedNetwork]:
    """All of them, by name."""
    folder = files("geomx.conf") / _FOLDER
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if not entry.name.endswith(".yaml"):
            continue
        text = entry.read_text(encoding="utf-8")
        lines = text.splitlines()
        sources = [line for line in lines if line.startswith(_SOURCE)]
        yield NamedNetwork(
            entry.name.removesuffix(".yaml"),
            lines[0].removeprefix("# "),
            sources[0].removeprefix(_SOURCE) if sources else "",
            yaml.safe_load(text),
        )
