"""The interface of what follows a run while it is recorded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from geomx.results.files import Row


class Follower(Protocol):
    """What is told of a run while it is recorded."""

    def iteration(self, row: Row) -> None:
        """Take a row of ``iterations.csv``."""

    def evaluation(self, row: Row) -> None:
        """Take a row of ``evaluations.csv``."""

    def fault(self, row: Row) -> None:
        """Take an entry of ``faults`` of the summary."""

    def end(self, summary: Mapping[str, Any]) -> None:
        """Take the summary, when all files are written."""
