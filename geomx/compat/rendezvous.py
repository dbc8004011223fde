"""Exchange of notes between processes before there is a job: a scheduler's hub, the others' spokes.

A note is a line of JSON and, for a tensor, its bytes; it contains no code. Spokes retry until they
are accepted, so that processes may start in any order; a hub is notified of every spoke that ends.
The exchange trusts its network, as GeoMX does; the connections of the job, which are made later,
require a token that is sent here.
"""

from __future__ import annotations

import contextlib
import json
import queue
import socket
import threading
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Client, Connection, Listener
from typing import Any

from geomx.compat.roles import Address
from geomx.errors import GeomxError
from geomx.live.member import JOIN_TIMEOUT_S

GONE = "gone"
"""Type of the note that a hub receives when a spoke has ended; ``left``: regularly."""

FAILED = "failed"
"""Type of a note that ends its receiver, with a ``reason``."""

BYE = "bye"

_REDIAL_S = 0.2
_LARGEST = 1 << 31  # bytes of a note
_LARGEST_FIRST = 1 << 20  # bytes of a note from a process that has not registered


@dataclass
class Note:
    """A message between processes: a type, facts, and optionally bytes."""

    type: str
    facts: dict[str, Any] = field(default_factory=dict)
    body: bytes = b""

    def __getitem__(self, name: str) -> Any:
        return self.facts[name]


def _pack(note: Note) -> bytes:
    return json.dumps({"type": note.type, **note.facts}).encode() + b"\n" + note.body


def _unpack(data: bytes) -> Note:
    """Decode a note.

    Raises:
        ValueError: `data` is not a note.
    """
    head, _, body = data.partition(b"\n")
    facts = json.loads(head)
    if not isinstance(facts, dict) or not isinstance(facts.get("type"), str):
        raise ValueError("no note")
    return Note(facts.pop("type"), facts, body)


class Spoke:
    """The connection of this process to a hub.

    Args:
        address: Address of the hub.
        whose: Role of the hub's process in messages: ``scheduler``.
        about: Description of this process.
        patience_s: Time limit for connecting, in seconds.

    Raises:
        GeomxError: The hub could not be reached; the message has address and time limit.
    """

    def __init__(
        self,
        address: Address,
        whose: str,
        about: dict[str, Any],
        patience_s: float = JOIN_TIMEOUT_S,
    ) -> None:
        self._whose = f"the {whose} at {address[0]}:{address[1]}"
        self._waiting: list[Note] = []
        deadline = time.monotonic() + patience_s
        while True:
            try:
                self.connection: Connection[bytes, bytes] = Client(address, "AF_INET")
                break
            except OSError as error:
                if time.monotonic() < deadline:
                    time.sleep(_REDIAL_S)
                    continue
                raise GeomxError(
                    f"{self._whose} was not reached in {patience_s:.0f} s ({error}): check "
                    "that it runs, that the address is right, and that no firewall blocks it"
                ) from error
        self.send("register", **about)

    def send(self, type: str, body: bytes = b"", **facts: Any) -> None:
        """Send a note to the hub.

        Args:
            type: Type of the note.
            body: Bytes of a tensor, if any.
            facts: JSON fields of the note.

        Raises:
            GeomxError: The connection is broken.
        """
        try:
            self.connection.send_bytes(_pack(Note(type, facts, body)))
        except OSError as error:
            raise GeomxError(f"the connection to {self._whose} is lost") from error

    def receive(self) -> Note:
        """Wait for the next note and return it.

        Raises:
            GeomxError: The connection is broken, or the hub reports a failure of the job.
        """
        try:
            note = _unpack(self.connection.recv_bytes(_LARGEST))
        except (OSError, EOFError, ValueError) as error:
            raise GeomxError(f"the connection to {self._whose} is lost") from error
        if note.type == FAILED:
            raise GeomxError(str(note["reason"]))
        return note

    def expect(self, type: str) -> Note:
        """Wait for the next note of a type; other notes are kept for later.

        Args:
            type: Type of the note.

        Returns:
            The note.

        Raises:
            GeomxError: As `receive`.
        """
        for index, note in enumerate(self._waiting):
            if note.type == type:
                return self._waiting.pop(index)
        while True:
            note = self.receive()
            if note.type == type:
                return note
            self._waiting.append(note)

    def leave(self) -> None:
        """Disconnect regularly."""
        with contextlib.suppress(GeomxError):
            self.send(BYE)
        self.connection.close()

    def here(self) -> str:
        """Return the address by which this process reaches the hub."""
        with socket.socket(fileno=socket.dup(self.connection.fileno())) as same:
            return str(same.getsockname()[0])


class Hub:
    """The scheduler's end of all spokes.

    Args:
        address: Address to listen on.

    Raises:
        GeomxError: The address is in use, or does not belong to this machine.
    """

    def __init__(self, address: Address) -> None:
        try:
            self._listener = Listener(address, "AF_INET", backlog=128)
        except OSError as error:
            place = f"{address[0]}:{address[1]}"
            raise GeomxError(f"the scheduler cannot listen on {place}: {error}") from error
        self._connections: dict[int, Connection[bytes, bytes]] = {}
        self._heard: queue.Queue[tuple[int, Note]] = queue.Queue()
        threading.Thread(target=self._accept, daemon=True).start()

    def receive(self, timeout_s: float) -> tuple[int, Note] | None:
        """Wait for the next note of any spoke.

        Args:
            timeout_s: Time limit in seconds.

        Returns:
            The number of the spoke and the note; None after the time limit.
        """
        try:
            return self._heard.get(timeout=timeout_s)
        except queue.Empty:
            return None

    def send(self, spoke: int, note: Note) -> None:
        """Send a note to a spoke, unless it has ended.

        Args:
            spoke: Number of the spoke, from `receive`.
            note: The note.
        """
        with contextlib.suppress(OSError):
            self._connections[spoke].send_bytes(_pack(note))

    def close(self) -> None:
        """Accept no further spokes."""
        self._listener.close()

    def _accept(self) -> None:
        number = 0
        while True:
            try:
                connection = self._listener.accept()
            except OSError:
                return
            number += 1
            threading.Thread(target=self._read, args=(number, connection), daemon=True).start()

    def _read(self, spoke: int, connection: Connection[bytes, bytes]) -> None:
        """Queue the notes of a spoke; disconnect it on invalid data."""
        left = known = False
        try:
            while not left:
                note = _unpack(connection.recv_bytes(_LARGEST if known else _LARGEST_FIRST))
                if not known and note.type != "register":
                    break
                if not known:
                    self._connections[spoke] = connection
                known, left = True, note.type == BYE
                if not left:
                    self._heard.put((spoke, note))
        except (OSError, EOFError, ValueError):
            pass
        connection.close()
        if known:
            self._heard.put((spoke, Note(GONE, {"left": left})))
