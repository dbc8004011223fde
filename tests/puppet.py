"""A member of a live run that sends arbitrary messages: the wire format of docs/protocol.md."""

from __future__ import annotations

import hmac
import secrets
import socket
import struct
import time
from typing import Any, NamedTuple

from geomx import _core

KINDS = [
    "hello",
    "join",
    "roster",
    "ready",
    "start",
    "barrier",
    "release",
    "heartbeat",
    "bye",
    "stop",
    "dead",
    "command",
    "report",
    "reply",
    "init",
    "pull_request",
    "push",
    "value",
    "closing",
    "members",
    "challenge",
    "proof",
    "records",
    "replicated",
]
UNNUMBERED = ("hello", "heartbeat", "closing", "challenge", "proof")
FIELDS = [
    "version",
    "kind",
    "channel",
    "flags",
    "source",
    "key",
    "shard",
    "round",
    "merge_count",
    "priority",
    "shard_elements",
    "total_rows",
    "first_row",
    "rows",
    "slice",
    "slices",
    "reliable",
    "server",
    "offset",
    "loss",
    "payload_bytes",
    "above",
]
HEADER = struct.Struct("<4s4B5Ii9If2I")
PREFIX = struct.Struct("<4sIq")
PATIENCE_S = 20.0


class Message(NamedTuple):
    """A received message: its kind, header fields by name, and payload."""

    kind: str
    header: dict[str, Any]
    payload: bytes


def header(kind: str, payload: bytes = b"", **fields: Any) -> bytes:
    """Return a header; fields that are not given are 0."""
    values = {**dict.fromkeys(FIELDS, 0), "loss": float("nan"), **fields}
    values.update(version=_core.WIRE_VERSION, kind=KINDS.index(kind))
    values.setdefault("payload_bytes", 0)
    if "payload_bytes" not in fields:
        values["payload_bytes"] = len(payload)
    return HEADER.pack(b"GMX1", *(values[name] for name in FIELDS))


def strings(*texts: str | bytes) -> bytes:
    """Return the payload of a control message."""
    raw = [text.encode() if isinstance(text, str) else text for text in texts]
    return b"".join(struct.pack("<I", len(each)) + each for each in raw)


def words(payload: bytes) -> list[bytes]:
    """Return the strings of a control message."""
    found = []
    while payload:
        (size,) = struct.unpack_from("<I", payload)
        found.append(payload[4 : 4 + size])
        payload = payload[4 + size :]
    return found


class Wire:
    """One connection to a node, from the first hello on.

    Args:
        address: ``host:port`` of the node.
        node: Id of the calling node.
        token: Of the run.
        incarnation: Of the calling process; 0 for the first call to the scheduler.
    """

    def __init__(self, address: str, node: int, token: str, incarnation: int = 0) -> None:
        host, port = address.rsplit(":", 1)
        self.node = node
        self.received = 0  # numbered messages
        self.socket = socket.create_connection((host, int(port)), PATIENCE_S)
        mine, about = secrets.token_bytes(32), {"key": incarnation, "shard": 1}
        self.send("hello", strings(mine), **about)
        theirs = words(self.receive().payload)[0]
        hello = header("hello", source=node, **about)
        said = strings("geomx caller", mine, theirs, "", hello, "", "")
        proof = hmac.new(token.encode(), said, "sha256").digest()
        self.send("proof", strings(proof))
        self.answer = self.receive()

    @property
    def accepted(self) -> bool:
        """Whether the node has accepted this connection."""
        return self.answer.kind == "hello"

    def raw(self, kind: str, payload: bytes = b"", **fields: Any) -> bytes:
        """Return a frame."""
        fields.setdefault("source", self.node)
        return PREFIX.pack(b"GMXT", self.received, 0) + header(kind, payload, **fields) + payload

    def send(self, kind: str, payload: bytes = b"", **fields: Any) -> None:
        """Send a message."""
        self.socket.sendall(self.raw(kind, payload, **fields))

    def receive(self) -> Message:
        """Return the next message.

        Raises:
            ConnectionError: The connection has ended.
        """
        head = self._read(PREFIX.size + HEADER.size)
        fields = dict(zip(FIELDS, HEADER.unpack_from(head, PREFIX.size)[1:], strict=True))
        kind = KINDS[fields["kind"]]
        self.received += kind not in UNNUMBERED
        return Message(kind, fields, self._read(fields["payload_bytes"]))

    def await_(self, kind: str) -> Message:
        """Return the next message of a kind; drop others."""
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            message = self.receive()
            if message.kind == kind:
                return message
        raise TimeoutError(f"no {kind} in {PATIENCE_S} s")

    def drain(self) -> list[Message]:
        """Return all messages until the connection ends, or nothing has come for a second."""
        found = []
        self.socket.settimeout(1.0)
        try:
            while True:
                found.append(self.receive())
        except OSError:
            return found
        finally:
            self.socket.settimeout(PATIENCE_S)

    def close(self) -> None:
        """End the connection."""
        self.socket.close()

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise ConnectionError("the connection has ended")
            data += part
        return data


class Puppet:
    """A worker that has joined a run by hand, and is connected to the scheduler and its server.

    Args:
        scheduler: Address of the scheduler.
        name: Of the worker.
        node: Its id.
        parent: Name of its local server.
        token: Of the run.
    """

    def __init__(self, scheduler: str, name: str, node: int, parent: str, token: str) -> None:
        self.scheduler = Wire(scheduler, node, token)
        assert self.scheduler.accepted, self.scheduler.answer
        self.scheduler.send("join", strings(name, "", "127.0.0.1:9"))
        roster = words(self.scheduler.await_("roster").payload)[1].decode()
        places = {line.split("\t")[0]: line.split("\t")[1:] for line in roster.splitlines()}
        self.roster = places
        incarnation = int(places[name][1])
        self.server = Wire(places[parent][0], node, token, incarnation)
        assert self.server.accepted, self.server.answer
        self.scheduler.send("ready")

    def close(self) -> None:
        """End both connections."""
        self.scheduler.close()
        self.server.close()


def transfer(elements: int, round: int = 1, kind: str = "push", **fields: Any) -> dict[str, Any]:
    """Return the fields of a shard that travels in one piece."""
    whole = {"shard_elements": elements, "total_rows": elements, "rows": elements}
    return {
        "kind": kind,
        "round": round,
        "merge_count": 1,
        "slices": 1,
        "reliable": 1,
        **whole,
        **fields,
    }
