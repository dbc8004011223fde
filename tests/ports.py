"""Ports for tests that must know a port before anything listens on it."""

from __future__ import annotations

import random
import socket

# Linux gives outgoing connections, and sockets that ask for any port, ports from 32768 on. One of
# those that is free now may belong to another test by the time the node listens, over UDP too.
FIRST, END = 12000, 32768


def free_port(number: int = 1) -> int:
    """Return a port that is unused, as are the `number - 1` next ones."""
    while True:
        first = random.SystemRandom().randrange(FIRST, END - number)
        try:
            for port in range(first, first + number):
                with socket.create_server(("127.0.0.1", port)):
                    pass
        except OSError:
            continue
        return first
