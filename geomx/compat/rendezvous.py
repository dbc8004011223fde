"""Where processes meet before there is a job: a scheduler's hub, and everybody else's spoke.

A note is a line of JSON and, for a tensor, its bytes. Nothing in it is code. Spokes dial until
somebody answers, so processes may start in any order; a hub hears of every spoke that ends. It
trusts its network, like GeoMX: the job's own connections, which are made afterwards, ask for a
token that is told here.
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
"""What a hub hears, as the type of a note, when a spoke has ended; ``left``: in good order."""

FAILED = "failed"
"""The type of a note that ends whoever gets it, for its ``reason``."""

BYE = "bye"

_REDIAL_S = 0.2
_LARGEST = 1 << 31  # bytes of a note
_LARGEST_FIRST = 1 << 20  # of a note by somebody who has not said who it is


@dataclass
class Note:
    """What one process tells another: a type, facts, and perhaps bytes."""

    type: str
    facts: dict[str, Any] = field(default_factory=dict)
    body: bytes = b""

    def __getitem__(self, name: str) -> Any:
        return self.facts[name]


def _pack(note: Note) -> bytes:
    return json.dumps({"type": note.type, **note.facts}).encode() + b"\n" + note.body


def _unpack(data: bytes) -> Note:
    """Read a note.

    Raises:
        ValueError: It is none.
    """
    head, _, body = data.partition(b"\n")
    facts = json.loads(head)
    if not isinstance(facts, dict) or not isinstance(facts.get("type"), str):
        raise ValueError("no note")
    return Note(facts.pop("type"), facts, body)


class Spoke:
    """This process' line to a hub.

    Args:
        address: Of the hub.
        whose: Who sits there, for messages: ``scheduler``.
        about: Who this is.
        patience_s: How long to dial.

    Raises:
        GeomxError: Nobody answered; says where, and for how long.
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
                    "that it runs, that the address is right, and that no firewall is between"
                ) from error
        self.send("register", **about)

    def send(self, type: str, body: bytes = b"", **facts: Any) -> None:
        """Tell the hub.

        Raises:
            GeomxError: It is gone.
        """
        try:
            self.connection.send_bytes(_pack(Note(type, facts, body)))
        except OSError as error:
            raise GeomxError(f"{self._whose} is gone") from error

    def receive(self) -> Note:
        """The next note; waits for it.

        Raises:
            GeomxError: The hub is gone, or says that the job failed.
        """
        try:
            note = _unpack(self.connection.recv_bytes(_LARGEST))
        except (OSError, EOFError, ValueError) as error:
            raise GeomxError(f"{self._whose} is gone") from error
        if note.type == FAILED:
            raise GeomxError(str(note["reason"]))
        return note

    def expect(self, type: str) -> Note:
        """The next note of one type; others are kept for later."""
        for index, note in enumerate(self._waiting):
            if note.type == type:
                return self._waiting.pop(index)
        while True:
            note = self.receive()
            if note.type == type:
                return note
            self._waiting.append(note)

    def leave(self) -> None:
        """Go in good order."""
        with contextlib.suppress(GeomxError):
            self.send(BYE)
        self.connection.close()

    def here(self) -> str:
        """The address by which this process reaches the hub."""
        with socket.socket(fileno=socket.dup(self.connection.fileno())) as same:
            return str(same.getsockname()[0])


class Hub:
    """The scheduler's end of all spokes.

    Args:
        address: Where to listen.

    Raises:
        GeomxError: It is taken, or not of this machine.
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
        """The next note and whose it is, by a number; None if there was none in time."""
        try:
            return self._heard.get(timeout=timeout_s)
        except queue.Empty:
            return None

    def send(self, spoke: int, note: Note) -> None:
        """Tell one spoke; one that has ended does not hear it."""
        with contextlib.suppress(OSError):
            self._connections[spoke].send_bytes(_pack(note))

    def close(self) -> None:
        """Hear nobody any more."""
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
        """Put what a spoke says into the queue; whoever says nonsense is not listened to."""
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
