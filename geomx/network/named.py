"""The networks that ship with geomx, for ``network=NAME`` and for listings.

Each is a file of ``geomx.conf`` that starts with a comment: a one-sentence summary, then
``Source:`` and the origin of its values. This module reads both from the file, so that they are
written once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

import yaml

from geomx.cluster import Cluster
from geomx.network.files import read_network

_SUFFIX = ".yaml"
_SOURCE = "# Source: "


@dataclass(frozen=True)
class NamedNetwork:
    """A network that ships with geomx.

    Attributes:
        name: For ``network=NAME``.
        summary: One sentence.
        source: Origin of its values, empty if not stated.
        content: The parsed file.
    """

    name: str
    summary: str
    source: str
    content: dict[str, Any]

    def cluster(self) -> Cluster:
        """Return the nodes, the parties and the graph."""
        return read_network(self.content)


def network_names() -> list[str]:
    """Return the names of all of them, sorted."""
    names = (entry.name for entry in _folder().iterdir())
    return sorted(name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX))


def named_networks() -> Iterator[NamedNetwork]:
    """Yield all of them, sorted by name."""
    for name in network_names():
        text = (_folder() / f"{name}{_SUFFIX}").read_text(encoding="utf-8")
        lines = text.splitlines()
        sources = [line for line in lines if line.startswith(_SOURCE)]
        yield NamedNetwork(
            name,
            lines[0].removeprefix("# "),
            sources[0].removeprefix(_SOURCE) if sources else "",
            yaml.safe_load(text),
        )


def _folder() -> Traversable:
    return files("geomx.conf") / "network"
