"""The messages between a worker's process and the simulator, over a Unix socket.

A message consists of fields, as a JSON object, and an array of bytes, which may be empty. A process
sends requests, each with its name under ``op``, and waits for a reply to those with ``asks``.
Nothing is ever executed or unpickled. The socket is in a folder that only the user may enter.
"""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

SOCKET = "GEOMX_SIMULATION"
"""The environment variable with the path of the simulator's socket."""

WORKER = "GEOMX_NAME"
"""The environment variable with the name of the worker, as in live runs."""

_SIZES = struct.Struct("<IQ")  # of the fields, and of the bytes that follow

Message = tuple[dict[str, Any], bytearray]


def send(to: socket.socket, fields: dict[str, Any], content: Any = b"") -> None:
    """Send a message.

    Args:
        to: A connected socket.
        fields: Names and numbers.
        content: Bytes, or a contiguous array.

    Raises:
        OSError: The other end is gone.
    """
    text = json.dumps(fields).encode()
    with memoryview(content) as view:
        to.sendall(_SIZES.pack(len(text), view.nbytes) + text)
        if view.nbytes:
            to.sendall(view.cast("B"))


def receive(source: socket.socket) -> Message | None:
    """Wait for a message.

    Args:
        source: A connected socket.

    Returns:
        Its fields and its bytes; None if the other end is gone.
    """
    head = _exactly(source, _SIZES.size)
    if head is None:
        return None
    length, size = _SIZES.unpack(head)
    text = _exactly(source, length)
    content = _exactly(source, size)
    if text is None or content is None:
        return None
    return json.loads(text.decode()), content


def _exactly(source: socket.socket, size: int) -> bytearray | None:
    content = bytearray(size)
    with memoryview(content) as view:
        had = 0
        while had < size:
            try:
                got = source.recv_into(view[had:])
            except ConnectionError:
                return None
            if got == 0:
                return None
            had += got
    return content
