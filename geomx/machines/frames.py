"""The protocol between a launcher and its agents: lines of JSON on standard input and output.

The launcher's first line is the opening: everything that the node must know and that must not
appear in a list of processes. Then it sends ``beat`` every second. An agent that receives nothing
for `SILENCE_S`, or the end of its input, ends its node, so that nothing is left running after a
failure of the launcher or of the connection.

An agent sends, one per line:

======================================  ============================================================
``{"listening": "HOST:PORT"}``          the scheduler's address
``{"log": text}``                       a line of the node's output
``{"note": text}``                      a line of its notes (`geomx.live.journal`)
``{"taken": text}``                     one of the global server whose place this standby has taken
``{"file": suffix, "data": base64}``    a piece of a file that it wrote
``{"beat": n, "heard": s, "said": s}``  the answer to a beat, with this machine's monotonic clock
``{"end": status}``                     the last: the node's exit status
======================================  ============================================================

Any other line, such as a greeting of the machine's shell, is treated as a line of the log.
"""

from __future__ import annotations

import json
import threading
from dataclasses import asdict, dataclass, field
from typing import IO, Any

from geomx.errors import GeomxError
from geomx.version import __version__

BEAT_S = 1.0
SILENCE_S = 10.0
"""Time without data from the launcher after which an agent ends its node."""

ELSEWHERE = "auto"
"""Placeholder for a machine's address; the agent reads it from GEOMX_HOST."""

PIECE_BYTES = 48 * 1024
"""Limit on the bytes of a file in one line."""


@dataclass(frozen=True)
class Opening:
    """The first line to an agent: the description of its node.

    Attributes:
        name: Name of the node.
        id: Its id.
        host: Address that it listens on, or `ELSEWHERE`.
        token: Authenticates it to the run.
        experiment: Text of the experiment, for the scheduler; otherwise empty.
        scheduler: Address of the scheduler, for all other nodes.
        command: Command that a worker runs instead of the workload; empty: the workload.
        directory: Working directory of the command; empty: the agent's.
        env: Additional environment variables.
        tls: Contents of the PEM files by `geomx.live.access.FILES`; empty: no TLS.
        again: Whether an earlier process of the node was lost.
        stands_by: Of a standby: the name of its global server; otherwise empty.
        journals: Name of the folder on its machine where it keeps its journal, from which another
            process resumes (`geomx.live.journal`); empty: it has none.
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
    again: bool = False
    stands_by: str = ""
    journals: str = ""

    def line(self) -> bytes:
        """Return the encoded line."""
        return json.dumps({"geomx": __version__, **asdict(self)}).encode() + b"\n"

    @classmethod
    def read(cls, line: str) -> Opening:
        """Decode a line.

        Args:
            line: As `line` encodes it.

        Raises:
            GeomxError: It is something else, or of a launcher with another version of geomx.
        """
        try:
            fields = dict(json.loads(line))
            if (theirs := fields.pop("geomx", "of another version")) != __version__:
                raise GeomxError(
                    f"the launcher runs geomx {theirs}, this is {__version__}: install the same "
                    "version on all machines"
                )
            return cls(**fields)
        except (ValueError, TypeError) as error:
            raise GeomxError(
                f"--attached needs the node's description on standard input: {error}"
            ) from error


class FrameWriter:
    """Sends frames, from any thread.

    Args:
        out: Stream of the connection.
    """

    def __init__(self, out: IO[bytes]) -> None:
        self._out = out
        self._lock = threading.Lock()

    def say(self, **frame: Any) -> None:
        """Send one frame without buffering.

        Raises:
            OSError: The other end is closed.
        """
        with self._lock:
            self._out.write(json.dumps(frame).encode() + b"\n")
            self._out.flush()


def heard(line: bytes) -> dict[str, Any]:
    """Decode a frame; anything else becomes a line of the log.

    Args:
        line: One line of an agent's output.

    Returns:
        The frame.
    """
    try:
        frame = json.loads(line)
    except ValueError:
        frame = None
    if isinstance(frame, dict):
        return frame
    return {"log": line.decode(errors="replace").rstrip("\r\n")}
