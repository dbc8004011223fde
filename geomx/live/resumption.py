"""What the processes of a resumed run must know, after all processes of the run were killed.

The launcher writes it to a file beside the journals before it starts the processes. Their clock
continues from its value when the run was killed, independently of this machine's clock. A node
whose port is used by another program gets a new port; the launcher keeps both kinds free
(`geomx.live.held_ports`).
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path

from geomx.live.spec import Spec
from geomx.results.files import write_json

_NAME = "resumed.json"


@dataclass(frozen=True)
class Resumption:
    """How a run is continued.

    Attributes:
        ahead_s: Seconds that the clock of the run is ahead of `time.monotonic`.
        addresses: ``host:port`` of every node, by name; none in a run that was not killed.
        usage_file: As for `Spec`.
        checkpoint: Likewise.
    """

    ahead_s: float = 0.0
    addresses: dict[str, str] = field(default_factory=dict)
    usage_file: str = ""
    checkpoint: str = ""

    @classmethod
    def beside(cls, journal: Path) -> Resumption:
        """Return what the launcher has written beside a node's journal, if it has."""
        try:
            return cls(**json.loads((journal.parent / _NAME).read_text(encoding="utf-8")))
        except FileNotFoundError:
            return cls()

    def write(self, durable: Path) -> None:
        """Write it into the folder of the journals."""
        write_json(durable / _NAME, dataclasses.asdict(self))

    def moved(self, spec: Spec) -> Spec:
        """Return the experiment `spec`, whose folder may have been moved since."""
        return dataclasses.replace(
            spec,
            usage_file=self.usage_file or spec.usage_file,
            checkpoint=self.checkpoint or spec.checkpoint,
        )
