"""What a launcher and its agents say to each other: lines of JSON on standard input and output.

The launcher's first line is the opening: everything that the node must know and that nobody should
read in a list of processes. Then it says ``beat`` every second. An agent that hears nothing for
`SILENCE_S`, or the end of its input, ends its node: whatever happened to the launcher or to the way
between them, nothing is left running.

An agent says, each in a line of its own:

======================================  ============================================================
``{"listening": "HOST:PORT"}``          the scheduler's address
``{"log": text}``                       a line that the node wrote
``{"note": text}``                      a line of its notes (`geomx.live.journal`)
``{"file": suffix, "data": base64}``    a piece of a file that it left
``{"beat": n, "heard": s, "said": s}``  the answer to a beat, with this machine's monotonic clock
``{"end": status}``                     the last: the node's exit status
======================================  ============================================================

The launcher takes any other line for one of the log, such as a greeting of the machine's shell.
"""

from __future__ import annotations

import json
import threading
from dataclasses import asdict, dataclass, field
from typing import IO, Any

from geomx.errors import GeomxError

BEAT_S = 1.0
SILENCE_S = 10.0
"""How long an agent goes on without hearing from its launcher."""

ELSEWHERE = "auto"
"""In place of a machine's address: what brought the agent there says it, as GEOMX_HOST."""

PIECE_BYTES = 48 * 1024
"""Of a file, in one line."""


@dataclass(frozen=True)
class Opening:
    """What an agent is told first.

    Attributes:
        name: The node.
        id: Its number.
        host: The address that it listens on, or `ELSEWHERE`.
        token: Lets it into the run.
        experiment: Text of the experiment, for the scheduler; else empty.
        scheduler: Whom to join, for everybody else.
        command: What a worker runs instead of the workload; empty: the workload.
        directory: Where the command runs; empty: where the agent was started.
        env: More of the environment.
        tls: Contents of the PEM files by `geomx.live.access.FILES`; empty: no TLS.
    """

    name: str
    id: int
    host: str
    token: str
    experiment: str = ""
    scheduler: str = ""
    command: list[str] = field(default_factory=list)
    directory: str = ""
    env: dict[str, str] = field(default_factory=dict)
    tls: dict[str, str] = field(default_factory=dict)

    def line(self) -> bytes:
        """As it travels."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def read(cls, line: str) -> Opening:
        """What `line` wrote.

        Raises:
            GeomxError: It is something else.
        """
        try:
            return cls(**json.loads(line))
        except (ValueError, TypeError) as error:
            raise GeomxError(f"--attached wants an opening on standard input: {error}") from error


class Voice:
    """Says frames, from any thread."""

    def __init__(self, out: IO[bytes]) -> None:
        self._out = out
        self._lock = threading.Lock()

    def say(self, **frame: Any) -> None:
        """One frame; gone at once.

        Raises:
            OSError: Nobody listens any more.
        """
        with self._lock:
            self._out.write(json.dumps(frame).encode() + b"\n")
            self._out.flush()


def heard(line: bytes) -> dict[str, Any]:
    """The frame that a line holds; what is no frame is a line of a log."""
    try:
        frame = json.loads(line)
    except ValueError:
        frame = None
    if isinstance(frame, dict):
        return frame
    return {"log": line.decode(errors="replace").rstrip("\r\n")}
